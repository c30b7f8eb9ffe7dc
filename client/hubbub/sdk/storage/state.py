"""Client state, rebuilt by replaying journal events.

Reports are numbered when their batch is created: numbers that the replay never sees are counted as `corrupt`.

    formed = acknowledged + queued + quarantined + dropped{quota, age, expired, consent, local, copied, corrupt, refused, clock}
    recorded = chosen + superseded + ignored{consent, invalid, unknown-metric, policy, expired, no-state, clock}

`stood_in` of the formed reports repeat the value reported last, because the budget had no room for another value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from datetime import date
from operator import attrgetter
from typing import Any, assert_never

from hubbub.consent import Consent
from hubbub.metrics.periods import Period
from hubbub.privacy.ledger import Account, EncodedReport, Key
from hubbub.sdk.storage.events import (
    AccountChange,
    AttemptedPeriods,
    Backoff,
    BatchCreation,
    BatchRemoval,
    BatchSnapshot,
    BatchSplit,
    ClientEvent,
    ClockConfirmation,
    ConsentChange,
    Continuation,
    Counters,
    DetachedStart,
    Draft,
    DraftMerge,
    DraftReplacement,
    DraftSnapshot,
    EnrollmentStart,
    Erasure,
    Event,
    FailedUploads,
    GroupLabels,
    IdentityRenewal,
    IgnoredRecordings,
    LedgerKey,
    MachineTags,
    MetricPause,
    QuarantineSnapshot,
    QueuedBatch,
    RequestStart,
    Reschedule,
    ResponseReceipt,
    Runs,
    SentSnapshot,
)
from hubbub.sdk.storage.group_labels import LabelSteps, label_of
from hubbub.sdk.storage.subject_table import SubjectItems, SubjectTable
from hubbub.wire.batch import Batch
from hubbub.wire.json_values import json_value


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounting:
    """Counters of recordings and reports.

    Attributes
    ----------
    recorded
        Recordings.
    waiting
        Recordings that wait in the memory of this process, because another thread or process uses the state. They are not in
        `recorded` yet, and a kill loses them.
    chosen
        Recordings that became a draft.
    superseded
        Further recordings of a draft's period.
    ignored
        Ignored recordings, by reason.
    formed
        Reports that were made.
    stood_in
        Reports that repeat the value reported last, because the budget had no room for another one.
    acknowledged
        Reports that the aggregator stored.
    queued
        Reports that wait to be sent.
    quarantined
        Reports that the aggregator refused.
    dropped
        Reports that were deleted, by reason.
    failed_uploads
        Attempts to send that settled nothing, by reason: "no-response", "unrecognized" (the answer was not an aggregator's), or
        "postponed" (the aggregator asked to send later, for example with 429 or 503).
    damaged_records
        Damaged records of the state. The figures in them are lost.

    Notes
    -----
    Two identities hold after any kill::

        recorded = chosen + superseded + sum(ignored.values())
        formed   = acknowledged + queued + quarantined + sum(dropped.values())
    """

    recorded: int
    waiting: int
    chosen: int
    superseded: int
    ignored: Mapping[str, int]
    formed: int
    stood_in: int
    acknowledged: int
    queued: int
    quarantined: int
    dropped: Mapping[str, int]
    failed_uploads: Mapping[str, int]
    damaged_records: int

    def to_dict(self) -> dict[str, Any]:
        """Return the counters as JSON values.

        Returns
        -------
        dict[str, Any]
            The counters by name.
        """
        fields: dict[str, Any] = json_value(self)
        return fields


DROP_REASONS = ("quota", "age", "expired", "consent", "local", "copied", "corrupt", "refused", "clock")
FAILURE_REASONS = ("no-response", "unrecognized", "postponed")
IGNORE_REASONS = ("consent", "invalid", "unknown-metric", "policy", "expired", "no-state", "clock")
MAX_RUNS = 64
MAX_SENT_BATCHES = 10
_NO_REPORT = EncodedReport(0, b"", b"", b"", None, costs_unit=False, stood_in=False, response=None)


def merge_runs(runs: Runs, start: str, end: str) -> Runs:
    """Return runs of days [from, to), in order, with one more run merged in.

    Of more than `MAX_RUNS` the first two become one, with the gap between them.

    >>> merge_runs([["2026-01-01", "2026-01-03"], ["2026-01-05", "2026-01-06"]], "2026-01-03", "2026-01-04")
    [['2026-01-01', '2026-01-04'], ['2026-01-05', '2026-01-06']]
    """
    apart = [run for run in runs if run[1] < start or end < run[0]]
    touching = [run for run in runs if run not in apart]
    together = [min([start, *(run[0] for run in touching)]), max([end, *(run[1] for run in touching)])]
    merged = sorted([*apart, together])
    return merged if len(merged) <= MAX_RUNS else [[merged[0][0], merged[1][1]], *merged[2:]]


class State:
    """State of one client: what its events add up to.

    `apply` changes it, and after a full replay `account_for_losses` and `restore_sent_periods` correct it. All items of its dictionaries
    are frozen. Two attributes are not saved and belong to others: `earliest_period_end` to `BatchBuilder`, which raises the bound, and
    `erasure_pending` to `Compactor`.
    """

    def __init__(self) -> None:
        self.consent = Consent.OFF
        self.consent_text = ""
        self.consent_time = 0.0
        """First time of this consent level with this text (POSIX seconds); 0 if unknown."""
        self.reports_from = ""
        """Day on which consent became `on`: no report is built of a period that ended before."""
        self.enrollments = 0
        self.secret_tag = ""
        self.ledger_key = ""
        self.machine_tags: tuple[str, ...] = ()
        """Tag of each machine that used the directory under this secret, see `copy_detection.machine_tag`."""
        self.subjects = SubjectTable()
        self.accounts: MutableMapping[Key, Account] = self.subjects.accounts
        self.drafts: MutableMapping[Key, Draft] = self.subjects.drafts
        self.earliest_period_end = date.max
        """Lower bound of the period ends of all accounts: before this day `BatchBuilder.build_due` has no account to check."""
        self.queue: dict[str, QueuedBatch] = {}
        self.quarantine: dict[str, tuple[Batch, str]] = {}
        """Batches that the aggregator refused, with the problem type, by batch id."""
        self.last_sent: dict[str, Batch] = {}
        """The batches sent last, by id, the newest at the end; at most `MAX_SENT_BATCHES`."""
        self.paused_metrics: dict[str, float] = {}
        """End of the pause of a definition (POSIX seconds) by digest."""
        self.held_digests: set[str] = set()
        """Digests of the paused definitions that differ from the aggregator's."""
        self.failed_uploads: Counter[str] = Counter()
        self.failures = 0
        """Failed uploads in a row."""
        self.backoff_until = 0.0
        self.last_error = ""
        self.detached_started_at = 0.0
        self.clock_confirmed_at = 0.0
        """System time when an aggregator's clock last agreed with it (POSIX seconds): the true time is not earlier."""
        self.attempted_periods: dict[str, Runs] = {}
        """Days of the periods that an upload was attempted for, by digest."""
        self.group_labels: dict[str, LabelSteps] = {}
        """Labels of the periods of each definition with a group, by digest."""
        self.formed = 0
        self.acknowledged = 0
        self.damaged = 0
        self.erasure_pending = False
        """Whether records of data that a withdrawal erased are still in the files."""
        self.dropped: Counter[str] = Counter()
        self.chosen = 0
        self.superseded = 0
        self.stood_in = 0
        self.ignored: Counter[str] = Counter()

    def apply(self, event: Event) -> None:
        """Apply one event. The kinds are in the order of their frequency, because each case before costs time."""
        match event:
            case DraftMerge():
                draft = self._draft_of(event)
                count = self._count_recordings(draft, event.num_recordings)
                self.drafts[event.key] = Draft(draft.report, draft.period, count, draft.local, draft.number)
            case DraftReplacement():
                count = self._count_recordings(self._draft_of(event), event.num_recordings)
                self.drafts[event.key] = Draft(event.report, event.period, count, event.local, event.number)
            case AccountChange(account):
                self._change_account(account)
            case BatchCreation():
                self.stood_in += event.stood_in
                self.formed = max(self.formed, event.formed)
                self._add_batch(event.queued)
                for account in event.accounts:
                    self._change_account(account)
            case RequestStart():
                self._start_request(event)
            case ResponseReceipt():
                self._receive_response(event)
            case BatchRemoval():
                self._remove_batch(event)
            case DraftSnapshot():
                self.drafts[event.key] = event.draft
            case BatchSnapshot(queued):
                self._add_batch(queued)
            case Reschedule():
                self._reschedule(event)
            case BatchSplit():
                self.queue.pop(event.batch_id, None)
                for half in event.halves:
                    self._add_batch(half)
            case QuarantineSnapshot():
                self.quarantine[str(event.batch.batch_id)] = (event.batch, event.problem)
            case SentSnapshot(batch):
                self._remember_sent(batch)
            case _:
                self._apply_to_client(event)

    def _apply_to_client(self, event: ClientEvent) -> None:
        match event:
            case AttemptedPeriods():
                self.attempted_periods[event.digest] = event.runs
            case GroupLabels():
                self.group_labels[event.digest] = event.steps
            case IgnoredRecordings(counts):
                self.ignored.update(counts)
            case Backoff():
                self.failures = event.failures
                self.backoff_until = event.until
                self.last_error = event.last_error
            case FailedUploads(counts):
                self.failed_uploads = Counter(counts)
            case ClockConfirmation(time):
                self.clock_confirmed_at = time
            case MetricPause():
                self.paused_metrics[event.digest] = event.until or 0.0  # None: of an unreleased version
                (self.held_digests.add if event.is_held else self.held_digests.discard)(event.digest)
            case DetachedStart(time):
                self.detached_started_at = time
            case ConsentChange():
                self._change_consent(event)
            case EnrollmentStart():
                self._enroll(event)
            case LedgerKey(key):
                self.ledger_key = key
            case MachineTags(tags):
                self.machine_tags = tags
            case Erasure():
                self._end_identity("consent")
                self.paused_metrics.clear()
                self.held_digests.clear()
                self.erasure_pending = True
            case IdentityRenewal():
                self._end_identity("copied")
            case Counters():
                self._restore_counters(event)
            case Continuation():
                pass
            case _:
                assert_never(event)

    def _restore_counters(self, event: Counters) -> None:
        self.formed = max(self.formed, event.formed)
        self.acknowledged, self.damaged = event.acknowledged, event.damaged
        self.chosen, self.superseded, self.stood_in = event.chosen, event.superseded, event.stood_in
        self.dropped, self.ignored = Counter(event.dropped), Counter(event.ignored)

    def _change_consent(self, event: ConsentChange) -> None:
        self.consent, self.consent_text = event.level, event.text
        self.consent_time, self.reports_from = event.time, event.reports_from
        if event.level is Consent.ON:
            self._drop_local()

    def _drop_local(self) -> None:
        """Drop the reports and drafts made under `local`. The event of consent itself does it, so no kill can come between."""
        for batch_id in [batch_id for batch_id, queued in self.queue.items() if queued.local]:
            self.dropped["local"] += len(self.queue.pop(batch_id).batch)
        for key in [key for key, draft in self.drafts.items() if draft.local]:
            del self.drafts[key]

    def _enroll(self, event: EnrollmentStart) -> None:
        if self.enrollments not in (0, event.number):
            for key, draft in self.drafts.items():  # made under an earlier secret: the empty report replaces it
                self.drafts[key] = draft._replace(report=draft.report._replace(bits=b"", costs_unit=False), number=b"")
        self.enrollments, self.secret_tag = event.number, event.secret_tag

    def _change_account(self, account: Account) -> None:
        if account.group:  # of an earlier version, which kept the label with the account
            following = str(account.next_period().next())
            self.group_labels[account.digest] = [[account.next_period_start, account.group], [following, account.group]]
            account = account._replace(group="")
        if account.response == account.epoch == account.newest_epoch is not None:
            account = account._replace(newest_epoch=None, response=None)  # the same account, as a replay reads it
        self.accounts[account.key] = account
        self.earliest_period_end = min(self.earliest_period_end, account.period_end())
        draft = self.drafts.get(account.key)
        if draft is not None and draft.period < account.next_period_start:
            del self.drafts[account.key]

    def _draft_of(self, event: DraftMerge | DraftReplacement) -> Draft:
        """Return the draft of the event's period; without one, a draft of no recording."""
        draft = self.subjects.read(event.subject).drafts.get(event.digest)
        return draft if draft is not None and draft.period == event.period else Draft(_NO_REPORT, event.period, 0)

    def _count_recordings(self, draft: Draft, num_recordings: int) -> int:
        """Count the recordings of a draft up to an event, also those of lost events; return the draft's recordings."""
        before, count = draft.num_recordings, max(draft.num_recordings, int(num_recordings))
        if before == 0 and count > 0:
            self.chosen += 1
        self.superseded += max(0, count - max(before, 1))
        return count

    def _add_batch(self, queued: QueuedBatch) -> None:
        self.queue[str(queued.batch.batch_id)] = queued

    def _start_request(self, event: RequestStart) -> None:
        queued = self.queue.get(event.batch_id)
        if queued is None:
            self._skip_sent_period(event.digest, event.period)
            return
        self.queue[event.batch_id] = queued._replace(possibly_delivered=True)
        self._remember_sent(queued.batch)
        sent = Period(date.fromisoformat(event.period), queued.period_kind)
        self._add_attempted(event.digest, str(sent), str(sent.next()))

    def _skip_sent_period(self, digest: str, period: str) -> None:
        """Skip a period in all accounts: the event that created its batch is lost, and the batch was sent."""
        for key, account in self.accounts.items():
            if account.digest == digest and account.next_period_start <= period:
                following = str(Period(date.fromisoformat(period), account.period).next())
                self.accounts[key] = account._replace(next_period_start=following)
                self._add_attempted(digest, period, following)
                self.drafts.pop(key, None)

    def _add_attempted(self, digest: str, start: str, end: str) -> None:
        self.attempted_periods[digest] = merge_runs(self.attempted_periods.get(digest, []), start, end)

    def _receive_response(self, event: ResponseReceipt) -> None:
        queued = self.queue.get(event.batch_id)
        if queued is not None:
            self.queue[event.batch_id] = queued._replace(possibly_delivered=event.possibly_delivered)
            if not event.request_sent and not event.possibly_delivered:
                self.last_sent.pop(event.batch_id, None)

    def _reschedule(self, event: Reschedule) -> None:
        for batch_id, time in event.send_at.items():
            if batch_id in self.queue:
                queued = self.queue[batch_id]
                self.queue[batch_id] = queued._replace(send_at=time, rescheduled=event.overdue)

    def _remove_batch(self, event: BatchRemoval) -> None:
        queued = self.queue.pop(event.batch_id, None)
        if queued is None:
            return
        match event.reason:
            case "acknowledged":
                self.acknowledged += len(queued.batch)
            case "quarantined":
                self.quarantine[event.batch_id] = (queued.batch, event.problem)
            case reason:
                self.dropped[reason] += len(queued.batch)

    def _remember_sent(self, batch: Batch) -> None:
        self.last_sent.pop(str(batch.batch_id), None)
        self.last_sent[str(batch.batch_id)] = batch
        while len(self.last_sent) > MAX_SENT_BATCHES:
            del self.last_sent[next(iter(self.last_sent))]

    def _end_identity(self, reason: str) -> None:
        """Drop everything that was made under the secret; keep the ledger."""
        self.dropped[reason] += self.queued_reports + self.quarantined_reports
        self.queue.clear()
        self.quarantine.clear()
        self.last_sent.clear()
        self.machine_tags = ()
        self.secret_tag = ""
        self.group_labels.clear()
        self.subjects.replace_all(_without_secret)

    def was_attempted(self, digest: str, period: str) -> bool:
        """Return whether an upload of this definition and period may ever have been sent."""
        return any(start <= period < end for start, end in self.attempted_periods.get(digest, ()))

    def group_label(self, digest: str, period: str) -> str:
        """Return the label of a definition's period; "" if it has none."""
        steps = self.group_labels.get(digest)
        return label_of(steps, period) if steps else ""

    def unknown_metrics(self) -> list[str]:
        """Return the names of the metrics with queued reports that the aggregator does not have."""
        batches = (queued.batch for queued in self.queue.values() if queued.batch.digest not in self.held_digests)
        return sorted({batch.metric for batch in batches if self.paused_metrics.get(batch.digest)})

    def held_metrics(self) -> list[str]:
        """Return the names of the metrics with queued reports whose definition differs from the aggregator's."""
        batches = (queued.batch for queued in self.queue.values())
        return sorted({batch.metric for batch in batches if batch.digest in self.held_digests})

    @property
    def queued_reports(self) -> int:
        """Number of reports in queued batches."""
        return sum(len(queued.batch) for queued in self.queue.values())

    @property
    def quarantined_reports(self) -> int:
        """Number of reports in batches that the aggregator refused, kept for the developer."""
        return sum(len(batch) for batch, _ in self.quarantine.values())

    def account_for_losses(self, damaged: int) -> None:
        """After a full replay: count the damaged records, and the formed reports that are nowhere any more as `corrupt`."""
        self.damaged += damaged
        known = self.acknowledged + self.queued_reports + self.quarantined_reports + self.dropped.total()
        self.formed = max(self.formed, known)
        self.dropped["corrupt"] += self.formed - known

    @property
    def consent_identity(self) -> tuple[Consent, str]:
        """Level of consent and tag of the secret. A withdrawal changes it for good, because the next consent has a new secret."""
        return self.consent, self.secret_tag

    def consent_event(self) -> ConsentChange:
        """Return the event of the current consent."""
        return ConsentChange(self.consent, self.consent_text, self.consent_time, self.reports_from)

    def restore_sent_periods(self, sent: dict[str, Runs]) -> None:
        """After a full replay: add sent days that no event mentions, because records of the journal were lost.

        Accounts skip these days, as they do after a clock error.
        """
        for digest, runs in sent.items():
            known = self.attempted_periods.get(digest, [])
            lost = [run for run in runs if not any(start <= run[0] and run[1] <= end for start, end in known)]
            for start, end in lost:
                self._add_attempted(digest, start, end)
            for key, account in self.accounts.items():
                if lost and account.digest == digest:
                    before = max(account.replanned_before, lost[-1][1])
                    self.accounts[key] = account._replace(replanned_before=before)

    def accounts_of(self, subject: str) -> list[Account]:
        """Return the accounts of one subject, of every definition that it ever had."""
        return sorted(self.subjects.read(subject).accounts.values(), key=attrgetter("digest"))

    def spent(self, subject: str) -> float:
        """Return the epsilon of one subject over all its definitions, with the cost of its drafts."""
        spent = 0.0
        for account in self.accounts_of(subject):
            draft = self.drafts.get(account.key)
            will_be_sent = draft is not None and draft.report.costs_unit and not draft.local
            spent += account.spent + (account.epsilon_per_unit if will_be_sent else 0.0)
        return spent

    def reserved(self, subject: str) -> float:
        """Return the epsilon that is reserved for one subject's metrics, spent or not."""
        return sum(account.reserved_epsilon for account in self.accounts_of(subject))

    def accounting(self) -> Accounting:
        """Return the counters. Both identities of the module's docstring hold between them."""
        return Accounting(
            recorded=self.chosen + self.superseded + self.ignored.total(),
            waiting=0,
            chosen=self.chosen,
            superseded=self.superseded,
            ignored={reason: self.ignored[reason] for reason in IGNORE_REASONS},
            formed=self.formed,
            stood_in=self.stood_in,
            acknowledged=self.acknowledged,
            queued=self.queued_reports,
            quarantined=self.quarantined_reports,
            dropped={reason: self.dropped[reason] for reason in DROP_REASONS},
            failed_uploads={reason: self.failed_uploads[reason] for reason in FAILURE_REASONS},
            damaged_records=self.damaged,
        )


def _without_secret(items: SubjectItems) -> SubjectItems:
    """Return what is left of a subject after the end of an identity: its accounts, without what the secret made."""
    accounts = {
        digest: account._replace(sealed=b"", tag=b"", tags=(), epoch=None) for digest, account in items.accounts.items()
    }
    return SubjectItems(accounts, drafts={})
