"""Two versions of a definition in one directory: every running process reports its own values, within the totals."""

from __future__ import annotations

import logging
import os
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hubbub import Client, Metric, Params, Policy
from hubbub.client import collaborators
from hubbub.encoding.encoder import Encoder
from hubbub.privacy.pricing import unit_price
from hubbub.testing import deliver
from tests.client.conftest import Rig, require_balanced


def version(number: int, name: str = "quiet") -> Metric:
    """Return a version of a metric. Its reports are permanent responses, so each identifies its value."""
    params = Params(num_bits=128, num_hashes=8 + number, num_cohorts=1, prob_p=0, prob_q=1, prob_f=0.5)
    return Metric.string(name, params)


OLD, NEW, NEWEST = (version(number) for number in range(3))
SAME = version(0, "same")
PRICE = max(unit_price(metric).epsilon for metric in (OLD, NEW, NEWEST))
ROOMY = Policy(epsilon_report=999, epsilon_enrollment=8 * PRICE, epsilon_metric=8 * PRICE, epsilon_total=99 * PRICE)


def rows(client: Client, rig: Rig, metric: Metric) -> dict[str, int]:
    """Return the bits of each period's report, queued or sent, in the order of the periods: batches are sent in any order."""
    with collaborators(client).journal as state:
        batches = [*rig.transport.batches, *(waiting.batch for waiting in state.queue.values())]
    own = sorted((batch for batch in batches if batch.digest == metric.digest), key=lambda batch: batch.period)
    return {batch.period: int.from_bytes(batch.rows, "little") for batch in own}


def row_of(client: Client, metric: Metric, value: str | None) -> int:
    with collaborators(client).journal as state:
        secret = collaborators(client).encoders.secret(state)
    assert secret is not None
    return int.from_bytes(Encoder(metric, secret).encode(value).to_bytes(), "little")


def stood_in(client: Client) -> int:
    counts = client.accounting()
    require_balanced(counts)
    return int(counts.stood_in)


def test_running_process_keeps_reporting_after_definition_change(rig: Rig) -> None:
    """It reported 1 of 7 values: its share was taken away, and the last value stood in for the others."""
    old = rig.agreed(OLD, policy=ROOMY)
    new = rig.client(NEW, policy=ROOMY)
    for day in range(7):
        for client in (old, new):
            client.record("quiet", str(day))
            client.flush(5)
        rig.clock.move(days=1)
    for client, metric in ((old, OLD), (new, NEW)):
        client.flush(5)
        expected = [row_of(client, metric, str(day)) for day in range(7)]
        assert list(rows(client, rig, metric).values()) == expected
        assert stood_in(client) == 0


@dataclass
class Process:
    """A client, its version of the metric, and its recordings of this period."""

    client: Client
    metric: Metric
    recorded: dict[str, str] = field(default_factory=dict)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return self.metric, SAME


@pytest.mark.slow
@pytest.mark.parametrize("number", range(6))
def test_live_processes_keep_reporting_after_random_restarts_and_redefinitions(
    number: int, rig: Rig, unseen_seed: int
) -> None:
    """Random histories of two processes; each has one version of `quiet`, and both have `same`."""
    chance = random.Random(unseen_seed + number)  # noqa: S311
    first = rig.agreed(OLD, SAME, policy=ROOMY)
    processes = [Process(first, OLD), Process(rig.client(NEW, SAME, policy=ROOMY), NEW)]
    names, reports = ("a", "b", "c", "d", "e"), 0
    newest: dict[str, str] = {}  # the value of the newest draft, by digest
    for _ in range(60):
        process = chance.choice(processes)
        match chance.randrange(6):
            case 0 | 1:
                metric = chance.choice(process.metrics)
                if not any(metric in each.metrics and metric.digest in each.recorded for each in processes):
                    value = process.recorded[metric.digest] = chance.choice(names)
                    process.client.record(metric.name, value)
            case 2 | 3:
                ended = str(rig.clock().date())
                rig.clock.move(days=1)
                for each in processes:
                    each.client.flush(5)
                for each in processes:
                    for metric in each.metrics:
                        values = (other.recorded.get(metric.digest) for other in processes if metric in other.metrics)
                        include_client = next(filter(None, values), None)
                        reports += 1
                        assert rows(each.client, rig, metric)[ended] == row_of(each.client, metric, include_client)
                for each in processes:
                    each.recorded.clear()
            case 4 | 5:
                process.client.close()
                other = next(each for each in processes if each is not process)
                redefined = chance.choice((OLD, NEW, NEWEST, process.metric))
                kept = dict(process.recorded) if redefined == process.metric else {}
                kept |= {SAME.digest: process.recorded[SAME.digest]} if SAME.digest in process.recorded else {}
                if process.metric in other.metrics:  # the other process uses the draft
                    other.recorded |= process.recorded
                client = rig.client(redefined, SAME, policy=ROOMY)
                for metric in (redefined, SAME):  # a draft that an earlier process of this version left
                    with collaborators(client).journal as state:
                        draft = state.drafts.get(("", metric.digest))
                        left = draft is not None and draft.period == str(rig.clock().date())
                    if left and metric.digest not in kept | other.recorded:
                        kept[metric.digest] = newest[metric.digest]
                processes[processes.index(process)] = Process(client, redefined, kept)
        for each in processes:
            newest |= each.recorded
        require_within(processes[0].client, ROOMY)
    assert stood_in(processes[0].client) == 0
    assert reports


def require_within(client: Client, policy: Policy) -> None:
    with collaborators(client).journal as state:
        assert state.spent("") <= state.reserved("") + 1e-6 <= policy.epsilon_total + 2e-6
        for account in state.accounts.values():
            assert account.spent <= policy.epsilon_metric + 1e-6


@pytest.mark.parametrize("number", range(6))
def test_random_redefinitions_stay_within_tight_total(number: int, rig: Rig, unseen_seed: int) -> None:
    """A total with room for 3 to 8 values, and three versions that want 8 each: the reports stay within it."""
    chance = random.Random(unseen_seed + number)  # noqa: S311
    total = chance.randrange(3, 9) * PRICE
    tight = Policy(epsilon_report=999, epsilon_enrollment=8 * PRICE, epsilon_metric=8 * PRICE, epsilon_total=total)
    clients = [rig.agreed(OLD, SAME, policy=tight), rig.client(NEW, SAME, policy=tight)]
    for _ in range(60):
        client = chance.choice(clients)
        match chance.randrange(5):
            case 0 | 1:
                client.record(chance.choice(("quiet", "same")), str(chance.randrange(12)))
            case 2 | 3:
                rig.clock.move(days=1)
                for each in clients:
                    each.flush(5)
            case 4:
                client.close()
                metric = chance.choice((OLD, NEW, NEWEST))
                clients[clients.index(client)] = rig.client(metric, SAME, policy=tight)
        require_within(clients[0], tight)
    spent, repeated = 0.0, 0
    for metric in (OLD, NEW, NEWEST, SAME):
        reported = rows(clients[0], rig, metric)
        spent += len(set(reported.values())) * unit_price(metric).epsilon
        repeated += len(reported) - len(set(reported.values()))
    assert spent <= total + 1e-6
    assert stood_in(clients[0]) <= repeated


def test_budget_of_unused_definition_is_released(rig: Rig) -> None:
    """While the old process runs, the new one gets the rest of the total. When the old one ends, it gets its full budget without a restart."""
    price, newer = unit_price(OLD).epsilon, unit_price(NEW).epsilon
    enrollment, total = 4 * newer, 4 * price + 1.5 * newer
    policy = Policy(epsilon_report=999, epsilon_enrollment=enrollment, epsilon_metric=999, epsilon_total=total)
    old = rig.agreed(OLD, policy=policy)
    old.record("quiet", "0")
    new = rig.client(NEW, policy=policy)
    with collaborators(new).journal as state:
        assert [state.accounts["", each.digest].reserved_units for each in (OLD, NEW)] == [4, 1]
    old.close()
    new.flush(5)
    with collaborators(new).journal as state:
        assert [state.accounts["", each.digest].reserved_units for each in (OLD, NEW)] == [1, 4]
        assert state.reserved("") <= policy.epsilon_total
    assert [path.name.partition(".")[0] for path in rig.state.iterdir()].count("lease") == 1


def test_shared_metric_keeps_its_budget(rig: Rig) -> None:
    """Budgets are allocated in order of the definitions, so the changed one came first and took the running process's budget."""
    price = unit_price(OLD).epsilon
    policy = Policy(epsilon_report=999, epsilon_enrollment=4 * PRICE, epsilon_metric=999, epsilon_total=9.5 * price)
    old = rig.agreed(OLD, SAME, policy=policy)

    def reserved() -> list[float]:
        with collaborators(old).journal as state:
            return [state.accounts["", each.digest].reserved_units for each in (OLD, SAME)]

    assert reserved() == [5, 4]
    new = rig.client(NEWEST, SAME, policy=policy)
    assert reserved() == [5, 4]
    for day in range(3):
        for client in (old, new):
            client.record("same", str(day))
        rig.clock.move(days=1)
    new.close()
    old.flush(5)  # allocates the budget that the other process released, and keeps its own
    assert reserved() == [5, 4]
    assert list(rows(old, rig, SAME).values()) == [row_of(old, SAME, str(day)) for day in range(3)]
    require_within(old, policy)


def test_released_budget_does_not_reduce_running_metrics(rig: Rig) -> None:
    price, newest = unit_price(OLD).epsilon, unit_price(NEWEST).epsilon
    total = 4 * newest + 6.5 * price  # 4 values of the newest, 5 of `same`, 1 of the old
    policy = Policy(epsilon_report=999, epsilon_enrollment=4 * newest, epsilon_metric=999, epsilon_total=total)
    new = rig.agreed(NEWEST, SAME, policy=policy)
    old = rig.client(OLD, SAME, policy=policy)

    def reserved() -> list[float]:
        with collaborators(old).journal as state:
            return [state.accounts["", each.digest].reserved_units for each in (OLD, SAME)]

    assert reserved() == [1, 5]
    for _ in range(2):
        rig.clock.move(days=1)
        new.flush(5)
    new.close()
    old.flush(5)
    assert reserved() == [2, 5]  # the definition that comes first would take 4, and leave 3
    require_within(old, policy)


@pytest.fixture
def children() -> Iterator[list[int]]:
    started: list[int] = []
    yield started
    for child in started:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def fork_client(rig: Rig, metric: Metric, policy: Policy, ready: Path) -> int:
    """Start another process that has the directory open, and wait until it has."""
    child = os.fork()
    if child == 0:
        client = rig.client(metric, policy=policy)
        ready.write_text("ready")
        while client:
            time.sleep(1)
        os._exit(0)
    while not ready.exists():
        time.sleep(0.01)
    return child


def test_killed_process_releases_its_budget(rig: Rig, children: list[int], tmp_path: Path) -> None:
    rig.agreed(OLD, policy=ROOMY).close()
    children.append(fork_client(rig, OLD, ROOMY, tmp_path / "ready"))
    new = rig.client(NEW, policy=ROOMY)
    with collaborators(new).journal as state:
        assert state.accounts["", OLD.digest].reserved_units == ROOMY.units(unit_price(OLD).epsilon)
    child = children.pop()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    new.flush(5)
    with collaborators(new).journal as state:
        assert state.accounts["", OLD.digest].reserved_units == 1


def test_forked_child_keeps_budget_after_parent_exit(rig: Rig, children: list[int], tmp_path: Path) -> None:
    """A server that forks its workers after the client is made: the share is kept as long as one of them lives and records."""
    rig.agreed(OLD, policy=ROOMY).close()
    parent = os.fork()
    if parent == 0:
        client = rig.client(OLD, policy=ROOMY)
        worker = os.fork()
        if worker == 0:
            client.record("quiet", "0")
            (tmp_path / "worker").write_text(str(os.getpid()))
            while client:
                time.sleep(1)
        os._exit(0)
    os.waitpid(parent, 0)
    while not (tmp_path / "worker").exists():
        time.sleep(0.01)
    time.sleep(0.01)
    worker = int((tmp_path / "worker").read_text())
    try:
        new = rig.client(NEW, policy=ROOMY)
        new.flush(5)
        with collaborators(new).journal as state:
            assert state.accounts["", OLD.digest].reserved_units == ROOMY.units(unit_price(OLD).epsilon)
    finally:
        os.kill(worker, signal.SIGKILL)


def test_replaced_reports_are_counted_and_logged_once(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    policy = Policy(
        epsilon_report=999,
        epsilon_metric=2.5 * unit_price(OLD).epsilon,
        epsilon_enrollment=9 * PRICE,
        epsilon_total=99 * PRICE,
    )
    client = rig.agreed(OLD, policy=policy)
    with caplog.at_level(logging.WARNING, "hubbub"):
        for day in range(5):
            client.record("quiet", f"secret value {day}")
            deliver(client)
            rig.clock.move(days=1)
    assert stood_in(client) == 3
    collaborators(client).compactor.compact(always=True)
    client.close()
    assert stood_in(rig.client(OLD, policy=policy)) == 3
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.startswith("quiet: the budget has room for 2 values (epsilon = ")
    assert "secret value" not in line
