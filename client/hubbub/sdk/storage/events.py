"""Journal events. `event_codec.py` writes and reads them.

An event holds new values, such as the recordings of a draft or the units of an account. So a later event about the same item repairs a
lost one, and applying an event twice is harmless. Only two counts are added up, and would be too high: `IgnoredRecordings` and
`BatchCreation.stood_in`.

Events are named tuples and not dataclasses, because 28 frozen dataclasses would take 14 ms of `import hubbub`, and these take 2.
"""

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, NamedTuple, Self

from hubbub.consent import Consent
from hubbub.metrics.periods import Period, PeriodKind, midnight
from hubbub.privacy.ledger import Account, EncodedReport, Key
from hubbub.sdk.storage.group_labels import LabelSteps
from hubbub.wire.batch import Batch

JOURNAL, ROTATED, SNAPSHOT = "journal", "journal.earlier", "snapshot"
"""Files of events in a state directory. A start replays the snapshot of the last compaction, the journal that the next snapshot
replaces (it exists during a compaction, and after a kill in one), and the journal of the events since."""

Runs = list[list[str]]
"""Days as runs [from, to) in their order, ISO 8601."""


class Draft(NamedTuple):
    """Report of the current period, if the period ended now.

    num_recordings : recordings of the period that the draft was sampled from
    local          : whether it was recorded under consent `local`, so that it is never sent
    number         : sum, maximum or last of the recorded numbers, sealed; empty for other metrics
    """

    report: EncodedReport
    period: str
    num_recordings: int
    local: bool = False
    number: bytes = b""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a snapshot holds them, those of the report among them."""
        fields = self.report.to_dict()
        fields |= {"period": self.period, "num_recordings": self.num_recordings, "local": self.local}
        return fields | {"number": self.number.hex()} if self.number else fields

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Return the draft of the fields that `to_dict` returned."""
        number = bytes.fromhex(fields.get("number", ""))
        report = EncodedReport.from_dict(fields)
        return cls(report, fields["period"], fields["num_recordings"], fields.get("local", False), number)


class QueuedBatch(NamedTuple):
    """A batch that waits to be sent and acknowledged.

    send_at            : time of the upload, POSIX seconds
    possibly_delivered : whether the aggregator may have stored it already
    rescheduled        : whether it got a second time, because the first one had passed; see `retry_policy.reschedule_overdue`
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
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Return the queued batch of the fields that `to_dict` returned."""
        return cls(
            decode_batch(fields["batch"]),
            PeriodKind(fields["period_kind"]),
            fields["send_at"],
            possibly_delivered=fields.get("possibly_delivered", False),
            rescheduled=fields.get("rescheduled", False),
            local=fields.get("local", False),
        )


def encode_batch(batch: Batch) -> dict[str, Any]:
    """Return a batch as the journal holds it: JSON, with bytes in hex."""
    return {
        "batch_id": str(batch.batch_id),
        "metric": batch.metric,
        "digest": batch.digest,
        "period": batch.period,
        "cohorts": batch.cohorts.hex(),
        "rows": batch.rows.hex(),
        **({"group": batch.group} if batch.group else {}),
    }


def decode_batch(fields: Mapping[str, Any]) -> Batch:
    """Return the batch of the fields that `encode_batch` returned."""
    from uuid import UUID  # imported late, as in `wire.batch.new_batch_id`

    return Batch(
        UUID(fields["batch_id"]),
        fields["metric"],
        fields["digest"],
        fields["period"],
        bytes.fromhex(fields["cohorts"]),
        bytes.fromhex(fields["rows"]),
        fields.get("group", ""),
    )


class DraftMerge(NamedTuple):
    """One more recording, for which the draft stands as it is."""

    subject: str
    digest: str
    period: str
    num_recordings: int

    @property
    def key(self) -> Key:
        """Key of the draft: (subject, digest)."""
        return self.subject, self.digest


class DraftReplacement(NamedTuple):
    """One more recording, which is the draft from now on."""

    subject: str
    digest: str
    period: str
    num_recordings: int
    report: EncodedReport
    local: bool
    number: bytes = b""

    @property
    def key(self) -> Key:
        """Key of the draft: (subject, digest)."""
        return self.subject, self.digest


class DraftSnapshot(NamedTuple):
    """A draft at a compaction."""

    subject: str
    digest: str
    draft: Draft

    @property
    def key(self) -> Key:
        """Key of the draft: (subject, digest)."""
        return self.subject, self.digest


class AccountChange(NamedTuple):
    """An account of the ledger as it is now."""

    account: Account


class BatchCreation(NamedTuple):
    """Reports of a period became a batch, and were charged.

    formed : reports ever formed, with these        stood_in : how many of these repeat the value reported last
    """

    formed: int
    queued: QueuedBatch
    accounts: tuple[Account, ...]
    stood_in: int


class BatchSnapshot(NamedTuple):
    """A queued batch at a compaction."""

    queued: QueuedBatch


class BatchSplit(NamedTuple):
    """A batch was too large, and is sent as two."""

    batch_id: str
    halves: tuple[QueuedBatch, ...]


class RequestStart(NamedTuple):
    """A batch is about to be sent; on disk before its first byte leaves."""

    batch_id: str
    digest: str
    period: str


class ResponseReceipt(NamedTuple):
    """A request has ended."""

    batch_id: str
    possibly_delivered: bool
    request_sent: bool


class Reschedule(NamedTuple):
    """New times for batches (POSIX seconds by batch id); `overdue` if no process ran at the earlier ones."""

    send_at: dict[str, float]
    overdue: bool


class BatchRemoval(NamedTuple):
    """A batch left the queue: `acknowledged`, `quarantined` for a problem type, or a reason of `DROP_REASONS`."""

    batch_id: str
    reason: str
    problem: str = ""


class QuarantineSnapshot(NamedTuple):
    """A quarantined batch at a compaction."""

    batch: Batch
    problem: str


class SentSnapshot(NamedTuple):
    """One of the batches sent last, at a compaction."""

    batch: Batch


class Backoff(NamedTuple):
    """Failed uploads in a row, and the end of the backoff (POSIX seconds)."""

    failures: int
    until: float
    last_error: str


class FailedUploads(NamedTuple):
    """Attempts to send that settled nothing so far, by reason of `FAILURE_REASONS`."""

    counts: dict[str, int]


class MetricPause(NamedTuple):
    """End of the pause of a definition (POSIX seconds; 0 ends it); `is_held` if the aggregator's differs."""

    digest: str
    until: float
    is_held: bool = False


class ClockConfirmation(NamedTuple):
    """An aggregator's clock agreed with the system's at this time (POSIX seconds)."""

    time: float


class AttemptedPeriods(NamedTuple):
    """All days of a definition that an upload was attempted for."""

    digest: str
    runs: Runs


class GroupLabels(NamedTuple):
    """All labels of a definition's periods, see `group_labels.py`."""

    digest: str
    steps: LabelSteps


class DetachedStart(NamedTuple):
    """A detached process was started at this time (POSIX seconds)."""

    time: float


class ConsentChange(NamedTuple):
    """The consent as it is now; see `State` for the fields."""

    level: Consent
    text: str
    time: float
    reports_from: str


class Erasure(NamedTuple):
    """Consent was withdrawn: everything but the ledger is erased."""


class EnrollmentStart(NamedTuple):
    """A secret that the ledger had not seen."""

    number: int
    secret_tag: str


class LedgerKey(NamedTuple):
    """Key of the ledger, hex."""

    key: str


class MachineTags(NamedTuple):
    """Tags of the machines that used the directory."""

    tags: tuple[str, ...]


class IdentityRenewal(NamedTuple):
    """The directory is a copy: the original sends everything that was made under the copied secret."""


class IgnoredRecordings(NamedTuple):
    """Recordings that were not taken, by reason; they add to those of earlier events."""

    counts: dict[str, int]


class Counters(NamedTuple):
    """All counters at a compaction."""

    formed: int
    acknowledged: int
    damaged: int
    chosen: int
    superseded: int
    stood_in: int
    dropped: dict[str, int]
    ignored: dict[str, int]


class Continuation(NamedTuple):
    """First event of a journal: it continues the file with this inode."""

    inode: int


ReportEvent = (
    DraftMerge
    | DraftReplacement
    | DraftSnapshot
    | AccountChange
    | BatchCreation
    | BatchSnapshot
    | BatchSplit
    | RequestStart
    | ResponseReceipt
    | Reschedule
    | BatchRemoval
    | QuarantineSnapshot
    | SentSnapshot
)
"""What becomes of reports: drafts, accounts, batches."""

ClientEvent = (
    Backoff
    | FailedUploads
    | MetricPause
    | ClockConfirmation
    | AttemptedPeriods
    | GroupLabels
    | DetachedStart
    | ConsentChange
    | Erasure
    | EnrollmentStart
    | LedgerKey
    | MachineTags
    | IdentityRenewal
    | IgnoredRecordings
    | Counters
    | Continuation
)
"""What concerns the client as a whole: its consent, its identity, and when it sends."""

Event = ReportEvent | ClientEvent
