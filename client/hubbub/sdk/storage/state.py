"""Client state, rebuilt by replaying journal events.

An event holds new values, such as the recordings of a draft or the units of an account. A later event of its kind repairs a lost one.
Reports are numbered when their batch is created: numbers that the replay never sees are counted as `corrupt`.

    formed = acknowledged + queued + quarantined + dropped{quota, age, expired, consent, local, copied, corrupt, refused, clock}
    recorded = chosen + superseded + ignored{consent, invalid, unknown-metric, policy, expired, no-state}

`stood_in` of the formed reports repeat the value reported last, because the budget had no room for another value.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Self

from hubbub.consent import Consent
from hubbub.metrics.periods import Period, PeriodKind, midnight
from hubbub.privacy.ledger import Account, EncodedReport, Key
from hubbub.sdk.storage.accounting import Accounting
from hubbub.sdk.storage.events import Event
from hubbub.wire.batch import Batch

DROP_REASONS = ("quota", "age", "expired", "consent", "local", "copied", "corrupt", "refused", "clock")
IGNORE_REASONS = ("consent", "invalid", "unknown-metric", "policy", "expired", "no-state")
MAX_RUNS = 64
MAX_SENT_BATCHES = 10


@dataclass(slots=True)
class Draft(EncodedReport):
    """Report of the current period, if the period ended now.

    num_recordings : recordings of the period that the draft was sampled from
    local          : whether it was recorded under consent `local`, so that it is never sent
    number         : sum, maximum or last of the recorded numbers, sealed; empty for other metrics
    """

    period: str
    num_recordings: int
    local: bool = False
    number: bytes = b""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a snapshot holds them."""
        fields = EncodedReport.to_dict(self)
        fields |= {"period": self.period, "num_recordings": self.num_recordings, "local": self.local}
        return fields | {"number": self.number.hex()} if self.number else fields

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Return the draft of the fields that `to_dict` returned."""
        draft = super(Draft, cls).from_dict({name: each for name, each in fields.items() if name != "number"})
        draft.number = bytes.fromhex(fields.get("number", ""))
        return draft


@dataclass(slots=True)
class QueuedBatch:
    """A batch that waits to be sent and acknowledged.

    send_at            : time of the upload, POSIX seconds
    possibly_delivered : whether the aggregator may have stored it already
    rescheduled        : whether it got a second time, because the app did not run at the first one; see `schedule.reschedule_overdue`
    local              : whether it was built under consent `local`, so that it is never sent
    """

    batch: Batch
    period_kind: PeriodKind
    send_at: float
    possibly_delivered: bool = False
    rescheduled: bool = False
    local: bool = False

    def period_end(self) -> datetime:
        """Return the end of the batch's period."""
        return midnight(Period(date.fromisoformat(self.batch.period), self.period_kind).next().start)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as the journal holds them: JSON, with bytes in hex."""
        return {
            "batch": encode_batch(self.batch),
            "period_kind": self.period_kind,
            "send_at": self.send_at,
            "possibly_delivered": self.possibly_delivered,
            "rescheduled": self.rescheduled,
            "local": self.local,
        }

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> QueuedBatch:
        """Return the queued batch of the fields that `to_dict` returned."""
        decoded = {"batch": decode_batch(fields["batch"]), "period_kind": PeriodKind(fields["period_kind"])}
        return cls(**{**fields, **decoded})


def account_event(account: Account) -> Event:
    """Return the event that sets an account."""
    return {"event": "account", "account": account.to_dict()}


def encode_batch(batch: Batch) -> dict[str, Any]:
    """Return a batch as the journal holds it: JSON, with bytes in hex."""
    return {
        "batch_id": str(batch.batch_id),
        "metric": batch.metric,
        "digest": batch.digest,
        "period": batch.period,
        "cohorts": batch.cohorts.hex(),
        "rows": batch.rows.hex(),
    }


def decode_batch(fields: dict[str, Any]) -> Batch:
    """Return the batch of the fields that `encode_batch` returned."""
    return Batch(
        uuid.UUID(fields["batch_id"]),
        fields["metric"],
        fields["digest"],
        fields["period"],
        bytes.fromhex(fields["cohorts"]),
        bytes.fromhex(fields["rows"]),
    )


def merge_runs(runs: list[list[str]], start: str, end: str) -> list[list[str]]:
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
    """State of one client. Only `apply` and the two corrections after a replay change it."""

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
        self.machine_tags: list[str] = []
        """Tag of each machine that used the directory under this secret, see `machine_id.py`."""
        self.drafts: dict[Key, Draft] = {}
        self.accounts: dict[Key, Account] = {}
        self.digests: dict[str, set[str]] = {}
        """Digests of the accounts of each subject."""
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
        self.failures = 0
        """Failed uploads in a row."""
        self.backoff_until = 0.0
        self.last_error = ""
        self.detached_started_at = 0.0
        self.clock_confirmed_at = 0.0
        """System time when an aggregator's clock last agreed with it (POSIX seconds): the true time is not earlier."""
        self.attempted_periods: dict[str, list[list[str]]] = {}
        """Days of the periods that an upload was attempted for: runs [from, to) in order, by digest."""
        self.formed = 0
        self.acknowledged = 0
        self.damaged = 0
        self.erasure_pending = False
        self.dropped: Counter[str] = Counter()
        self.chosen = 0
        self.superseded = 0
        self.stood_in = 0
        self.ignored: Counter[str] = Counter()

    def apply(self, event: Event) -> None:
        """Apply one event. An unknown kind of event, which a newer version wrote, changes nothing."""
        handler = getattr(self, "_on_" + event["event"], None)
        if handler is not None:
            handler(event)

    def _on_counters(self, event: Event) -> None:
        self.formed = max(self.formed, event["formed"])
        self.acknowledged, self.damaged = event["acknowledged"], event["damaged"]
        self.chosen, self.superseded, self.stood_in = event["chosen"], event["superseded"], event["stood_in"]
        self.dropped, self.ignored = Counter(event["dropped"]), Counter(event["ignored"])

    def _on_consent(self, event: Event) -> None:
        self.consent, self.consent_text = Consent(event["level"]), event["text"]
        self.consent_time, self.reports_from = event["time"], event["reports_from"]
        if self.consent is Consent.ON:
            self._drop_local()

    def _drop_local(self) -> None:
        """Drop the reports and drafts made under `local`. The event of consent itself does it, so no kill can come between."""
        for batch_id in [batch_id for batch_id, queued in self.queue.items() if queued.local]:
            self.dropped["local"] += len(self.queue.pop(batch_id).batch)
        for key in [key for key, draft in self.drafts.items() if draft.local]:
            del self.drafts[key]

    def _on_enrollment(self, event: Event) -> None:
        if self.enrollments not in (0, event["number"]):
            for draft in self.drafts.values():  # made under an earlier secret: the empty report replaces it
                draft.bits, draft.number, draft.costs_unit = b"", b"", False
        self.enrollments, self.secret_tag = event["number"], event["secret_tag"]

    def _on_ledger_key(self, event: Event) -> None:
        self.ledger_key = event["key"]

    def _on_account(self, event: Event) -> None:
        account = Account.from_dict(event["account"])
        self.accounts[account.key] = account
        self.digests.setdefault(account.subject, set()).add(account.digest)
        self.earliest_period_end = min(self.earliest_period_end, account.period_end())
        draft = self.drafts.get(account.key)
        if draft is not None and draft.period < account.next_period_start:
            del self.drafts[account.key]

    def _on_draft_replaced(self, event: Event) -> None:
        report = event["report"]
        self.drafts[event["subject"], event["digest"]] = (
            Draft(  # not by from_dict: this is in every new draft's `record`
                report["cohort"],
                bytes.fromhex(report["bits"]),
                bytes.fromhex(report["tag"]),
                bytes.fromhex(report["sealed"]),
                report["epoch"],
                report["costs_unit"],
                report["stood_in"],
                report["response"],
                event["period"],
                self._count_recordings(event),
                event["local"],
                bytes.fromhex(event.get("number", "")),
            )
        )

    def _on_draft_merged(self, event: Event) -> None:
        count = self._count_recordings(event)
        draft = self.drafts.get((event["subject"], event["digest"]))
        if draft is None or draft.period != event["period"]:
            draft = Draft(0, b"", b"", b"", None, False, False, None, event["period"], count)
            self.drafts[event["subject"], event["digest"]] = draft
        draft.num_recordings = count

    def _on_draft_snapshot(self, event: Event) -> None:
        self.drafts[event["subject"], event["digest"]] = Draft.from_dict(event["draft"])

    def _count_recordings(self, event: Event) -> int:
        """Count the recordings of a draft up to this event, also those of lost events; return the draft's recordings."""
        draft = self.drafts.get((event["subject"], event["digest"]))
        before = draft.num_recordings if draft is not None and draft.period == event["period"] else 0
        count = max(before, int(event["num_recordings"]))
        if before == 0 and count > 0:
            self.chosen += 1
        self.superseded += max(0, count - max(before, 1))
        return count

    def _on_batch_created(self, event: Event) -> None:
        self.stood_in += event["stood_in"]
        self.formed = max(self.formed, event["formed"])
        self._on_batch_snapshot(event)
        for account in event["accounts"]:
            self._on_account({"account": account})

    def _on_batch_snapshot(self, event: Event) -> None:
        queued = QueuedBatch.from_dict(event["queued"])
        self.queue[str(queued.batch.batch_id)] = queued

    def _on_batch_split(self, event: Event) -> None:
        self.queue.pop(event["batch_id"], None)
        for half in event["halves"]:
            self._on_batch_snapshot({"queued": half})

    def _on_request_started(self, event: Event) -> None:
        queued = self.queue.get(event["batch_id"])
        if queued is not None:
            queued.possibly_delivered = True
            self._remember_sent(queued.batch)
            period = Period(date.fromisoformat(event["period"]), queued.period_kind)
            self._add_attempted(event["digest"], str(period), str(period.next()))
        else:
            self._skip_sent_period(event["digest"], event["period"])

    def _skip_sent_period(self, digest: str, period: str) -> None:
        """Skip a period in all accounts: the event that created its batch is lost, and the batch was sent."""
        for key, account in self.accounts.items():
            if account.digest == digest and account.next_period_start <= period:
                account.next_period_start = str(Period(date.fromisoformat(period), account.period).next())
                self._add_attempted(digest, period, account.next_period_start)
                self.drafts.pop(key, None)

    def _add_attempted(self, digest: str, start: str, end: str) -> None:
        self.attempted_periods[digest] = merge_runs(self.attempted_periods.get(digest, []), start, end)

    def _on_response_received(self, event: Event) -> None:
        queued = self.queue.get(event["batch_id"])
        if queued is not None:
            queued.possibly_delivered = event["possibly_delivered"]
            if not event["request_sent"] and not queued.possibly_delivered:
                self.last_sent.pop(event["batch_id"], None)

    def _on_batches_rescheduled(self, event: Event) -> None:
        for batch_id, send_at in event["send_at"].items():
            if batch_id in self.queue:
                queued = self.queue[batch_id]
                queued.send_at, queued.rescheduled = send_at, queued.rescheduled or event["overdue"]

    def _on_batch_removed(self, event: Event) -> None:
        queued = self.queue.pop(event["batch_id"], None)
        if queued is None:
            return
        match event["reason"]:
            case "acknowledged":
                self.acknowledged += len(queued.batch)
            case "quarantined":
                self.quarantine[event["batch_id"]] = (queued.batch, event["problem"])
            case reason:
                self.dropped[reason] += len(queued.batch)

    def _on_quarantine_snapshot(self, event: Event) -> None:
        self.quarantine[event["batch"]["batch_id"]] = (decode_batch(event["batch"]), event["problem"])

    def _on_sent_snapshot(self, event: Event) -> None:
        self._remember_sent(decode_batch(event["batch"]))

    def _remember_sent(self, batch: Batch) -> None:
        self.last_sent.pop(str(batch.batch_id), None)
        self.last_sent[str(batch.batch_id)] = batch
        while len(self.last_sent) > MAX_SENT_BATCHES:
            del self.last_sent[next(iter(self.last_sent))]

    def _on_backoff(self, event: Event) -> None:
        self.failures, self.backoff_until, self.last_error = event["failures"], event["until"], event["last_error"]

    def _on_clock_confirmed(self, event: Event) -> None:
        self.clock_confirmed_at = event["time"]

    def _on_attempted_periods(self, event: Event) -> None:
        self.attempted_periods[event["digest"]] = event["runs"]

    def was_attempted(self, digest: str, period: str) -> bool:
        """Return whether an upload of this definition and period may ever have been sent."""
        return any(start <= period < end for start, end in self.attempted_periods.get(digest, ()))

    def _on_detached_started(self, event: Event) -> None:
        self.detached_started_at = event["time"]

    def unknown_metrics(self) -> list[str]:
        """Return the names of the metrics with queued reports that the aggregator does not have."""
        queued = (each.batch for each in self.queue.values() if each.batch.digest not in self.held_digests)
        return sorted({batch.metric for batch in queued if self.paused_metrics.get(batch.digest)})

    def held_metrics(self) -> list[str]:
        """Return the names of the metrics with queued reports whose definition differs from the aggregator's."""
        queued = (each.batch for each in self.queue.values())
        return sorted({batch.metric for batch in queued if batch.digest in self.held_digests})

    def _on_metric_paused(self, event: Event) -> None:
        digest = event["digest"]
        self.paused_metrics[digest] = event["until"] or 0.0  # None: of an unreleased version
        (self.held_digests.add if event.get("is_held") else self.held_digests.discard)(digest)

    def _on_recordings_ignored(self, event: Event) -> None:
        self.ignored.update(event["counts"])

    def _on_erased(self, _event: Event) -> None:
        """Consent was withdrawn: erase everything but the ledger."""
        self._end_identity("consent")
        self.paused_metrics.clear()
        self.held_digests.clear()
        self.erasure_pending = True

    def _on_identity_renewed(self, _event: Event) -> None:
        """The directory is a copy: the original sends everything that was made under the copied secret."""
        self._end_identity("copied")

    def _on_machine_tags(self, event: Event) -> None:
        self.machine_tags = event["tags"]

    def _end_identity(self, reason: str) -> None:
        """Drop everything that was made under the secret; keep the ledger."""
        self.dropped[reason] += self.queued_reports + self.quarantined_reports
        self.drafts.clear()
        self.queue.clear()
        self.quarantine.clear()
        self.last_sent.clear()
        self.machine_tags = []
        self.secret_tag = ""
        for account in self.accounts.values():
            account.sealed = account.tag = b""
            account.tags, account.epoch = [], None

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

    def consent_event(self) -> Event:
        """Return the event of the current consent."""
        return {
            "event": "consent",
            "level": self.consent,
            "text": self.consent_text,
            "time": self.consent_time,
            "reports_from": self.reports_from,
        }

    def restore_sent_periods(self, sent: dict[str, list[list[str]]]) -> None:
        """After a full replay: add sent days that no event mentions, because records of the journal were lost.

        Accounts skip these days, as they do after a clock error.
        """
        for digest, runs in sent.items():
            known = self.attempted_periods.get(digest, [])
            lost = [run for run in runs if not any(start <= run[0] and run[1] <= end for start, end in known)]
            for start, end in lost:
                self._add_attempted(digest, start, end)
            for account in self.accounts.values():
                if lost and account.digest == digest:
                    account.replanned_before = max(account.replanned_before, lost[-1][1])

    def accounts_of(self, subject: str) -> list[Account]:
        """Return the accounts of one subject, of every definition that it ever had."""
        return [self.accounts[subject, digest] for digest in sorted(self.digests.get(subject, ()))]

    def spent(self, subject: str) -> float:
        """Return the epsilon of one subject over all its definitions, with the cost of its drafts."""
        spent = 0.0
        for account in self.accounts_of(subject):
            draft = self.drafts.get(account.key)
            will_be_sent = draft is not None and draft.costs_unit and not draft.local
            spent += account.spent + (account.epsilon_per_unit if will_be_sent else 0.0)
        return spent

    def reserved(self, subject: str) -> float:
        """Return the epsilon that is reserved for one subject's metrics, spent or not."""
        return sum(account.reserved_epsilon for account in self.accounts_of(subject))

    def accounting(self) -> Accounting:
        """Return the counters. Both identities of the module's docstring hold between them."""
        return Accounting(
            recorded=self.chosen + self.superseded + self.ignored.total(),
            chosen=self.chosen,
            superseded=self.superseded,
            ignored={reason: self.ignored[reason] for reason in IGNORE_REASONS},
            formed=self.formed,
            stood_in=self.stood_in,
            acknowledged=self.acknowledged,
            queued=self.queued_reports,
            quarantined=self.quarantined_reports,
            dropped={reason: self.dropped[reason] for reason in DROP_REASONS},
            damaged_records=self.damaged,
        )
