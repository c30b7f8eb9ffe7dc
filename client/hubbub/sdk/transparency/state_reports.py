"""What a client holds and has spent: `hubbub inspect` prints it, `Client.inspect` and `Client.ledger` return it.

The classes of their parts have no slots, because few objects are made of them, and slots would take 1 ms of `import hubbub`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hubbub.consent import Consent
from hubbub.metrics.periods import PeriodKind, from_timestamp
from hubbub.privacy.ledger import Account
from hubbub.sdk.storage import events
from hubbub.sdk.storage import state as stored
from hubbub.sdk.storage.state import Accounting
from hubbub.wire.json_values import json_value


@dataclass(frozen=True)
class SavedConsent:
    """Consent that a state directory holds.

    Attributes
    ----------
    level
        Level that the user chose.
    text
        Text that the user read.
    time
        Time at which the user first chose this level and text; None if the user was never asked.
    """

    level: Consent
    text: str
    time: datetime | None


@dataclass(frozen=True)
class QueuedBatch:
    """Batch that waits to be sent.

    Attributes
    ----------
    batch_id
        Id of the batch.
    metric
        Name of the metric.
    period
        First day of the period, YYYY-MM-DD.
    reports
        Number of reports.
    send_time
        Earliest time of its upload; None for a batch that was made under consent `local`.
    possibly_delivered
        Whether the aggregator may have stored it already.
    local
        Whether it was made under consent `local`, so that it is never sent.
    body
        Bytes of the request, as text.
    """

    batch_id: str
    metric: str
    period: str
    reports: int
    send_time: datetime | None
    possibly_delivered: bool
    local: bool
    body: str


@dataclass(frozen=True)
class QuarantinedBatch:
    """Batch that the aggregator refused; it is kept for the developer and not sent again.

    Attributes
    ----------
    metric
        Name of the metric.
    period
        First day of the period, YYYY-MM-DD.
    problem
        Problem type of the refusal.
    body
        Bytes of the request, as text.
    """

    metric: str
    period: str
    problem: str
    body: str


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a client holds and has sent: the result of `Client.inspect`.

    Attributes
    ----------
    consent
        Consent of the user.
    machines
        Number of machines on which the directory was used.
    queued
        Batches that wait to be sent.
    failures
        Failed uploads in a row.
    last_error
        Last response or failure; empty after a success.
    quarantined
        Batches that the aggregator refused.
    last_sent
        Bodies of the last batches sent, the newest first.
    accounting
        Counters of recordings and reports.
    """

    consent: SavedConsent
    machines: int
    queued: tuple[QueuedBatch, ...]
    failures: int
    last_error: str
    quarantined: tuple[QuarantinedBatch, ...]
    last_sent: tuple[str, ...]
    accounting: Accounting

    def to_dict(self) -> dict[str, Any]:
        """Return the object that `hubbub inspect --json` prints, without its fields `ledger` and `problems`.

        Returns
        -------
        dict[str, Any]
            JSON values.
        """
        fields: dict[str, Any] = json_value(self)
        return fields


@dataclass(frozen=True, kw_only=True)
class LedgerAccount:
    """Epsilon that one metric definition of one subject has spent and reserved.

    Attributes
    ----------
    subject
        Keyed hash of the subject's id; "" is the client itself.
    digest
        Digest of the metric definition.
    metric
        Name of the metric.
    period
        Kind of its reporting period.
    next_period_start
        First day of the first period without a batch, YYYY-MM-DD.
    unit
        Unit of the ledger: "epoch", "value" or "period".
    epsilon_per_unit
        Epsilon of one unit.
    units
        Spent units over all enrollments.
    reports
        Charged reports over all enrollments.
    enrollment
        Number of the enrollment, one for each secret, to which the fields below belong.
    epoch
        Epoch that was charged last. None: a metric without `hold`.
    reserved_units
        Units of the total budget that belong to this account, spent or not.
    spent_before_enrollment
        Units of them that earlier enrollments can have spent.
    refused
        Reason why the metric is not collected. Empty: it is collected.
    replanned_before
        After a clock error, periods before this day may have a batch already. Empty: there was no error.
    newest_epoch
        Largest epoch that was ever charged in this enrollment. None: a metric without `hold`.
    response
        Number of the permanent response of `epoch`. None: a metric without `hold`.
    epsilon_spent
        Units * epsilon_per_unit.
    epsilon_reserved
        Epsilon of the total budget that belongs to this account, spent or not.
    """

    subject: str
    digest: str
    metric: str
    period: PeriodKind
    next_period_start: str
    unit: str
    epsilon_per_unit: float
    units: int
    reports: int
    enrollment: int
    epoch: int | None
    reserved_units: float
    spent_before_enrollment: float
    refused: str
    replanned_before: str
    newest_epoch: int | None
    response: int | None
    epsilon_spent: float
    epsilon_reserved: float


@dataclass(frozen=True, slots=True)
class Ledger:
    """Epsilon that a client has spent and reserved: the result of `Client.ledger`.

    Attributes
    ----------
    consent
        Consent level of the user.
    enrollments
        Number of enrollments, one for each secret.
    epsilon_total
        Spent epsilon by subject, with the cost of drafts; the subject "" is the client itself.
    epsilon_reserved
        Reserved epsilon by subject.
    accounts
        One for each metric definition and subject.
    accounting
        Counters of recordings and reports.
    """

    consent: Consent
    enrollments: int
    epsilon_total: Mapping[str, float]
    epsilon_reserved: Mapping[str, float]
    accounts: tuple[LedgerAccount, ...]
    accounting: Accounting

    def to_dict(self) -> dict[str, Any]:
        """Return the field `ledger` of the object that `hubbub inspect --json` prints.

        Returns
        -------
        dict[str, Any]
            JSON values.
        """
        fields: dict[str, Any] = json_value(self)
        return fields


def inspect_state(state: stored.State, last: int = 1) -> Inspection:
    """Return consent, queued and quarantined batches, and the bodies of the `last` batches sent, the newest first."""
    return Inspection(
        SavedConsent(state.consent, state.consent_text, _utc(state.consent_time) if state.consent_time else None),
        len(state.machine_tags),
        tuple(_queued(state, batch_id, queued) for batch_id, queued in state.queue.items()),
        state.failures,
        state.last_error,
        tuple(
            QuarantinedBatch(batch.metric, batch.period, problem, batch.to_json().decode())
            for batch, problem in state.quarantine.values()
        ),
        tuple(batch.to_json().decode() for batch in state.last_sent.values())[::-1][: max(0, last)],
        state.accounting(),
    )


def ledger_of_state(state: stored.State) -> Ledger:
    """Return the epsilon that each metric definition of each subject has spent and reserved."""
    subjects = sorted(state.subjects)
    return Ledger(
        state.consent,
        state.enrollments,
        {subject: state.spent(subject) for subject in subjects},
        {subject: state.reserved(subject) for subject in subjects},
        tuple(map(_ledger_account, state.accounts.values())),
        state.accounting(),
    )


def _ledger_account(account: Account) -> LedgerAccount:
    fields = {name: value for name, value in account._asdict().items() if name in LedgerAccount.__dataclass_fields__}
    return LedgerAccount(**fields, epsilon_spent=account.spent, epsilon_reserved=account.reserved_epsilon)


def _queued(state: stored.State, batch_id: str, queued: events.QueuedBatch) -> QueuedBatch:
    batch = queued.batch
    earliest = max(queued.send_at, state.backoff_until, state.paused_metrics.get(batch.digest, 0.0))
    return QueuedBatch(
        batch_id,
        batch.metric,
        batch.period,
        len(batch),
        None if queued.local else _utc(earliest),
        queued.possibly_delivered,
        queued.local,
        batch.to_json().decode(),
    )


def _utc(moment: float) -> datetime:
    """Return POSIX seconds as a time in UTC."""
    return from_timestamp(moment)
