"""Detected changes between successive periods, as rows of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hubbub.text import escape_untrusted
from hubbub_decoder.comparison.results import Change, Comparison


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """Detected change between two periods."""

    label: str
    before: str
    after: str
    change: Change


def change_rows(comparisons: Sequence[Comparison]) -> Iterator[ChangeRow]:
    """Yield the detected changes, the latest first, and those of one pair of periods in descending order of size."""
    for comparison in reversed(comparisons):
        for change in comparison.detected:
            label = " = ".join(map(escape_untrusted, (change.candidate, *change.indistinguishable_from)))
            yield ChangeRow(label, comparison.a.periods[0], comparison.b.periods[0], change)
