"""What any store of reports promises; the database behind it is somebody else's idea."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Protocol

from hubbub.wire.batch import Batch
from hubbub_aggregator.store.clock_state import StoredClock
from hubbub_aggregator.store.period_figures import PeriodFigures, StoredFigures, VersionTotals
from hubbub_aggregator.store.tokens import Token


class AppendResult(Enum):
    """What became of a batch."""

    STORED = "stored"
    DUPLICATE = "duplicate"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class StoredPeriod:
    """What is stored of one version of a metric and one period, or its oldest part, at one moment.

    revision : how often segments were folded into the summary     summary : the bytes of its file; None: none yet
    segments : ids of the segments not yet folded, and their reports one after the other as (cohorts, rows)
    smallest : fewest reports in one of the segments; 0: there is none
    """

    digest: str
    period: str
    revision: int
    summary: bytes | None
    segments: tuple[int, ...]
    cohorts: bytes
    rows: bytes
    smallest: int


@dataclass(frozen=True, slots=True)
class StoredReports:
    """The reports that are stored of a metric version, retained or not folded yet, at one moment.

    periods : those that they are of
    blocks  : yields them as (cohorts, rows), a part of one period at a time; each call yields the same
    """

    periods: tuple[str, ...]
    num_reports: int
    blocks: Callable[[], Iterator[tuple[bytes, bytes]]]


class Store(Protocol):
    """Reports, durable and counted once. Every method may raise StoreError; then nothing has changed.

    A batch's id is its own within its metric version and period, and lives as long as they do: a retry sends the
    same bytes, so the same three.
    """

    def append(self, batches: Sequence[Batch]) -> list[AppendResult]:
        """Store whole batches in one durable transaction, one segment a metric version and period.

        A batch whose id is stored already, or came earlier among these, is a duplicate; one whose period has been
        closed here is not stored either. Batches must fit their metric.
        """

    def contains(self, batch: Batch) -> bool:
        """Say whether this batch's id is stored."""

    def read(
        self, digest: str, periods: Collection[str] | None = None, max_reports: int | None = None
    ) -> Iterator[StoredPeriod]:
        """Yield what is stored of a metric version, period by period (default: all), all of it as of one moment.

        max_reports : stop reading a period's segments once they have so many reports
        """

    def unfolded(self, digest: str) -> list[str]:
        """Return the periods that have segments."""

    def fold(
        self, holding: StoredPeriod, summary: bytes, retain: bool = False, figures: PeriodFigures | None = None
    ) -> bool:
        """Put a summary of the holding's summary and segments in the place of both, in one transaction.

        retain  : keep the reports of the segments beside the summary they are in, sorted
        figures : of the summary; None: `compute_figures` does it later

        Returns False, and changes nothing, if another fold was first.
        """

    def reports(self, digest: str, periods: Collection[str]) -> AbstractContextManager[StoredReports]:
        """Give the reports of these periods, all of them as of one moment, as long as the context lasts."""

    def periods_with_reports(self, digest: str) -> list[str]:
        """Return the periods whose reports are retained, or not folded yet."""

    def periods_retained(self) -> list[tuple[str, str]]:
        """Return the digest and period of everything that has retained reports."""

    def drop_reports(self, digest: str, period: str, between: Callable[[], None] = ...) -> None:
        """Drop a period's retained reports, and nothing of what they were counted into.

        between : called between two steps, while no transaction is open; each step drops a bounded number of rows
        """

    def smallest_segment(self, digest: str, period: str) -> int | None:
        """Return how many reports were in the smallest commit whose reports are held; None: none are.

        Whoever sees the store knows of each report that it was one of at least so many.
        """

    def version_totals(self) -> dict[str, VersionTotals]:
        """Return the stored figures of each metric version, by digest."""

    def period_rows(self, digests: Collection[str]) -> list[StoredFigures]:
        """Return the stored figures of each period of these metric versions, in the order of the periods."""

    def unfolded_reports(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Return the number of segments and of reports that are not folded yet, by digest and period."""

    def implausible_periods(self) -> dict[tuple[str, str], int]:
        """Return the number of periods that failed an implausibility test, by digest and kind of test."""

    def stale_figures(self) -> list[tuple[str, str, int]]:
        """Return the digest, period and revision of each summary without figures of its own, newest periods first."""

    def put_figures(self, rows: Sequence[StoredFigures]) -> None:
        """Store figures, except of summaries that have another revision by now."""

    def segment_ids(self) -> tuple[int, int] | None:
        """Return the smallest and the largest id of the segments; None: there is no segment."""

    def last_backup(self) -> int | None:
        """Return the time of the last complete backup, in seconds since 1970; None: there was none."""

    def open_periods(self) -> list[tuple[str, str]]:
        """Return the digest and period of whatever has reports and is not closed."""

    def metric_of(self, digest: str) -> str | None:
        """Return the name under which a metric version's reports are stored; None: there are none."""

    def close_period(self, digest: str, period: str, between: Callable[[], None] = ...) -> None:
        """Take no more reports of a period, ever, and drop its batch ids; for `between` see `drop_reports`.

        What an interrupted call has left is dropped by the next one.
        """

    def half_closed_periods(self) -> list[tuple[str, str]]:
        """Return the digest and period of whatever is closed and still has batch ids."""

    def purge(self, digest: str, period: str, between: Callable[[], None] = ...) -> None:
        """Drop all that is stored of a closed period but that it is closed; for `between` see `drop_reports`."""

    def closed_periods(self, digest: str) -> list[str]:
        """Return the closed periods of a metric version that are not purged."""

    def add_refusals(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Add to the counters of (metric, reason)."""

    def refusals(self) -> dict[tuple[str, str], int]:
        """Return the counters of (metric, reason)."""

    def segments_waiting(self) -> int:
        """Return how many segments are not folded yet."""

    def add_token(self, token: Token, hashed: bytes) -> bool:
        """Store a token; False, and nothing, if there is one of this name."""

    def token(self, hashed: bytes) -> Token | None:
        """Return the token with this hash."""

    def tokens(self) -> list[Token]:
        """Return all tokens, by name."""

    def rotate_token(self, token: Token, hashed: bytes) -> bool:
        """Give a token a new secret, creation and expiry date, and end its sessions; False if there is none of this name."""

    def record_token_use(self, hashed: bytes, today: date) -> None:
        """Store that the token with this hash was used on this day."""

    def revoke_token(self, name: str) -> bool:
        """Drop a token; False if there is none of this name."""

    def add_session(self, hashed: bytes, token: str, expires: int, now: int) -> bool:
        """Store a session of a token, and drop those that are over; False, and nothing, if there is no such token.

        It ends at `expires`, in seconds since 1970, or with its token.
        """

    def session(self, hashed: bytes, now: int) -> Token | None:
        """Return the token that a session with this hash stands for, if it is not over."""

    def end_session(self, hashed: bytes) -> None:
        """Drop a session, if there is one with this hash."""

    def require_unmoved(self) -> None:
        """Raise DatabaseMovedError if what is stored now would not be found again after a restart."""

    def wall_clock(self) -> float:
        """Return the wall clock that all replicas share, in seconds since 1970: on PostgreSQL the server's."""

    def clock(self) -> StoredClock | None:
        """Return the clock's saved state; None: none was saved yet."""

    def save_clock(self, new: StoredClock, replaces: int | None) -> bool:
        """Save a state in the place of one of generation `replaces` (None: of none); False, and nothing, if it is another."""

    def probe(self) -> None:
        """Write something that means nothing, durably: raises StoreError if that cannot be done."""

    def stop(self) -> None:
        """From now on let reads, folds, closing and dropping raise StoppedError after one more period or step.

        Appending and what else is short goes on.
        """

    def close(self) -> None:
        """Let go of the database."""
