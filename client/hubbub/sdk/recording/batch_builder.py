"""Build batches: one report for each subject, metric and finished period, even if nothing was recorded.

Exception: an account of a metric with `hold` or f = 0 sends no more reports once its share of the budget is spent.

A report has the label of its period, see `group_labels.py`: `note_run` fixes it, and no recording does.

When a period has ended, its draft, or an empty report, becomes part of a batch, once. One journal event holds the batch with its id and
the accounts that it charges. Call every method inside `with journal`.
"""

from __future__ import annotations

from array import array
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from hubbub.consent import Consent
from hubbub.encoding.secret import Secret
from hubbub.metrics.definitions import Definitions
from hubbub.metrics.metric import Metric, has_expired
from hubbub.metrics.periods import Period, PeriodKind, from_timestamp, midnight
from hubbub.number_checks import check_integer
from hubbub.privacy.ledger import Account, EncodedReport, Key
from hubbub.randomness import RandomBytes, draw, uniform
from hubbub.sdk.recording.enrollment import ACCOUNTS_PER_SLICE, Enrollment
from hubbub.sdk.recording.subject_encoders import SubjectEncoders
from hubbub.sdk.runtime.clock import CLOCK_TOLERANCE, CurrentPeriod, PeriodClock, is_plausible
from hubbub.sdk.runtime.safe_logging import OncePerKey, log_when_unlocked
from hubbub.sdk.storage.events import AccountChange, BatchCreation, BatchRemoval, GroupLabels, QueuedBatch
from hubbub.sdk.storage.group_labels import after_run
from hubbub.sdk.storage.journal import Journal
from hubbub.sdk.storage.state import State
from hubbub.wire.batch import Batch, new_batch_id

MAX_BATCH_AGE = timedelta(days=28)
"""A batch is sent until this long after the end of its period: two days less than the aggregator accepts it."""

LONGEST_SPREAD = MAX_BATCH_AGE / 2
"""Batches of a month leave within this time after it: up to its end, an app that runs once a week would lose an eighth of them."""

LATE_WITHIN_SECONDS = 3600.0
"""A batch whose time passed before it was made, or while nothing ran, is sent within this time, so that the reports of one
person do not all leave together."""

_MAX_PLANNED_DAYS = 40
"""The next period of every account ends within this many days, unless the clock was wrong once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on queued batches. Beyond them the oldest batches are dropped and counted as `quota`.

    Parameters
    ----------
    max_reports
        Number of reports.
    max_bytes
        Approximate number of bytes on disk.

    Raises
    ------
    ParameterError
        A limit is not an integer above 0.
    """

    max_reports: int = 10_000
    max_bytes: int = 4 << 20

    def __post_init__(self) -> None:
        for name in self.__slots__:
            check_integer(name, getattr(self, name), 1, hint="leave it out for the default")


class BatchBuilder:
    """Builds the batches of finished periods, and discards batches beyond the limits.

    notes_runs : whether this process was started, and not forked: only then does it fix labels
    """

    def __init__(
        self,
        journal: Journal,
        definitions: Definitions,
        encoders: SubjectEncoders,
        enrollment: Enrollment,
        clock: PeriodClock,
        *,
        labels: Mapping[str, str],
        limits: Limits,
        random_bytes: RandomBytes,
        notes_runs: bool,
    ) -> None:
        self._journal = journal
        self._definitions = definitions
        self._encoders = encoders
        self._enrollment = enrollment
        self._clock = clock
        self._labels = labels
        self._limits = limits
        self._random_bytes = random_bytes
        self._subjects: list[str] = []
        self._unchecked = array("Q")
        """Accounts left to check: number of the subject * number of metrics + number of the metric."""
        self._digests = [metric.digest for metric in definitions.values()]
        self._earliest_end = date.max
        self._once = OncePerKey()
        self.notes_runs = notes_runs

    def note_run(self, state: State, *, is_start: bool = False) -> None:
        """Fix the label of each current period that no run of the app has reached.

        is_start : whether the app was started, or consent given: later periods without a run have its label

        Recordings fix no label. A child of a fork does not either, because only a recording starts its thread.
        """
        if not self.notes_runs or self._is_clock_behind(state):
            return
        changed = []
        for metric in self._definitions.values():
            period = self._clock.current(metric.period).period
            if metric.group is None or has_expired(metric, period.start):
                continue
            before = state.group_labels.get(metric.digest, [])
            steps = after_run(before, period, metric.group_value(self._labels), is_start=is_start)
            if steps != before:
                changed.append(GroupLabels(metric.digest, steps))
        if changed:
            self._journal.write(*changed)

    def build_due(self, state: State) -> bool:
        """Build batches of one slice of the accounts, and discard batches beyond the limits; return whether accounts are left.

        One slice a call: a recording waits for the journal's lock only while a slice is built.
        """
        secret = self._encoders.secret(state)
        if secret is None or not is_plausible(self._clock.now()):
            return False
        self.note_run(state)
        if self._enrollment.enroll_others(state):
            return True
        today = self._clock.now().date()
        self._clock.current(PeriodKind.DAY)  # notices that the clock went back
        far = date.max.toordinal() > state.earliest_period_end.toordinal() > today.toordinal() + _MAX_PLANNED_DAYS
        if not self._unchecked and (self._clock.went_back or far or state.earliest_period_end <= today):
            self._clock.went_back = False
            self._subjects = list(state.subjects)
            self._unchecked = array("Q", range(len(self._subjects) * len(self._definitions)))
            self._earliest_end = state.earliest_period_end = date.max
        # drawn, so that no group of accounts shares its batches every day
        keys = [self._key(number) for number in draw(self._unchecked, ACCOUNTS_PER_SLICE, self._random_bytes)]
        self.replan_after_clock_error(state, filter(None, map(state.accounts.get, keys)))
        due = [account.key for account in self._current_accounts(state, keys) if account.period_end() <= today]
        self._build(state, secret, due, today)
        if keys:
            ends = (account.period_end() for account in self._current_accounts(state, keys))
            self._earliest_end = min(self._earliest_end, min(ends, default=date.max))
            if not self._unchecked:
                self._subjects = []
                state.earliest_period_end = min(state.earliest_period_end, self._earliest_end)
        self._discard_batches(state)
        return bool(self._unchecked)

    def _key(self, number: int) -> Key:
        subject, metric = divmod(number, len(self._definitions))
        return self._subjects[subject], self._digests[metric]

    def catch_up(self, state: State, account: Account, current: CurrentPeriod) -> Account:
        """Bring an account to the period of a recording; return the changed account.

        current : the current period, or that of a recording that has waited
        """
        if account.next_period_start > current.latest:
            self.replan_after_clock_error(state, [account])
            account = state.accounts[account.key]
        if account.next_period_start < current.name:
            self._build_for_account(state, account, current.period.start)
            account = state.accounts[account.key]
        return account

    def _build_for_account(self, state: State, account: Account, until: date) -> None:
        secret = self._encoders.secret(state)
        if secret is not None:
            self._build(state, secret, [account.key], until)
            self._discard_batches(state)

    def build_all(self, state: State, *, include_open_periods: bool = False) -> None:
        """Build the batches of all finished periods.

        include_open_periods : also of the current periods, as if they had ended
        """
        secret = None if state.consent is Consent.OFF else self._encoders.secret(state)
        if secret is None or not is_plausible(self._clock.now()):
            return
        self.note_run(state)
        while self._enrollment.enroll_others(state):
            pass
        if include_open_periods:
            keys = [account.key for account in self._current_accounts(state, state.accounts)]
            self._build(state, secret, keys, date.max)
        while self.build_due(state):
            pass

    def next_period_end(self, state: State) -> datetime | None:
        """Return the earliest end of an account's next period; None without accounts."""
        if state.earliest_period_end == date.max:
            return None
        return midnight(state.earliest_period_end)

    def replan_after_clock_error(self, state: State, accounts: Iterable[Account]) -> None:
        """Move accounts that a wrong clock moved far into the future back to the current period.

        No period is reported twice: periods with a queued batch or an attempted upload are skipped later. Spent epsilon stays spent.
        If an aggregator confirmed a later date, the clock is wrong now, and no account changes.
        """
        far = [
            account for account in accounts if account.next_period_start > self._clock.current(account.period).latest
        ]
        if not far:
            return
        if self._is_clock_behind(state):
            self._once.log(
                "The system clock is earlier than a time the aggregator confirmed. No reports are created until the clock is correct."
            )
            return
        planned = max(account.next_period_start for account in far)
        self._once.log(
            f"the clock was ahead: the next report was planned for {planned}. It is planned again from the current date; keep the clock "
            "synchronized (ntp, chrony)"
        )
        self._journal.write(
            *(
                AccountChange(
                    account._replace(
                        next_period_start=self._clock.current(account.period).name,
                        replanned_before=max(account.replanned_before, account.next_period_start),
                    )
                )
                for account in far
            )
        )

    def _is_clock_behind(self, state: State) -> bool:
        """Whether an aggregator confirmed a later date than the clock's."""
        return self._clock.now().timestamp() < state.clock_confirmed_at - CLOCK_TOLERANCE.total_seconds()

    def _warn_stood_in(self, reports: Sequence[tuple[EncodedReport, Account]]) -> None:
        """Log the first report of each definition that repeats the value reported last."""
        account = next(account for report, account in reports if report.stood_in)
        if self._once(account.digest):
            log_when_unlocked(
                "%s: the budget has room for %d values (epsilon = %.3f), and a value beyond them was recorded. The report repeats the "
                "value reported last, and accounting() counts it as `stood_in`. Many such reports bias the estimates: raise "
                "epsilon_enrollment in Policy, or set `hold` in the definition.",
                account.metric,
                account.reserved_units,
                account.reserved_epsilon,
            )

    def _current_accounts(self, state: State, keys: Iterable[Key]) -> Iterator[Account]:
        accounts = (state.accounts[key] for key in keys if key in state.accounts)
        return (account for account in accounts if self._is_current(state, account, account.next_period()))

    def _is_current(self, state: State, account: Account, period: Period) -> bool:
        metric = self._definitions.get(account.metric)
        return (
            metric is not None
            and metric.digest == account.digest
            and not account.refused
            and account.enrollment == state.enrollments
            and not has_expired(metric, period.start)
        )

    def _build(self, state: State, secret: Secret, keys: Sequence[Key], until: date) -> None:
        """Write one event for each batch of the periods of these accounts that end by `until`."""
        by_batch: dict[tuple[str, str], list[tuple[EncodedReport, Account]]] = {}
        without_report: list[AccountChange] = []
        accounts = [state.accounts[key] for key in keys if key in state.accounts]
        queued: set[tuple[str, str]] = set()
        if any(account.replanned_before for account in accounts):
            queued = {(waiting.batch.digest, waiting.batch.period) for waiting in state.queue.values()}
        for saved in accounts:
            written = account = saved
            end = min(until, self._clock.current(saved.period).period.next().start)
            for period, report, after in self._reports(state, secret, saved, end, queued):
                if report is not None:
                    by_batch.setdefault((period, account.digest), []).append((report, after))
                    written = after
                account = after
            if account.next_period_start != written.next_period_start:  # the last periods have no report
                without_report.append(AccountChange(account))
        events: list[BatchCreation] = []
        formed = state.formed
        for (period, _), reports in sorted(by_batch.items(), key=lambda item: item[0][0]):
            formed += len(reports)
            local = state.consent is Consent.LOCAL
            group = self._label(state, self._definitions[reports[0][1].metric], period)
            events.append(
                _batch_created(period, group, reports, formed, self._clock.now(), self._random_bytes, local=local)
            )
            if events[-1].stood_in:
                self._warn_stood_in(reports)
        if events or without_report:
            self._journal.write(*events, *without_report)

    def _label(self, state: State, metric: Metric, period: str) -> str:
        """Return the label of a period; that of this run if another process gave consent and no run was noted yet."""
        return (
            "" if metric.group is None else state.group_label(metric.digest, period) or metric.group_value(self._labels)
        )

    def _reports(
        self, state: State, secret: Secret, account: Account, until: date, queued: Container[tuple[str, str]]
    ) -> Iterator[tuple[str, EncodedReport | None, Account]]:
        """Move an account past each finished period; yield the period, its report if it has one, and the account afterwards.

        Under consent `local` the ledger is not charged, because these reports are never sent.
        """
        metric, charged = self._definitions.get(account.metric), state.consent is not Consent.LOCAL
        oldest = date.fromordinal(max(1, self._clock.now().toordinal() - MAX_BATCH_AGE.days))
        start = max(account.next_period_start, str(Period.containing(account.period, oldest)))
        if start < state.reports_from <= str(self._clock.now().date()):  # a later day was set under a wrong clock
            start = max(start, str(Period.containing(account.period, date.fromisoformat(state.reports_from))))
        if start != account.next_period_start:
            account = account._replace(next_period_start=start)
            yield start, None, account
        while (period := account.next_period()).next().start <= until:
            if metric is None or not self._is_current(state, account, period):
                return  # not even a draft: its report would reveal that a value was recorded
            name = account.next_period_start
            account = account._replace(next_period_start=str(period.next()))
            if name < account.replanned_before and (
                (account.digest, name) in queued or state.was_attempted(account.digest, name)
            ):
                yield name, None, account
                continue
            draft = state.drafts.get(account.key)
            report: EncodedReport | None = None
            if draft is not None and draft.period == name and draft.report.bits and not (draft.local and charged):
                report = account.repriced(draft.report) if charged else draft.report
            if report is None:
                report = self._encoders.encoder(metric, account.subject, secret).encode_period(account, None, name)
            if report is not None and charged:
                account = account.charge(report)
            yield name, report, account

    def _discard_batches(self, state: State) -> None:
        discarded = find_discarded(state, self._definitions, self._limits, self._clock.now())
        if discarded:
            self._journal.write(*(BatchRemoval(batch_id, reason) for batch_id, reason in discarded.items()))


def _batch_created(
    period: str,
    group: str,
    reports: list[tuple[EncodedReport, Account]],
    formed: int,
    now: datetime,
    random_bytes: RandomBytes,
    *,
    local: bool,
) -> BatchCreation:
    """Event of a new batch, to be sent at a random time of the period after its own, of a month's within LONGEST_SPREAD, or within the hour if that has passed.

    Its rows are shuffled. In the order of the accounts, row i would be the same person on every day and for every metric.
    """
    account, rows = reports[0][1], draw([report for report, _ in reports], len(reports), random_bytes)
    batch = Batch(
        new_batch_id(random_bytes),
        account.metric,
        account.digest,
        period,
        bytes(report.cohort for report in rows),
        b"".join(report.bits for report in rows),
        group,
    )
    following = Period(date.fromisoformat(period), account.period).next()
    end, following_end = midnight(following.start), midnight(following.next().start)
    send_at = end.timestamp() + uniform(random_bytes) * min(following_end - end, LONGEST_SPREAD).total_seconds()
    is_late = send_at < now.timestamp()
    if is_late:
        send_at = now.timestamp() + uniform(random_bytes) * LATE_WITHIN_SECONDS
    return BatchCreation(
        formed,
        QueuedBatch(batch, account.period, send_at, rescheduled=is_late, local=local),
        accounts=tuple(after for _, after in reports),
        stood_in=sum(report.stood_in for report, _ in reports),
    )


def find_discarded(state: State, definitions: Definitions, limits: Limits, now: datetime) -> dict[str, str]:
    """Return the batches that are not sent any more: the reason `age`, `expired` or `quota` by batch id."""
    reasons, kept = {}, []
    certain = min(now, from_timestamp(state.clock_confirmed_at))  # a clock that is ahead discards no batch
    for batch_id, queued in state.queue.items():
        metric = definitions.version(queued.batch.metric, queued.batch.digest)
        if certain >= queued.period_end() + MAX_BATCH_AGE:
            reasons[batch_id] = "age"
        elif metric is not None and has_expired(metric, now.date()):
            reasons[batch_id] = "expired"
        else:
            kept.append(queued.batch)
    reports, size = sum(map(len, kept)), sum(map(_size_bytes, kept))
    for batch in sorted(kept, key=lambda batch: batch.period):
        if reports <= limits.max_reports and size <= limits.max_bytes:
            break
        reasons[str(batch.batch_id)] = "quota"
        reports -= len(batch)
        size -= _size_bytes(batch)
    return reasons


def _size_bytes(batch: Batch) -> int:
    return 512 + 2 * len(batch.rows) + 2 * len(batch.cohorts)
