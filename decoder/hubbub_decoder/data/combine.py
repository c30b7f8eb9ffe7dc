"""Files of one definition, be they counts or reports -> one of them that has all reports."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add

from hubbub.summary import BitCounts, PatternCounts, Reports
from hubbub.summary.pattern_counts import MAX_PATTERN_BITS
from hubbub.text import counted

Collected = BitCounts | PatternCounts | Reports


def combine(parts: Sequence[Collected]) -> Collected:
    """Add up, in the most telling form that all parts have: reports, else whole patterns, else bits."""
    if all(isinstance(part, Reports) for part in parts):
        return reduce(add, parts)
    if any(isinstance(part, BitCounts) or part.metric.params.num_bits > MAX_PATTERN_BITS for part in parts):
        return reduce(add, (part if isinstance(part, BitCounts) else part.bit_counts() for part in parts))
    return reduce(add, (part.pattern_counts() if isinstance(part, Reports) else part for part in parts))


def describe(collected: Collected) -> str:
    """Say what it holds.

    >>> from hubbub import Metric
    >>> describe(BitCounts.empty(Metric.boolean("from_jfk", prob_p=0, prob_q=1, prob_f=0.5)))
    'the bit counts of 0 reports'
    """
    match collected:
        case BitCounts():
            form = "the bit counts of"
        case PatternCounts():
            form = "the pattern counts of"
        case Reports():
            form = "the bits of each of"
    return f"{form} {counted(collected.num_reports, 'report')}"
