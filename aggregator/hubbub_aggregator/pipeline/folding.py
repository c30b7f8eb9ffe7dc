"""Segments -> summaries, once each; figures of summaries; and a read, which adds up segments and summaries."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import reduce
from operator import add

from hubbub.metrics.definitions import Definitions
from hubbub.metrics.metric import Metric
from hubbub.summary import BitCounts, Summary, summary_from_bytes, summary_to_bytes
from hubbub.summary.pattern_counts import MAX_PATTERN_BITS, PatternCounts
from hubbub.summary.summary_file import read_count_profile
from hubbub_aggregator.errors import JobError
from hubbub_aggregator.monitoring.job_health import failure_text
from hubbub_aggregator.store.interface import Store, StoredPeriod
from hubbub_aggregator.store.period_figures import PeriodFigures, StoredFigures, figures_of

_REPORTS_AT_ONCE = 1 << 20
"""Most reports in memory during one fold: 17 MB at k = 128."""
_FIGURES_AT_ONCE = 250
"""Summaries read in one step, after an upgrade: about half a second of one core."""


def summary_type(metric: Metric) -> type[BitCounts] | type[PatternCounts]:
    """Return what reports of a metric are folded into: patterns where they are few enough, else bits."""
    return PatternCounts if metric.params.num_bits <= MAX_PATTERN_BITS else BitCounts


def summarize(metric: Metric, holding: StoredPeriod) -> Summary:
    """Add a holding's segments to its summary."""
    counted = summary_type(metric).from_rows(metric, holding.cohorts, holding.rows, [holding.period])
    total: Summary = counted if holding.summary is None else add(counted, summary_from_bytes(holding.summary))
    return total


def read_summary(store: Store, metric: Metric, periods: Collection[str] | None = None) -> Summary:
    """Sum up all that is stored of a metric version, folded or not, as of one moment: exact and fresh."""
    each = (summarize(metric, holding) for holding in store.read(metric.digest, periods))
    return reduce(add, each, summary_type(metric).empty(metric))


def fold(
    store: Store,
    metric: Metric,
    max_reports: int = _REPORTS_AT_ONCE,
    keeps_reports: Callable[[str], bool] = lambda _period: False,
) -> None:
    """Fold every segment that a metric version has now; keep the reports of the periods that it retains.

    The counting is outside the transaction: if another process folds the same meanwhile, the store refuses the
    second, which leaves it to the next round.
    """
    for period in store.unfolded(metric.digest):
        while _fold_some(store, metric, period, max_reports, keeps_reports(period)):
            pass


def _fold_some(store: Store, metric: Metric, period: str, max_reports: int, retain: bool) -> bool:
    """Fold a period's oldest segments; return whether there were more than that."""
    for holding in list(store.read(metric.digest, [period], max_reports)):
        if holding.segments:
            summary = summarize(metric, holding)
            figures = figures_of(metric.params, summary.count_profile())
            if store.fold(holding, summary_to_bytes(summary), retain, figures):
                return len(holding.cohorts) >= max_reports
    return False


def compute_figures(store: Store, definitions: Definitions, most: int = _FIGURES_AT_ONCE) -> None:
    """Store the figures of at most `most` summaries that have none: those that an older hubbub folded.

    A summary that cannot be read keeps none of the others; a JobError names its metric.
    """
    metrics = {metric.digest: metric for metric in definitions.versions()}
    rows, failed = list[StoredFigures](), dict[str, str]()
    for digest, period, revision in store.stale_figures():
        if digest not in metrics:
            continue
        if len(rows) == most:
            break
        try:
            [figures] = [
                figures_of(metrics[digest].params, read_count_profile(holding.summary))
                for holding in store.read(digest, [period], max_reports=1)
                if holding.summary is not None and holding.revision == revision
            ] or [PeriodFigures()]
        except Exception as problem:  # noqa: BLE001  (it keeps none of the others)
            failed[metrics[digest].name] = failure_text(problem)
        else:
            rows.append(StoredFigures(digest, period, revision, figures, is_stale=False))
    if rows:
        store.put_figures(rows)
    if failed:
        raise JobError(
            f"the figures of summaries cannot be computed ({', '.join(failed)}): {next(iter(failed.values()))}"
        )
