"""Reports of consent `local` are never sent: random histories, processes and power losses."""

from __future__ import annotations

import random
from datetime import date, timedelta
from itertools import count
from typing import Any

import pytest

from hubbub import Client, Consent, Metric, Params, Policy, UnaryResponse
from hubbub.client import collaborators
from hubbub.encoding.encoder import Encoder
from hubbub.metrics.periods import period_number
from hubbub.privacy.pricing import unit_price
from hubbub.sdk.upload.retry_policy import UploadResponse
from hubbub.testing import SeededBytes, deliver
from hubbub.wire.batch import Batch
from hubbub.wire.dates import parse_period
from tests.client.conftest import HOMEPAGE, Rig, require_balanced
from tests.support.power_loss_filesystem import SimulatedDisk

PARAMS = Params(num_bits=128, num_hashes=8, num_cohorts=1, prob_p=0, prob_q=1, prob_f=0.5)
QUIET = Metric.string("quiet", PARAMS)  # a report is the permanent response, and no two values have the same
HELD = Metric.string("held", PARAMS, hold=4)
WEEKLY = Metric.string("weekly", PARAMS, period="week")
METRICS = (QUIET, HELD, WEEKLY)


class Observer:
    """Knows each recorded value with its consent, and the days with consent `on`; checks each sent batch."""

    def __init__(self) -> None:
        self.recorded: list[tuple[Consent, Encoder, str]] = []
        self.encoders: list[Encoder] = []
        self.days_on: set[date] = set()
        self.sent: list[Batch] = []
        self._numbers = count()

    def record(self, client: Client, metric: Metric) -> None:
        level = effective(client)
        value = f"{level} {next(self._numbers)}"
        if level is not Consent.OFF:
            with collaborators(client).journal as state:
                secret = collaborators(client).encoders.secret(state)
                assert secret is not None
                encoder = collaborators(client).encoders.encoder(metric, "", secret).encoder
            self.recorded.append((level, encoder, value))
            if encoder not in self.encoders:
                self.encoders.append(encoder)
        client.record(metric.name, value)

    def require_nothing_local_was_sent(self) -> None:
        for batch in self.sent:
            metric = next(metric for metric in METRICS if metric.name == batch.metric)
            period = parse_period(metric.period, batch.period)
            days = {period.start + timedelta(days=n) for n in range((period.next().start - period.start).days)}
            assert days & self.days_on, f"{batch.metric} of {batch.period} is sent: consent was never `on` in it"
            epoch = None if metric.hold is None else period_number(metric.period, batch.period) // metric.hold
            for level, encoder, value in self.recorded:
                if level is Consent.LOCAL and encoder.metric == metric:
                    row = encoder.encode(value, epoch).to_bytes()
                    assert batch.rows != row, f"{value!r} is sent for {batch.period}"


def effective(client: Client) -> Consent:
    """Return the effective consent of a process: the lesser of the saved level and the environment's limit."""
    with collaborators(client).journal as state:
        return min(state.consent, collaborators(client).limit.allowed, key=list(Consent).index)


def watch(rig: Rig, observer: Observer, chance: random.Random) -> None:
    """Let the transport lose half of its answers, and the observer see every request."""

    def send(body: bytes, is_wanted: object) -> UploadResponse:
        batch = Batch.from_json(body)
        observer.sent.append(batch)
        return UploadResponse(202, batch_id=str(batch.batch_id)) if chance.random() < 0.5 else UploadResponse(None)

    rig.transport.send = send  # type: ignore[method-assign,assignment]


def test_on_drops_reports_and_draft_of_local(rig: Rig) -> None:
    client = rig.client(QUIET)
    client.set_consent("local")
    for day in range(10):
        client.record("quiet", f"local {day}")
        rig.clock.move(days=1)
    assert client.flush(5)
    client.record("quiet", "local 10")
    counts = client.accounting()
    assert (counts.formed, counts.queued, rig.transport.bodies) == (10, 10, [])
    client.set_consent("on")
    counts = client.accounting()
    assert (counts.queued, counts.dropped["local"]) == (0, 10)
    require_balanced(counts)
    assert deliver(client) == 1  # of today, and of no day before
    (batch,) = rig.transport.batches
    assert batch.period == str(rig.clock().date())
    with collaborators(client).journal as state:
        secret = collaborators(client).encoders.secret(state)
    assert secret is not None
    encoder = Encoder(QUIET, secret)
    assert batch.rows == encoder.encode(None).to_bytes()  # no value: the draft of `local` is gone


def test_periods_ended_under_local_are_not_reported(rig: Rig) -> None:
    client = rig.client(QUIET, WEEKLY)
    client.set_consent("local")
    client.close()
    rig.clock.move(days=10)
    client = rig.client(QUIET, WEEKLY)
    client.set_consent("on")
    assert deliver(client) == 2
    assert {batch.period for batch in rig.transport.batches} == {"2026-12-01", "2026-11-30"}


@pytest.mark.parametrize(
    "metric", [QUIET, HELD, Metric.boolean("plain", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0))]
)
def test_local_spends_no_budget(metric: Metric, rig: Rig) -> None:
    """No report of `local` can be sent, so it reveals nothing; and the budget of one value is still there for `on`."""
    price = unit_price(metric).epsilon
    policy = Policy(epsilon_report=99, epsilon_enrollment=99, epsilon_metric=1.5 * price, epsilon_total=999)
    client = rig.client(metric, policy=policy)
    client.set_consent("local")
    for day in range(6):
        client.record(metric.name, day % 2 == 0 if metric.name == "plain" else f"local {day}")
        rig.clock.move(days=1)
    client.flush(5)
    with collaborators(client).journal as state:
        (account,) = state.accounts.values()
        assert (account.units, account.reports, account.tags, account.sealed) == (0, 0, (), b"")
        assert state.spent("") == 0
    client.set_consent("on")
    client.record(metric.name, True if metric.name == "plain" else "on")
    assert deliver(client) == 1
    with collaborators(client).journal as state:
        (account,) = state.accounts.values()
        assert account.units == 1
        assert account.spent == pytest.approx(price)


def test_reports_of_on_are_held_during_local(rig: Rig) -> None:
    client = rig.agreed(QUIET)
    client.record("quiet", "on")
    rig.clock.move(days=1)
    with collaborators(client).journal as state:
        collaborators(client).builder.build_due(state)
    client.set_consent("local")
    client.record("quiet", "local")
    deliver(client)
    assert rig.transport.bodies == []
    client.set_consent("on")
    assert client.accounting().dropped["local"] == 1
    assert deliver(client) == 1
    assert [batch.period for batch in rig.transport.batches] == ["2026-11-21"]


def test_local_environment_keeps_recordings_out_of_shared_drafts(rig: Rig) -> None:
    rig.agreed(QUIET).close()
    local = rig.client(QUIET, environment={"HUBBUB_CONSENT": "local"})
    local.record("quiet", "local")
    counts = local.accounting()
    assert (counts.chosen, counts.ignored["consent"]) == (0, 1)
    other = rig.client(QUIET)
    deliver(other)
    with collaborators(other).journal as state:
        secret = collaborators(other).encoders.secret(state)
    assert secret is not None
    encoder = Encoder(QUIET, secret)
    assert [batch.rows for batch in rig.transport.batches] == [encoder.encode(None).to_bytes()]


def test_recording_postponed_under_local_is_ignored_under_on(rig: Rig) -> None:
    client = rig.client(QUIET)
    client.set_consent("local")
    collaborators(client).recorder.postpone(None, "quiet", "local")
    client.set_consent("on")
    assert deliver(client) == 1
    with collaborators(client).journal as state:
        secret = collaborators(client).encoders.secret(state)
    assert secret is not None
    assert rig.transport.batches[0].rows == Encoder(QUIET, secret).encode(None).to_bytes()
    require_balanced(client.accounting())


@pytest.mark.parametrize("number", range(8))
def test_random_histories_send_no_local_report(number: int, rig: Rig, unseen_seed: int) -> None:
    chance, observer = random.Random(unseen_seed + number), Observer()  # noqa: S311
    watch(rig, observer, chance)
    environments: tuple[dict[str, str], ...] = ({}, {}, {"HUBBUB_CONSENT": "local"})
    clients = [rig.client(*METRICS) for _ in range(2)]
    clients[0].set_consent("local")
    for _ in range(60):
        client = chance.choice(clients)
        match chance.randrange(9):
            case 0 | 1 | 2:
                observer.record(client, chance.choice(METRICS))
            case 3:
                client.set_consent(chance.choice(["local", "on", "on", "off"]))
            case 4 | 5:
                for _ in range(chance.choice((1, 1, 5))):
                    rig.clock.move(days=1)
                    note_day(observer, rig, clients[0])
            case 6:
                client.flush(5)
            case 7:
                collaborators(client).compactor.compact(always=True)
            case 8:
                client.close()
                clients[clients.index(client)] = rig.client(*METRICS, environment=chance.choice(environments))
        note_day(observer, rig, clients[0])
        require_balanced(client.accounting())
    clients[0].set_consent("on")
    note_day(observer, rig, clients[0])
    deliver(rig.client(*METRICS))
    observer.require_nothing_local_was_sent()
    assert observer.sent


def note_day(observer: Observer, rig: Rig, client: Client) -> None:
    with collaborators(client).journal as state:
        if state.consent is Consent.ON:
            observer.days_on.add(rig.clock().date())


def test_power_loss_sends_no_local_report(rig: Rig, unseen_seed: int) -> None:
    """150 lives, each ended by a power loss that drops, tears and reorders unsynced writes, the event of consent among them."""
    chance, disk, observer = random.Random(unseen_seed), SimulatedDisk(), Observer()  # noqa: S311
    random_bytes, dropped = SeededBytes(unseen_seed), 0
    watch(rig, observer, chance)
    for _ in range(150):
        options: dict[str, Any] = {"disk": disk, "random_bytes": random_bytes}
        client = rig.client(*METRICS, **options)
        sender = collaborators(client).sender
        collaborators(client).uploader.start().stop(5)
        note_day(observer, rig, client)  # the power loss may have brought back the consent of before
        for _ in range(chance.randrange(10)):
            match chance.randrange(9):
                case 0 | 1 | 2:
                    observer.record(client, chance.choice(METRICS))
                case 3:
                    client.set_consent(chance.choice(["local", "on"]))
                    collaborators(client).uploader.stop()
                case 4 | 5:
                    rig.clock.move(days=1)
                case 6:
                    sender.attempt()
                case 7:
                    deliver(client)
                    collaborators(client).uploader.stop()
                case 8:
                    collaborators(client).compactor.compact(always=True)
            note_day(observer, rig, client)
        collaborators(client).uploader.stop()
        require_balanced(client.accounting())
        dropped += client.accounting().dropped["local"] > 0
        disk = disk.after_power_loss(chance)
    observer.require_nothing_local_was_sent()
    assert len(observer.sent) > 20
    assert dropped > 20


def test_lost_consent_record_sends_no_local_report(rig: Rig) -> None:
    """Damage may destroy any one record. The mark on the report itself still keeps it from being sent."""
    from hubbub.sdk.storage.record_format import encode_record, scan

    client = rig.client(HOMEPAGE)
    client.set_consent("on")
    client.set_consent("local")
    client.record("homepage", "local")
    rig.clock.move(days=1)
    client.flush(5)
    client.close()
    journal = rig.state / "journal"
    iter_payloads = [payload for payload in scan(journal.read_bytes()).payloads if b'"level":"local"' not in payload]
    journal.write_bytes(b"".join(map(encode_record, iter_payloads)))
    client = rig.client(HOMEPAGE)
    with collaborators(client).journal as state:
        assert state.consent is Consent.ON
    deliver(client)
    assert "2026-11-21" not in {batch.period for batch in rig.transport.batches}
