"""Segments -> summaries, once each; and a read, which is both added up."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import reduce
from operator import add

from hubbub.metric import Metric
from hubbub.summary import BitCounts, Summary, summary_from_bytes, summary_to_bytes
from hubbub.summary.pattern_counts import MAX_PATTERN_BITS, PatternCounts
from hubbub_aggregator.store import Holding, Store

_REPORTS_AT_ONCE = 1 << 20
"""Most reports in memory during one fold: 17 MB at k = 128."""


def counted_as(metric: Metric) -> type[BitCounts] | type[PatternCounts]:
    """Return what reports of a metric are folded into: patterns where they are few enough, else bits."""
    return PatternCounts if metric.params.num_bits <= MAX_PATTERN_BITS else BitCounts


def summarize(metric: Metric, holding: Holding) -> Summary:
    """Add a holding's segments to its summary."""
    counted = counted_as(metric).of_rows(metric, holding.cohorts, holding.rows, [holding.period])
    total: Summary = counted if holding.summary is None else add(counted, summary_from_bytes(holding.summary))
    return total


def read_summary(store: Store, metric: Metric, periods: Collection[str] | None = None) -> Summary:
    """Sum up all that is stored of a metric version, folded or not, as of one moment: exact and fresh."""
    each = (summarize(metric, holding) for holding in store.read(metric.digest, periods))
    return reduce(add, each, counted_as(metric).empty(metric))


def fold(
    store: Store,
    metric: Metric,
    max_reports: int = _REPORTS_AT_ONCE,
    retains: Callable[[str], bool] = lambda _period: False,
) -> None:
    """Fold every segment that a metric version has now; keep the reports of the periods that it retains.

    The counting is outside the transaction: if another process folds the same meanwhile, the store refuses the
    second, which leaves it to the next round.
    """
    for period in store.unfolded(metric.digest):
        while _fold_some(store, metric, period, max_reports, retains(period)):
            pass


def _fold_some(store: Store, metric: Metric, period: str, max_reports: int, retain: bool) -> bool:
    """Fold a period's oldest segments; return whether there were more than that."""
    for holding in list(store.read(metric.digest, [period], max_reports)):
        if holding.segments and store.fold(holding, summary_to_bytes(summarize(metric, holding)), retain):
            return len(holding.cohorts) >= max_reports
    return False
