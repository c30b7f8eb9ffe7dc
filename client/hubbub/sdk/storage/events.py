"""Journal events, what they are about, and their JSON: the one place that knows it.

An event holds new values, such as the recordings of a draft or the units of an account. So a later event about the same item repairs a
lost one, and applying an event twice is harmless. Only two counts are added up, and would be too high: `IgnoredRecordings` and
`BatchCreation.stood_in`. A record of a file is `encode_records` of an event:

    {"event": WORD, FIELD: VALUE, ...}        bytes in hex; of the classes and their words see `_WORDS`

Events are named tuples and not dataclasses, because 28 frozen dataclasses would take 14 ms of `import hubbub`, and these take 2.
"""

import json
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, Self

from hubbub.consent import Consent
from hubbub.metrics.periods import Period, PeriodKind, midnight
from hubbub.privacy.ledger import Account, EncodedReport
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
        decoded = {"batch": decode_batch(fields["batch"]), "period_kind": PeriodKind(fields["period_kind"])}
        return cls(**{**fields, **decoded})


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


class DraftReplacement(NamedTuple):
    """One more recording, which is the draft from now on."""

    subject: str
    digest: str
    period: str
    num_recordings: int
    report: EncodedReport
    local: bool
    number: bytes = b""


class DraftSnapshot(NamedTuple):
    """A draft at a compaction."""

    subject: str
    digest: str
    draft: Draft


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

_WORDS: dict[type[Event], tuple[str, tuple[str, ...]]] = {
    DraftMerge: ("draft_merged", ("subject", "digest", "period")),
    DraftReplacement: ("draft_replaced", ("subject", "digest", "period")),
    DraftSnapshot: ("draft_snapshot", ("subject", "digest")),
    AccountChange: ("account", ("account.key",)),
    BatchCreation: ("batch_created", ("queued.batch.batch_id",)),
    BatchSnapshot: ("batch_snapshot", ("queued.batch.batch_id",)),
    BatchSplit: ("batch_split", ("batch_id",)),
    RequestStart: ("request_started", ("batch_id", "digest", "period")),
    ResponseReceipt: ("response_received", ("batch_id",)),
    Reschedule: ("batches_rescheduled", ("overdue",)),
    BatchRemoval: ("batch_removed", ("batch_id",)),
    QuarantineSnapshot: ("quarantine_snapshot", ("batch.batch_id",)),
    SentSnapshot: ("sent_snapshot", ("batch.batch_id",)),
    Backoff: ("backoff", ()),
    FailedUploads: ("uploads_failed", ()),
    MetricPause: ("metric_paused", ("digest",)),
    ClockConfirmation: ("clock_confirmed", ()),
    AttemptedPeriods: ("attempted_periods", ("digest",)),
    GroupLabels: ("group_labels", ("digest",)),
    DetachedStart: ("detached_started", ()),
    ConsentChange: ("consent", ()),
    Erasure: ("erased", ()),
    EnrollmentStart: ("enrollment", ()),
    LedgerKey: ("ledger_key", ()),
    MachineTags: ("machine_tags", ()),
    IdentityRenewal: ("identity_renewed", ()),
    IgnoredRecordings: ("recordings_ignored", ()),
    Counters: ("counters", ()),
    Continuation: ("continuation", ()),
}
"""Word of each kind of event in the journal, and the fields that say which item it is about."""

Convert = Callable[[Any], object]
_FORMS: dict[object, tuple[Convert, Convert]] = {
    bytes: (bytes.hex, bytes.fromhex),
    Consent: (str, Consent),
    EncodedReport: (EncodedReport.to_dict, EncodedReport.from_dict),
    Draft: (Draft.to_dict, Draft.from_dict),
    Account: (Account.to_dict, Account.from_dict),
    QueuedBatch: (QueuedBatch.to_dict, QueuedBatch.from_dict),
    Batch: (encode_batch, decode_batch),
    tuple[Account, ...]: (
        lambda accounts: [each.to_dict() for each in accounts],
        lambda accounts: tuple(map(Account.from_dict, accounts)),
    ),
    tuple[QueuedBatch, ...]: (
        lambda batches: [each.to_dict() for each in batches],
        lambda batches: tuple(map(QueuedBatch.from_dict, batches)),
    ),
    tuple[str, ...]: (list, tuple),
}
"""Types of fields that JSON holds in another form, with the conversions to it and from it."""

_decoder = json.JSONDecoder()
_encoder = json.JSONEncoder(separators=(",", ":"), check_circular=False)


def _make_encode() -> Callable[[object], str]:
    """Return a faster `_encoder.encode`: that makes a new C encoder for each call, which is half of its time."""
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return _encoder.encode
    chunks = make(None, _encoder.default, json.encoder.encode_basestring_ascii, None, ":", ",", False, False, True)
    return lambda fields: "".join(chunks(fields, 0))


class _Codec:
    """JSON of one kind of event. Fields with a default are left out where they have it."""

    def __init__(self, kind: type[Event], word: str) -> None:
        self._make = kind._make
        self._word = (word,)
        self._names = ("event", *kind._fields)
        self._defaults: dict[str, object] = kind._field_defaults
        self._required = [name for name in kind._fields if name not in self._defaults]
        forms = [(name, _FORMS[each]) for name, each in kind.__annotations__.items() if each in _FORMS]
        self._to_json = [(name, to_json) for name, (to_json, _) in forms]
        self._from_json = [(name, from_json) for name, (_, from_json) in forms]
        self._get_all = None if self._defaults or forms or len(kind._fields) < 2 else itemgetter(*kind._fields)

    def to_json(self, event: Event) -> dict[str, Any]:
        """Return the fields in their order, after the word."""
        fields = dict(zip(self._names, self._word + event))  # noqa: B905  (it would cost a tenth of `record`'s JSON)
        for name, default in self._defaults.items():
            if fields[name] == default:
                del fields[name]
        for name, convert in self._to_json:
            if name in fields:
                fields[name] = convert(fields[name])
        return fields

    def from_json(self, fields: Mapping[str, Any]) -> Event:
        """Return the event; fields that a newer version added are ignored."""
        if self._get_all is not None:
            return self._make(self._get_all(fields))
        values = {name: fields[name] for name in self._required}
        for name, default in self._defaults.items():
            values[name] = fields.get(name, default)
        for name, convert in self._from_json:
            if name in fields:
                values[name] = convert(values[name])
        return self._make(values.values())


_CODECS = {kind: _Codec(kind, word) for kind, (word, _) in _WORDS.items()}
_BY_WORD = {word: _CODECS[kind] for kind, (word, _) in _WORDS.items()}
_ITEMS = {kind: attrgetter(*fields) for kind, (_, fields) in _WORDS.items() if fields}
_encode = _make_encode()


def encode_records(*events: Event) -> bytes:
    """Return events as the files hold them: one record each."""
    return b"".join([encode_record(_encode(_CODECS[type(event)].to_json(event)).encode()) for event in events])


def decode_event(payload: bytes) -> Event | None:
    """Return the event of a record; None for a kind that a newer version wrote.

    Raises KeyError, TypeError or ValueError if the payload is none.
    """
    fields = _decoder.decode(str(payload, "utf-8"))  # twice as fast as json.loads, which guesses the encoding
    codec = _BY_WORD.get(fields["event"])
    return None if codec is None else codec.from_json(fields)


def replay(apply: Callable[[Event], None], chunks: Iterable[bytes]) -> int:
    """Apply the events in chunks of a file's bytes, in order; return the number of damaged records."""
    damaged = 0
    for payload in iter_payloads(chunks):
        try:
            event = decode_event(payload or b"")
            if event is not None:
                apply(event)
        except (
            KeyError,
            TypeError,
            ValueError,
            OverflowError,
        ):  # OverflowError: a period that ends after the year 9999
            damaged += 1
    return damaged


def item(event: Event) -> tuple[object, ...]:
    """Return the kind of an event and what it is about: a later event of the same item replaces it."""
    about = _ITEMS.get(type(event))
    return type(event), None if about is None else about(event)
