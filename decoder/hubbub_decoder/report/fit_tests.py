"""Goodness-of-fit tests in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hubbub_decoder.results.estimates import FitTest
from hubbub_decoder.results.warnings import MAX_P_VALUE

QUESTIONS = {
    "patterns": "Can a set of strings explain the reported bit patterns?",
    "patterns_of_one_cohort": "Can a set of strings explain the bit patterns of each cohort?",
    "number_of_ones": "Can a set of strings explain the numbers of ones in the reports?",
    "coincident_hashes": "Do the two hashes of a string coincide as often as the hash scheme predicts?",
    "equal_cohorts": "Do all cohorts have equally many clients?",
    "ones_by_cohort": "Do the reports of all cohorts have equally many ones?",
    "share_with_value": "Is the share of reports with a value between 0% and 100%?",
    "thresholds": "Do fewer numbers reach higher thresholds?",
    "even_bits": "Is each bit set as often as the others, on average over the cohorts?",
}


@dataclass(frozen=True, slots=True)
class FitTestRow:
    """One test: its question, its p-value as text, and whether it fails."""

    question: str
    name: str
    p_value: str
    failed: bool


def fit_test_rows(tests: Sequence[FitTest]) -> Iterator[FitTestRow]:
    """Yield the tests in the order of the decoding; a test fails where the decoding has a warning about it."""
    for test in tests:
        yield FitTestRow(QUESTIONS[test.name], test.name, _format(test.p_value), test.p_value < MAX_P_VALUE)


def _format(p_value: float) -> str:
    """P-value as text.

    >>> _format(0.25), _format(2e-9), _format(0.0)
    ('0.250', '2e-09', 'below 1e-300')
    """
    return f"{p_value:.3f}" if p_value >= 0.001 else f"{p_value:.0e}" if p_value > 0 else "below 1e-300"
