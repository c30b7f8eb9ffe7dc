"""A rolling upgrade: processes with several versions of a metric share one state directory, and so one ledger.

The loss is computed from the rows that were sent, not from the ledger: a metric without permanent noise loses one unit per report,
and every other metric one unit per distinct permanent response. All rows here are permanent responses of 128 bits (p = 0, q = 1, or
f = 0), so equal rows are equal responses, and the responses of two secrets, subjects or epochs differ.
"""

from __future__ import annotations

import logging
import math
import os
import random
import signal
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hubbub import Client, Metric, Params, Policy
from hubbub.client import collaborators
from hubbub.encoding.encoder import Encoder
from hubbub.privacy.pricing import unit_price
from hubbub.sdk.storage.state import State
from hubbub.sdk.storage.state_reader import read_state
from hubbub.sdk.upload.retry_policy import UploadResponse
from hubbub.testing import RecordingTransport, deliver
from hubbub.wire.batch import Batch
from tests.client.conftest import Rig, require_balanced

UNITS: dict[str, dict[str, Any]] = {
    "value": {"prob_p": 0, "prob_q": 1, "prob_f": 0.5},
    "epoch": {"prob_p": 0, "prob_q": 1, "prob_f": 0.5, "hold": 2},
    "period": {"prob_p": 0.25, "prob_q": 0.75, "prob_f": 0},
}
PAIRS = [(old, new) for old in UNITS for new in UNITS]
PEOPLE = (None, "ann")
HISTORIES = int(os.environ.get("HUBBUB_TEST_HISTORIES", "18")) // len(PAIRS)


def version(number: int, unit: str, name: str = "quiet") -> Metric:
    """Return a version of a metric that is charged per `unit`."""
    noise = dict(UNITS[unit])
    hold = noise.pop("hold", None)
    return Metric.string(name, Params(num_bits=128, num_hashes=8 + number, num_cohorts=1, **noise), hold=hold)


def price_of(*metrics: Metric) -> float:
    return max(unit_price(metric).epsilon for metric in metrics)


class FileTransport(RecordingTransport):
    """Transport that appends each accepted batch to a file, so that the batches of killed children are known, too."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        path.touch()

    def send(self, body: bytes, *_: Any) -> UploadResponse:
        with self._path.open("ab") as file:
            file.write(body.hex().encode() + b"\n")
        return super().send(body)

    def sent(self) -> list[Batch]:
        """Return the batches of all processes, once each, in the order of their first attempt."""
        batches = (Batch.from_json(bytes.fromhex(line)) for line in self._path.read_text().split())
        return list({batch.batch_id: batch for batch in batches}.values())


def rows_of(metric: Metric, batches: list[Batch]) -> list[bytes]:
    """Return the bits of each report of a metric's version."""
    rows = b"".join(batch.rows for batch in batches if batch.digest == metric.digest)
    return [rows[start : start + 16] for start in range(0, len(rows), 16)]


def loss(metric: Metric, batches: list[Batch]) -> float:
    """Return the epsilon that the sent reports of a metric's version cost, of all secrets and subjects together."""
    rows = rows_of(metric, batches)
    price = unit_price(metric)
    return (len(rows) if price.unit == "period" else len(set(rows))) * price.epsilon


@dataclass
class Upgrade:
    """A random history of up to three processes with versions of `quiet`, and the metric `same` that all of them have."""

    rig: Rig
    chance: random.Random
    versions: tuple[Metric, ...]
    same: Metric
    policy: Policy
    transport: FileTransport
    processes: list[Client] = field(default_factory=list)
    secrets: list[int] = field(default_factory=list)  # number of sent batches at the end of each earlier secret

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return *self.versions, self.same

    def open(self) -> None:
        metrics = [self.chance.choice(self.versions), self.same]
        self.chance.shuffle(metrics)
        self.processes.append(self.rig.client(*metrics, policy=self.policy, transport=self.transport))

    def end(self, process: Client, *, killed: bool) -> None:
        """End a process: by `close`, or as it is left by a kill."""
        self.processes.remove(process)
        if killed:
            collaborators(process).uploader.stop(5)
        else:
            process.close()

    def record(self, process: Client) -> None:
        person, name = self.chance.choice(PEOPLE), self.chance.choice(("quiet", "same"))
        (process if person is None else process.subject(person)).record(name, str(self.chance.randrange(12)))

    def fork(self, process: Client) -> None:
        """Fork a process; the child records, perhaps sends, and is killed."""
        flushes = self.chance.random() < 0.5
        child = os.fork()
        if child == 0:
            self.record(process)
            if flushes:
                process.flush(5)
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        self.record(process)  # other values than the child's

    def step(self) -> None:
        process = self.chance.choice(self.processes)
        match self.chance.choice(("record",) * 6 + ("days",) * 5 + ("open", "restart", "kill", "fork", "consent")):
            case "record":
                self.record(process)
            case "days":
                self.rig.clock.move(days=self.chance.choice((1, 1, 2)))
                for client in self.processes:
                    if self.chance.random() < 0.7:
                        client.flush(5)
            case "open" if len(self.processes) < 3:
                self.open()
            case "fork":
                self.fork(process)
            case "consent" if self.chance.random() < 0.3:
                process.set_consent("off")
                self.secrets.append(len(self.transport.sent()))
                self.rig.clock.move(days=1)
                process.set_consent("on")
            case "restart" | "kill" as step:
                self.end(process, killed=step == "kill")
                self.open()

    def check(self) -> State:
        """Require: what was lost <= what was charged <= what was reserved <= each limit."""
        state, sent, policy, slack = read_state(self.rig.state), self.transport.sent(), self.policy, 1e-6
        charged = dict.fromkeys((metric.digest for metric in self.metrics), 0.0)
        for account in state.accounts.values():
            charged[account.digest] += account.spent
            assert account.spent <= policy.epsilon_metric + slack
        for metric in self.metrics:
            assert loss(metric, sent) <= charged[metric.digest] + slack
            for start, end in pairwise([0, *self.secrets, len(sent)]):
                assert loss(metric, sent[start:end]) <= len(PEOPLE) * policy.epsilon_enrollment + slack
        for subject in {subject for subject, _ in state.accounts}:
            assert state.spent(subject) <= state.reserved(subject) + slack <= policy.epsilon_total + 2 * slack
            of_name = sum(account.spent for account in state.accounts_of(subject) if account.metric == "quiet")
            assert of_name <= (self.versions[0].lifetime_epsilon or math.inf) + slack
        if not self.secrets and not state.queue:  # only a withdrawal drops reports that were charged
            assert sum(loss(metric, sent) for metric in self.metrics) == pytest.approx(sum(charged.values()))
        return state


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_charge_is_between_the_loss_and_the_limits(old: str, new: str, rig: Rig, unseen_seed: int) -> None:
    """Random histories: three versions, a shared metric, values, restarts, kills, forks, withdrawals, tight limits."""
    for number in range(HISTORIES):
        chance = random.Random(unseen_seed + number)  # noqa: S311  (test data)
        versions = version(0, old), version(1, new), version(2, chance.choice([*UNITS]))
        same = version(0, chance.choice([*UNITS]), "same")
        price = price_of(*versions, same)
        if chance.random() < 0.3:
            limit = chance.randint(1, 6) * price
            versions = tuple(replace(metric, lifetime_epsilon=limit) for metric in versions)  # type: ignore[assignment]
        policy = Policy(
            epsilon_report=999,
            epsilon_enrollment=chance.randint(1, 8) * price,
            epsilon_metric=chance.randint(1, 12) * price,
            epsilon_total=chance.choice((chance.randint(2, 9), 99)) * price,
        )
        rig.state = rig.state.with_name(f"state-{number}")
        transport = FileTransport(rig.state.with_suffix(".sent"))
        upgrade = Upgrade(rig, chance, versions, same, policy, transport)
        upgrade.open()
        upgrade.processes[0].set_consent("on")
        for _ in range(25):
            upgrade.step()
            upgrade.check()
        upgrade.open()
        for process in upgrade.processes:
            deliver(process)
            require_balanced(process.accounting())
        assert not upgrade.check().queue
        assert transport.sent()
        while upgrade.processes:
            upgrade.end(upgrade.processes[0], killed=False)


def roomy(*metrics: Metric) -> Policy:
    """Return a policy with room for 12 units of each metric."""
    price = price_of(*metrics)
    return Policy(
        epsilon_report=999, epsilon_enrollment=12 * price, epsilon_metric=12 * price, epsilon_total=99 * price
    )


def row_of(client: Client, metric: Metric, value: str) -> bytes:
    secret = collaborators(client).encoders.secret(read_state(collaborators(client).journal.directory))
    assert secret is not None
    return Encoder(metric, secret).encode(value).to_bytes()


def units_sent(rig: Rig, metric: Metric) -> int:
    return round(loss(metric, rig.transport.batches) / unit_price(metric).epsilon)


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_definition_that_was_opened_last_keeps_its_reservation(old: str, new: str, rig: Rig) -> None:
    """A running process with another version has one more unit. Opened again, as after a rollback, it has the reservation."""
    versions = version(0, old), version(1, new)
    policy = roomy(*versions)
    clients = [rig.agreed(versions[0], policy=policy), rig.client(versions[1], policy=policy)]

    def days(count: int) -> list[int]:
        """Record a new value every day in both processes; return the units that each version sent."""
        before = [units_sent(rig, metric) for metric in versions]
        for _ in range(count):
            for client in clients:
                client.record("quiet", str(rig.clock().date()))
            for client in clients:
                deliver(client)
            rig.clock.move(days=1)
        return [units_sent(rig, metric) - sent for metric, sent in zip(versions, before, strict=True)]

    days_of_unit = {unit: 2 if unit == "epoch" else 1 for unit in UNITS}
    first_day = str(rig.clock().date())
    assert days(6)[0] == 1
    sent = [rows_of(metric, rig.transport.batches) for metric in versions]
    assert len(sent[1]) == 6
    if new == "value":
        start = date.fromisoformat(first_day)
        assert sent[1] == [row_of(clients[1], versions[1], str(start + timedelta(days=day))) for day in range(6)]
    assert [len(sent[0]), clients[0].accounting().stood_in] == {"value": [6, 5], "epoch": [2, 0], "period": [1, 0]}[old]
    clients[0].close()
    clients[0] = rig.client(versions[0], policy=policy)
    assert days(4) == [4 // days_of_unit[old], 1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("unit", UNITS)
def test_processes_with_the_same_definitions_share_one_reservation(unit: str, rig: Rig) -> None:
    """Workers that are started, forked and killed on a total with room for 8 of 12 units: none of them changes a reservation."""
    metrics = version(0, unit), version(0, unit, "same")
    price = price_of(*metrics)
    policy = replace(roomy(*metrics), epsilon_total=20.5 * price)

    def reserved() -> list[float]:
        state = read_state(rig.state)
        return [state.accounts["", metric.digest].reserved_units for metric in metrics]

    workers = [rig.agreed(*metrics, policy=policy)]
    assert reserved() == [12, 8]
    for day in range(8):
        workers.append(rig.client(*metrics, policy=policy))
        child = os.fork()
        if child == 0:
            workers[0].record("same", f"{day}")
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        for worker in workers:
            worker.record("quiet", f"{day}")
        deliver(workers[day])
        assert reserved() == [12, 8]
        rig.clock.move(days=1)
    assert [len(rows_of(metric, rig.transport.batches)) for metric in metrics] == [8, 8]
    assert workers[0].accounting().stood_in == 0
    if unit == "value":
        assert rows_of(metrics[1], rig.transport.batches) == [
            row_of(workers[0], metrics[1], f"{day}") for day in range(8)
        ]


@pytest.mark.parametrize("unit", UNITS)
def test_no_secret_reports_more_than_an_enrollment_allows(unit: str, rig: Rig) -> None:
    """A second secret had room for one unit more, because the draft that was deleted with the first was taken for charged."""
    metric = version(0, unit)
    price = price_of(metric)
    policy = Policy(
        epsilon_report=999, epsilon_enrollment=3 * price, epsilon_metric=99 * price, epsilon_total=999 * price
    )
    client, of_secrets = rig.agreed(metric, policy=policy), list[float]()
    for days in (1, 9, 4, 9):
        start = len(rig.transport.batches)
        for day in range(days):
            client.record("quiet", f"{day}")
            rig.clock.move(days=1)
            deliver(client)
        client.record("quiet", "a draft")
        of_secrets.append(loss(metric, rig.transport.batches[start:]) / price)
        client.set_consent("off")
        rig.clock.move(days=1)
        client.set_consent("on")
    assert max(of_secrets) == pytest.approx(3)
    assert of_secrets[1] == of_secrets[3] == max(of_secrets)


def test_replaced_reports_are_counted_and_logged_once(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    metric = version(0, "value")
    policy = replace(roomy(metric), epsilon_metric=2.5 * price_of(metric))
    client = rig.agreed(metric, policy=policy)
    with caplog.at_level(logging.WARNING, "hubbub"):
        for day in range(5):
            client.record("quiet", f"secret value {day}")
            deliver(client)
            rig.clock.move(days=1)
    assert client.accounting().stood_in == 3
    collaborators(client).compactor.compact(always=True)
    client.close()
    assert rig.client(metric, policy=policy).accounting().stood_in == 3
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.startswith("quiet: the budget has room for 2 values (epsilon = ")
    assert "secret value" not in line
