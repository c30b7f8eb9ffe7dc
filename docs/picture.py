"""Draw docs/images/demo.png: estimated and true shares of the demo's destinations.

python docs/picture.py
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from hubbub_decoder.demo.flights import airports, people
from hubbub_decoder.demo.pipeline import walk
from hubbub_decoder.results.plots import intervals_figure


def main() -> None:
    comparison = walk(people(None), datetime.now(UTC).date(), workers=2, told=lambda _what, _more: None)[0]
    figure = intervals_figure(comparison.decoding, comparison.truth, names=airports(), limit=30)
    figure.savefig(Path(__file__).parent / "images" / "demo.png", dpi=110)


if __name__ == "__main__":
    main()
