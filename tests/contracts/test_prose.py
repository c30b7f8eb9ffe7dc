"""Prose of the documents and of all docstrings: avoided words and long sentences stay below the limits of `prose.py`."""

from __future__ import annotations

from tests.contracts.prose import count_parts, violations


def test_prose_stays_below_all_limits() -> None:
    parts = count_parts()
    assert sum(counts.words for counts in parts.values()) > 50_000  # the walk finds the prose
    assert violations(parts) == []
