"""Fold segments into summaries, compute figures of summaries, and read the sum of both."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from operator import add
from threading import Lock

from hubbub.metrics.definitions import Definitions
from hubbub.metrics.metric import Metric
from hubbub.summary import BitCounts, Summary, summary_from_bytes, summary_to_bytes
from hubbub.summary.pattern_counts import MAX_PATTERN_BITS, PatternCounts
from hubbub.summary.summary_file import read_count_profile
from hubbub_aggregator.errors import JobError, StoreError
from hubbub_aggregator.monitoring.jobs import failure_text
from hubbub_aggregator.store.interface import PeriodStore, StoredPeriod
from hubbub_aggregator.store.period_figures import PeriodFigures, StoredFigures, figures_of

_MAX_REPORTS_PER_FOLD = 1 << 20
"""Most reports in memory during one fold: 17 MB at k = 128."""
_MAX_FIGURES_PER_RUN = 250
"""Summaries read in one run of `compute_figures`: about half a second of one core."""


def summary_type(metric: Metric) -> type[BitCounts] | type[PatternCounts]:
    """Return the type of a metric's summaries: pattern counts for k <= 16, else bit counts."""
    return PatternCounts if metric.num_bits <= MAX_PATTERN_BITS else BitCounts


def summarize(metric: Metric, stored: StoredPeriod) -> Summary:
    """Return the sum of a stored period's summary and its segments, closed if the period is."""
    counted = summary_type(metric).from_rows(metric, stored.cohorts, stored.rows, [stored.period])
    total: Summary = counted if stored.summary is None else add(counted, summary_from_bytes(stored.summary))
    return replace(total, closed=stored.closed)


def read_summary(store: PeriodStore, metric: Metric, periods: Collection[str] | None = None) -> Summary:
    """Return the exact summary of a metric version as of now, folded or not; periods None: of all periods.

    With a group, the sum over it. It is closed if every value is closed and none was purged: a value that is not stored may still come.
    """
    total: Summary | None = None
    values_complete = Counter[str]()
    for collection in metric.collections:
        for stored in store.read(collection.digest, periods):
            values_complete[stored.period] += stored.is_complete
            if not stored.is_empty:
                summary = summarize(collection, stored)
                total = summary if total is None else add(total, summary)
    if total is None:
        return summary_type(metric).empty(metric)
    closed = all(values_complete[period] == len(metric.collections) for period in total.periods)
    return replace(total, metric=metric, closed=closed)


def fold(
    store: PeriodStore,
    metric: Metric,
    max_reports: int = _MAX_REPORTS_PER_FOLD,
    keeps_reports: Callable[[str], bool] = lambda _period: False,
) -> None:
    """Fold every segment that a metric version has now, except of periods that another replica folds at this moment.

    keeps_reports : returns whether a period's reports are retained beside its counts

    Counting runs outside the transaction. If another process folds the same segments in the meantime, the store
    refuses this fold and the next round continues.
    """
    for period in store.unfolded(metric.digest):
        with store.lease(metric.digest, period) as held:
            while held and _fold_some(store, metric, period, max_reports, keeps_reports(period)):
                pass


def _fold_some(store: PeriodStore, metric: Metric, period: str, max_reports: int, retain: bool) -> bool:
    """Fold a period's oldest segments; return whether the period may have more."""
    for stored in list(store.read(metric.digest, [period], max_reports)):
        if stored.segments:
            summary = summarize(metric, stored)
            figures = figures_of(metric.blocks, summary.count_profile())
            if store.fold(stored, summary_to_bytes(summary), retain, figures):
                return len(stored.cohorts) >= max_reports
    return False


def compute_figures(store: PeriodStore, definitions: Definitions, most: int = _MAX_FIGURES_PER_RUN) -> None:
    """Compute and store the figures of at most `most` summaries without current figures.

    Raises JobError, after all others are stored, with the metrics that have unreadable summaries.
    """
    metrics = {metric.digest: metric for metric in definitions.collections()}
    rows, failed = list[StoredFigures](), dict[str, str]()
    for digest, period, revision in store.stale_figures():
        if digest not in metrics:
            continue
        if len(rows) == most:
            break
        try:
            [figures] = [
                figures_of(metrics[digest].blocks, read_count_profile(stored.summary))
                for stored in store.read(digest, [period], max_reports=1)
                if stored.summary is not None and stored.revision == revision
            ] or [PeriodFigures()]
        except Exception as problem:  # noqa: BLE001  (the others are computed)
            failed[metrics[digest].name] = failure_text(problem)
        else:
            rows.append(StoredFigures(digest, period, revision, figures, is_stale=False))
    if rows:
        store.put_figures(rows)
    if failed:
        raise JobError(
            f"the figures of summaries cannot be computed ({', '.join(failed)}): {next(iter(failed.values()))}"
        )


class FoldProgress:
    """Time of the last successful folding, and the age of the oldest unfolded segment in rounds of folding.

    The arrival time of a segment is not stored, not even in memory, because a segment may hold one person's report. Each round
    of folding stores the largest segment id at its start instead. A segment that a complete round did not fold has been late
    since the start of that round. While folding works no segment is left after a round, and the age is 0.

    Rounds run in one thread; any thread may read the figures.

    segment_ids : returns the smallest and the largest segment id; None: there is no segment
    clock       : returns seconds since 1970
    stopwatch   : returns monotonic seconds
    """

    def __init__(
        self,
        segment_ids: Callable[[], tuple[int, int] | None],
        clock: Callable[[], float],
        stopwatch: Callable[[], float] = time.monotonic,
    ) -> None:
        self._segment_ids = segment_ids
        self._clock = clock
        self._stopwatch = stopwatch
        self._lock = Lock()
        self._rounds: deque[tuple[int, float]] = deque()  # largest id at the start of a round, and the start
        self.last_fold = 0.0
        """End of the last round without a failure, in seconds since 1970; 0: none since the start."""

    def round(self, fold: Callable[[], object]) -> None:
        """Run `fold` once and record the round; exceptions of `fold` propagate."""
        began, before = self._stopwatch(), self._segment_ids()
        try:
            fold()
            self.last_fold = self._clock()
        finally:
            with suppress(StoreError):
                self._record(began, before, self._segment_ids())

    def oldest_segment_age(self) -> float:
        """Return the seconds since the start of the first round that did not fold the oldest segment; 0: no such segment."""
        with self._lock:
            return self._stopwatch() - self._rounds[0][1] if self._rounds else 0.0

    def _record(self, began: float, before: tuple[int, int] | None, after: tuple[int, int] | None) -> None:
        with self._lock:
            if before is not None:
                self._rounds.append((before[1], began))
            while self._rounds and (after is None or self._rounds[0][0] < after[0]):
                self._rounds.popleft()
