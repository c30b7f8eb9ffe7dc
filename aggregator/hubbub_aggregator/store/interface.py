"""Guarantees of the stores of reports and periods, independent of the database; those of tokens and the clock are beside their types."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from hubbub.metrics.metric import Metric
from hubbub.wire.batch import Batch
from hubbub_aggregator.store.clock_state import ClockStore
from hubbub_aggregator.store.period_figures import PeriodFigures, StoredFigures, VersionTotals
from hubbub_aggregator.store.tokens import TokenStore


class AppendResult(Enum):
    """Result of appending one batch."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class StoredPeriod:
    """Summary and unfolded segments of one metric version and period, at one moment.

    revision      : number of folds into the summary
    summary       : bytes of the summary file; None: no summary yet
    segments      : ids of the unfolded segments, or of the oldest of them
    cohorts, rows : their reports, concatenated: n bytes, and n x ceil(k/8) bytes
    smallest      : fewest reports in one of these segments; 0: no segment
    closed        : whether the store refuses further reports of the period
    """

    digest: str
    period: str
    revision: int
    summary: bytes | None
    segments: tuple[int, ...]
    cohorts: bytes
    rows: bytes
    smallest: int
    closed: bool

    @property
    def is_empty(self) -> bool:
        """Whether the period has neither counts nor reports: it is closed, and has been purged or never had any."""
        return self.summary is None and not self.segments

    @property
    def is_complete(self) -> bool:
        """Whether the period has all reports that it will ever have: it is closed and not purged. A purge counts as a fold."""
        return self.closed and not (self.is_empty and self.revision)


@dataclass(frozen=True, slots=True)
class StoredReports:
    """Stored reports of a metric version, retained or unfolded, at one moment.

    periods : periods with reports
    blocks  : yields the reports as (cohorts, rows), part of one period at a time; every call yields the same
    """

    periods: tuple[str, ...]
    num_reports: int
    blocks: Callable[[], Iterator[tuple[bytes, bytes]]]


class ReportStore(Protocol):
    """Receives batches, and counts each batch once: a database or an object store.

    A batch is identified by its metric version, period and batch id; a retry sends the same three.
    """

    def append(self, batches: Sequence[Batch]) -> list[AppendResult]:
        """Store batches in one durable transaction, as one segment per metric version and period.

        A batch with an id that is stored, or that occurs earlier in `batches`, is a DUPLICATE. A batch of a closed period is CLOSED.
        Neither is stored. Batches must have been validated against their metric.
        """

    def contains(self, batch: Batch) -> bool:
        """Return whether this batch's id is stored."""

    def require_intact(self) -> None:
        """Raise FilesInDoubtError if a restart would not open the files that are written now."""

    def probe(self) -> None:
        """Write durably as a test; raise StoreError if that fails."""


class FigureStore(Protocol):
    """Answers the pages, `/metrics` and `hubbub doctor` without reading a summary."""

    def version_totals(self) -> dict[str, VersionTotals]:
        """Return the stored figures of each metric version, by digest."""

    def recent_reports(self, digests: Collection[str], since: str) -> dict[tuple[str, str], int]:
        """Return the number of folded reports of these metric versions, by digest and period, from the period `since` on."""

    def period_rows(self, digests: Collection[str]) -> list[StoredFigures]:
        """Return the stored figures of each period of these metric versions, in the order of the periods."""

    def unfolded_reports(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Return the number of unfolded segments and reports, by digest and period."""

    def implausible_periods(self) -> dict[tuple[str, str], int]:
        """Return the number of periods that failed an implausibility test, by digest and kind of test."""

    def stale_figures(self) -> list[tuple[str, str, int]]:
        """Return digest, period and revision of each summary without current figures, newest periods first."""

    def put_figures(self, rows: Sequence[StoredFigures]) -> None:
        """Store figures, except for summaries with a newer revision."""

    def segment_ids(self) -> tuple[int, int] | None:
        """Return the smallest and the largest segment id; None: no segment."""

    def segments_waiting(self) -> int:
        """Return the number of unfolded segments."""

    def last_backup(self) -> int | None:
        """Return the start of the last recorded backup, in seconds since 1970; None: no backup."""

    def add_refusals(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Add to the counters of (metric, reason)."""

    def refusals(self) -> dict[tuple[str, str], int]:
        """Return the counters of (metric, reason)."""


class PeriodStore(FigureStore, Protocol):
    """Counts, retained reports and figures of each period, from its first fold until its purge."""

    def read(
        self, digest: str, periods: Collection[str] | None = None, max_reports: int | None = None
    ) -> Iterator[StoredPeriod]:
        """Yield the stored periods of a metric version, also closed ones without reports, all as of one moment; periods None: all.

        max_reports : stop reading a period's segments when they have this many reports
        """

    def unfolded(self, digest: str) -> list[str]:
        """Return the periods with unfolded segments."""

    def lease(self, digest: str, period: str) -> AbstractContextManager[bool]:
        """Return a context in which no other replica folds or deletes this period; False: another one does so now, or nothing is stored.

        A lease saves the work of doing it twice, and does not wait. No guarantee depends on it: `fold` also refuses the second of two folds.
        A replica that dies or loses its database connection loses its leases.
        """

    def fold(
        self, stored: StoredPeriod, summary: bytes, retain: bool = False, figures: PeriodFigures | None = None
    ) -> bool:
        """Replace a stored period's summary and segments by the new summary, in one transaction.

        retain  : move the segments' reports to the retained reports, sorted
        figures : figures of the new summary; None: the job `compute_figures` computes them

        Returns False, without a change, if another fold came first.
        """

    def reports(self, digest: str, periods: Collection[str]) -> AbstractContextManager[StoredReports]:
        """Return a context with the reports of these periods, as of one moment."""

    def periods_with_reports(self, digest: str) -> list[str]:
        """Return the periods with retained or unfolded reports."""

    def periods_retained(self) -> list[tuple[str, str]]:
        """Return digest and period of each period with retained reports."""

    def num_retained(self, digest: str) -> int:
        """Return the number of retained reports of a metric version."""

    def drop_reports(self, digest: str, period: str, between_steps: Callable[[], None] = ...) -> None:
        """Delete a period's retained reports; its counts stay.

        between_steps : called between two steps, outside a transaction; each step deletes a bounded number of rows
        """

    def smallest_segment(self, digest: str, period: str) -> int | None:
        """Return the size of the smallest commit among stored reports; None: no stored reports.

        Each report is shuffled among at least this many.
        """

    def open_periods(self) -> list[tuple[str, str]]:
        """Return digest and period of each open period."""

    def metric_of(self, digest: str) -> str | None:
        """Return the metric name of a stored digest; None: nothing is stored for it."""

    def close_period(self, metric: Metric, period: str, between_steps: Callable[[], None] = ...) -> None:
        """Refuse new reports of a period permanently, and delete its batch ids; for `between_steps` see `drop_reports`.

        With a group, the period is closed for all its values at once, also for those without reports, and the ids of `metric` alone are deleted.
        After an interruption the next call deletes the remaining ids.
        """

    def half_closed_periods(self) -> list[tuple[str, str]]:
        """Return digest and period of each closed period that still has batch ids, or needs its mark in the object store."""

    def closed_periods(self, digest: str) -> list[str]:
        """Return the closed periods of a metric version that still have counts or reports."""

    def purge(self, digest: str, period: str, between_steps: Callable[[], None] = ...) -> None:
        """Delete counts and reports of a closed period, which stays closed; for `between_steps` see `drop_reports`."""


class Store(ReportStore, PeriodStore, TokenStore, ClockStore, Protocol):
    """What the application opens and closes. Every other consumer asks for the part that it needs.

    Every method of every part may raise StoreError; then nothing has changed.
    """

    def stop(self) -> None:
        """Make reads, folds and deletions raise StoppedError after at most one more period or step.

        Appending and other short operations continue.
        """

    def close(self) -> None:
        """Close the database; raise FilesInDoubtError, and do not close it, if that would write damaged data into its files."""
