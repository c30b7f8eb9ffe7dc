"""Provenance of a report: inputs with their digests, options, release."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path

from hubbub.text import DISTRIBUTION
from hubbub_decoder.results.decoding import Decoding

_MAX_FILES = 40


def provenance_rows(
    decoding: Decoding, summaries: Sequence[Path], candidates: Path | None, today: date
) -> Iterator[tuple[str, str]]:
    """Yield labels and texts: files by name and SHA-256, the options of `decode`, the release of hubbub and the UTC date.

    candidates : file of candidates, or a map; None: no file
    """
    for path in summaries[:_MAX_FILES]:
        yield "Summary", _describe(path)
    if len(summaries) > _MAX_FILES:
        yield "More summaries", f"{len(summaries) - _MAX_FILES:,}"
    if candidates is not None:
        yield "Candidates", _describe(candidates)
    repeated = {None: "", True: ", the same clients in all periods", False: ", other clients in each period"}
    yield (
        "Options",
        f"confidence {decoding.confidence:g}, false discovery rate {decoding.fdr:g}, target {decoding.target}{repeated[decoding.same_clients]}",
    )
    yield "Made with", f"hubbub {version(DISTRIBUTION)} on {today.isoformat()} (UTC)"


def _describe(path: Path) -> str:
    return f"{path.name}, SHA-256 {hashlib.sha256(path.read_bytes()).hexdigest()}" if path.is_file() else str(path)
