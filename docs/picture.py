"""Draw docs/images/demo.png: estimated and true shares of the demo's destinations.

python docs/picture.py
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from hubbub_decoder.demo.flights import airports, sample_flights
from hubbub_decoder.demo.pipeline import run_demo
from hubbub_decoder.results.plot_style import figure_of


def main() -> None:
    comparison = run_demo(
        sample_flights(None), datetime.now(UTC).date(), workers=2, progress=lambda _step, _flights: None
    )[0]
    axes = comparison.decoding.plot(truth=comparison.truth, names=airports(), top=30)
    figure_of(axes).savefig(Path(__file__).parent / "images" / "demo.png", dpi=110)


if __name__ == "__main__":
    main()
