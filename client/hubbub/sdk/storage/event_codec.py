"""Records of journal events, and what each event is about: the one place that knows it.

{"event": WORD, FIELD: VALUE, ...}        bytes in hex; `_CODECS` has the word of each class
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from hubbub.consent import Consent
from hubbub.privacy.ledger import Account, EncodedReport
from hubbub.sdk.storage.events import (
    AccountChange,
    AttemptedPeriods,
    Backoff,
    BatchCreation,
    BatchRemoval,
    BatchSnapshot,
    BatchSplit,
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
    SentSnapshot,
    decode_batch,
    encode_batch,
)
from hubbub.sdk.storage.record_format import encode_record, iter_payloads

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
    # the most frequent event: `_plain` would take twice as long
    _Codec(
        DraftMerge,
        "draft_merged",
        lambda event: {
            "subject": event.subject,
            "digest": event.digest,
            "period": event.period,
            "num_recordings": event.num_recordings,
        },
        lambda fields: DraftMerge(fields["subject"], fields["digest"], fields["period"], fields["num_recordings"]),
        lambda event: (event.key, event.period),
    ),
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
