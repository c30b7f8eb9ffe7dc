"""Journal events, what they are about, and their JSON: the one place that knows it.

An event holds new values, such as the recordings of a draft or the units of an account. So a later event about the same item repairs a
lost one, and applying an event twice is harmless. Only two counts are added up, and would be too high: `IgnoredRecordings` and
`BatchCreation.stood_in`. A record of a file is `encode_records` of an event:

    {"event": WORD, FIELD: VALUE, ...}        bytes in hex; `_CODECS` has the word of each class

Events are named tuples and not dataclasses, because 28 frozen dataclasses would take 14 ms of `import hubbub`, and these take 2.
"""

import json
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from typing import Any, Generic, NamedTuple, Self, TypeVar

from hubbub.consent import Consent
from hubbub.metrics.periods import Period, PeriodKind, midnight
from hubbub.privacy.ledger import Account, EncodedReport, Key
from hubbub.sdk.storage.group_labels import LabelSteps
from hubbub.sdk.storage.record_format import encode_record, iter_payloads
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
    return Batch(
        uuid.UUID(fields["batch_id"]),
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

_Plain = str | float | list[str] | list[list[str]] | dict[str, int] | dict[str, float]
"""Types that JSON reads as it wrote them."""

E = TypeVar("E")
PlainEvent = TypeVar("PlainEvent", bound=tuple[_Plain, ...])


class _Codec(NamedTuple, Generic[E]):
    """How one kind of event is written and read.

    word  : value of "event" in its records
    write : returns the other fields as JSON has them, in the order of the record
    read  : returns the event of these fields; fields that a newer version added are ignored
    about : returns which item the event is about; None for a kind that has one item
    """

    kind: type[E]
    word: str
    write: Callable[[E], dict[str, Any]]
    read: Callable[[Mapping[str, Any]], E]
    about: Callable[[E], object] | None = None


def _plain(
    kind: type[PlainEvent], word: str, about: Callable[[PlainEvent], object] | None = None
) -> _Codec[PlainEvent]:
    """Return the codec of a kind whose fields JSON reads as it wrote them. For other fields the type checker refuses it."""
    names: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]  # a named tuple
    make: Callable[..., PlainEvent] = kind
    return _Codec(
        kind,
        word,
        lambda event: dict(zip(names, event, strict=True)),
        lambda fields: make(*[fields[name] for name in names]),
        about,
    )


_CODECS = (
    _plain(DraftMerge, "draft_merged", lambda event: (event.key, event.period)),
    _Codec(
        DraftReplacement,
        "draft_replaced",
        lambda event: {
            "subject": event.subject,
            "digest": event.digest,
            "period": event.period,
            "num_recordings": event.num_recordings,
            "report": event.report.to_dict(),
            "local": event.local,
            **({"number": event.number.hex()} if event.number else {}),
        },
        lambda fields: DraftReplacement(
            fields["subject"],
            fields["digest"],
            fields["period"],
            fields["num_recordings"],
            EncodedReport.from_dict(fields["report"]),
            fields["local"],
            bytes.fromhex(fields.get("number", "")),
        ),
        lambda event: (event.key, event.period),
    ),
    _Codec(
        DraftSnapshot,
        "draft_snapshot",
        lambda event: {"subject": event.subject, "digest": event.digest, "draft": event.draft.to_dict()},
        lambda fields: DraftSnapshot(fields["subject"], fields["digest"], Draft.from_dict(fields["draft"])),
        lambda event: event.key,
    ),
    _Codec(
        AccountChange,
        "account",
        lambda event: {"account": event.account.to_dict()},
        lambda fields: AccountChange(Account.from_dict(fields["account"])),
        lambda event: event.account.key,
    ),
    _Codec(
        BatchCreation,
        "batch_created",
        lambda event: {
            "formed": event.formed,
            "queued": event.queued.to_dict(),
            "accounts": [account.to_dict() for account in event.accounts],
            "stood_in": event.stood_in,
        },
        lambda fields: BatchCreation(
            fields["formed"],
            QueuedBatch.from_dict(fields["queued"]),
            tuple(map(Account.from_dict, fields["accounts"])),
            fields["stood_in"],
        ),
        lambda event: event.queued.batch.batch_id,
    ),
    _Codec(
        BatchSnapshot,
        "batch_snapshot",
        lambda event: {"queued": event.queued.to_dict()},
        lambda fields: BatchSnapshot(QueuedBatch.from_dict(fields["queued"])),
        lambda event: event.queued.batch.batch_id,
    ),
    _Codec(
        BatchSplit,
        "batch_split",
        lambda event: {"batch_id": event.batch_id, "halves": [half.to_dict() for half in event.halves]},
        lambda fields: BatchSplit(fields["batch_id"], tuple(map(QueuedBatch.from_dict, fields["halves"]))),
        lambda event: event.batch_id,
    ),
    _plain(RequestStart, "request_started", lambda event: (event.batch_id, event.digest, event.period)),
    _plain(ResponseReceipt, "response_received", lambda event: event.batch_id),
    _plain(Reschedule, "batches_rescheduled", lambda event: event.overdue),
    _Codec(
        BatchRemoval,
        "batch_removed",
        lambda event: {
            "batch_id": event.batch_id,
            "reason": event.reason,
            **({"problem": event.problem} if event.problem else {}),
        },
        lambda fields: BatchRemoval(fields["batch_id"], fields["reason"], fields.get("problem", "")),
        lambda event: event.batch_id,
    ),
    _Codec(
        QuarantineSnapshot,
        "quarantine_snapshot",
        lambda event: {"batch": encode_batch(event.batch), "problem": event.problem},
        lambda fields: QuarantineSnapshot(decode_batch(fields["batch"]), fields["problem"]),
        lambda event: event.batch.batch_id,
    ),
    _Codec(
        SentSnapshot,
        "sent_snapshot",
        lambda event: {"batch": encode_batch(event.batch)},
        lambda fields: SentSnapshot(decode_batch(fields["batch"])),
        lambda event: event.batch.batch_id,
    ),
    _plain(Backoff, "backoff"),
    _plain(FailedUploads, "uploads_failed"),
    _Codec(
        MetricPause,
        "metric_paused",
        lambda event: {
            "digest": event.digest,
            "until": event.until,
            **({"is_held": event.is_held} if event.is_held else {}),
        },
        lambda fields: MetricPause(fields["digest"], fields["until"], fields.get("is_held", False)),
        lambda event: event.digest,
    ),
    _plain(ClockConfirmation, "clock_confirmed"),
    _plain(AttemptedPeriods, "attempted_periods", lambda event: event.digest),
    _plain(GroupLabels, "group_labels", lambda event: event.digest),
    _plain(DetachedStart, "detached_started"),
    _Codec(
        ConsentChange,
        "consent",
        lambda event: {
            "level": str(event.level),
            "text": event.text,
            "time": event.time,
            "reports_from": event.reports_from,
        },
        lambda fields: ConsentChange(Consent(fields["level"]), fields["text"], fields["time"], fields["reports_from"]),
    ),
    _plain(Erasure, "erased"),
    _plain(EnrollmentStart, "enrollment"),
    _plain(LedgerKey, "ledger_key"),
    _Codec(
        MachineTags,
        "machine_tags",
        lambda event: {"tags": list(event.tags)},
        lambda fields: MachineTags(tuple(fields["tags"])),
    ),
    _plain(IdentityRenewal, "identity_renewed"),
    _plain(IgnoredRecordings, "recordings_ignored"),
    _plain(Counters, "counters"),
    _plain(Continuation, "continuation"),
)
"""One codec for each kind of event."""

_BY_KIND: dict[type[Event], _Codec[Any]] = {codec.kind: codec for codec in _CODECS}
_BY_WORD: dict[str, _Codec[Any]] = {codec.word: codec for codec in _CODECS}

_decoder = json.JSONDecoder()
_encoder = json.JSONEncoder(separators=(",", ":"), check_circular=False)


def _make_encode() -> Callable[[object], str]:
    """Return a faster `_encoder.encode`: that makes a new C encoder for each call, which is half of its time."""
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return _encoder.encode
    chunks = make(None, _encoder.default, json.encoder.encode_basestring_ascii, None, ":", ",", False, False, True)
    return lambda fields: "".join(chunks(fields, 0))


_encode = _make_encode()


def encode_records(*events: Event) -> bytes:
    """Return events as the files hold them: one record each."""
    return b"".join([encode_record(_payload(event)) for event in events])


def _payload(event: Event) -> bytes:
    codec = _BY_KIND[type(event)]
    return _encode({"event": codec.word, **codec.write(event)}).encode()


def decode_event(payload: bytes) -> Event | None:
    """Return the event of a record; None for a kind that a newer version wrote.

    Raises KeyError, TypeError or ValueError if the payload is none.
    """
    fields = _decoder.decode(str(payload, "utf-8"))  # twice as fast as json.loads, which guesses the encoding
    codec = _BY_WORD.get(fields["event"])
    return None if codec is None else codec.read(fields)


def replay(apply: Callable[[Event], None], chunks: Iterable[bytes]) -> int:
    """Apply the events in chunks of a file's bytes, in order; return the number of damaged records."""
    damaged = 0
    for payload in iter_payloads(chunks):
        try:
            event = decode_event(payload or b"")
            if event is not None:
                apply(event)
        # OverflowError: a period that ends after the year 9999
        except (KeyError, TypeError, ValueError, OverflowError):
            damaged += 1
    return damaged


def item(event: Event) -> tuple[object, ...]:
    """Return the kind of an event and what it is about: a later event of the same item replaces it."""
    about = _BY_KIND[type(event)].about
    return type(event), None if about is None else about(event)
