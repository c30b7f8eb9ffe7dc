"""Add up summaries and reports of one definition."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add

from hubbub.summary import BitCounts, Reports
from hubbub.summary.pattern_counts import MAX_PATTERN_BITS
from hubbub.text import format_count
from hubbub_decoder.model.evidence import Collected


def combine(parts: Sequence[Collected]) -> Collected:
    """Sum of all parts, in the most informative form that all of them support: reports, else pattern counts, else bit counts."""
    if all(isinstance(part, Reports) for part in parts):
        return reduce(add, parts)
    if any(isinstance(part, BitCounts) or part.metric.num_bits > MAX_PATTERN_BITS for part in parts):
        return reduce(add, (part.bit_counts() for part in parts))
    return reduce(add, (part.pattern_counts() if isinstance(part, Reports) else part for part in parts))


def describe(collected: Collected) -> str:
    """Description of the form and the number of reports, for messages.

    >>> from hubbub import Metric
    >>> describe(BitCounts.empty(Metric.boolean("from_jfk", prob_p=0, prob_q=1, prob_f=0.5)))
    'bit counts of 0 reports'
    """
    if isinstance(collected, Reports):
        return format_count(collected.num_reports, "individual report")
    form = "bit counts" if isinstance(collected, BitCounts) else "pattern counts"
    return f"{form} of {format_count(collected.num_reports, 'report')}"
