"""Kill the service at failpoints and at random moments, and check that no report is lost or counted twice.

python -m tests.stress.crash_matrix ENGINE PROCESSES CRASHES [SEED] [--proxy nginx] [--standby]      (or: make matrix, make soak)

A campaign is a database and 25 crashes. Each report sets one bit that no other report sets, without noise. So its count is
visible: 0 or 1, and 2 would be an error. The service is forked from this process, which has imported all modules and has
opened no database. After every crash acknowledged <= counted <= formed holds for each report. At the end of a campaign, when
every batch of an open period has been acknowledged, counted = formed. The clock advances, so that periods close.
The closed periods of metric `brief` are purged: acknowledged reports stay counted until then, and purged reports do not return.
The reports of metric `number` are retained: the retained reports equal the counts.

PROCESSES services share the database, each with its own port, as behind a proxy. At a failpoint the process that reaches it
is killed. At a random moment all processes are killed, or one of several, which is then replaced. On PostgreSQL it can also
be a backend of the server, or the whole server. Every fifth batch is sent twice at the same time, over two connections, to
one process or to two.

--proxy nginx : clients send to nginx, with the configuration of deploy/nginx. A killed process is replaced on its port.
--standby     : PostgreSQL replicates synchronously. The primary is also killed for good and the standby promoted: the processes
                must store batches again by themselves.
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import logging
import os
import random
import re
import signal
import socket
import ssl
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from select import select
from tempfile import TemporaryDirectory

import hubbub_aggregator
from hubbub import Batch, Metric, parse_definitions
from hubbub.summary import BitCounts, ReportFile
from hubbub_aggregator.app import create_app
from hubbub_aggregator.database import failpoints
from hubbub_aggregator.pipeline.credible_clock import CredibleClock, accept
from hubbub_aggregator.pipeline.folding import read_summary
from hubbub_aggregator.pipeline.report_export import write_reports
from hubbub_aggregator.pipeline.retention import upkeep
from hubbub_aggregator.server.listener import listen, run
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.sql_store import SqlStore
from tests.support.databases import new_postgres
from tests.support.free_ports import free_ports
from tests.support.nginx import NAME, nginx_before
from tests.support.postgres import Postgres, PostgresPair, postgres_pair, postgres_server

CRASHES_A_CAMPAIGN, BITS, SENDERS, GIVE_UP = 25, 1_024, 4, 15.0
ALL, ONE = "all at a random moment", "one process at a random moment"
BACKEND, SERVER = "a process of PostgreSQL at a random moment", "PostgreSQL at a random moment"
FAILOVER = "PostgreSQL's primary for good at a random moment"
FIRST_DAY, DAYS = date(2024, 6, 1), 8

_METRIC = """
[[metric]]
name = "{name}"
kind = "categorical"
description = "A bit of its own for each report."
owner = "owner@example.org"
categories = [{categories}]
prob_p = 0
prob_q = 1
prob_f = 0
expires = 2100-01-01
"""
_CATEGORIES = ", ".join(f'"{number}"' for number in range(BITS))
DEFINITIONS = parse_definitions("".join(_METRIC.format(name=n, categories=_CATEGORIES) for n in ("number", "brief")))
SETTINGS = Settings(fold_interval=0.02, keep_counts={"brief": 0}, keep_reports={"number": 10_000})


def failpoint_names() -> list[str]:
    """Return the names of all failpoints in the sources, so that the matrix includes new ones.

    Those of object stores are in segment_matrix.py.
    """
    sources = Path(hubbub_aggregator.__file__).parent.rglob("*.py")
    here = [source.read_text() for source in sources if source.parent.name != "segments"]
    return sorted({name for text in here for name in re.findall(r'\breach\("([^"]+)"\)', text)})


@dataclass
class Campaign:
    """One database, the reports formed for it, and those that were acknowledged."""

    database: str
    rng: random.Random
    ports: list[int]
    server: Postgres | PostgresPair | None = None
    proxy: tuple[int, ssl.SSLContext] | None = None  # its port, and what a client needs to trust it
    day: int = 0  # number of closed periods
    sent: dict[uuid.UUID, tuple[Batch, range, int]] = field(default_factory=dict)
    acknowledged: set[uuid.UUID] = field(default_factory=set)
    num_taken: int = 0  # acknowledged requests, also those that repeat a batch
    formed: int = 0
    reached: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)
    over: threading.Event = field(default_factory=threading.Event)
    database_died: bool = False
    next_victims: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)  # responses that should not occur

    @property
    def victims(self) -> list[str]:
        """The processes that can be killed at a random moment."""
        return [
            ALL,
            *([ONE] if len(self.ports) > 1 else []),
            *([BACKEND, SERVER] if self.server else []),
            *([FAILOVER] if isinstance(self.server, PostgresPair) else []),
        ]

    def _next_victim(self) -> str:
        """Return each victim once in a random order, then each once more, and so on."""
        if not self.next_victims:
            self.next_victims = self.rng.sample(self.victims, len(self.victims))
        return self.next_victims.pop()

    @property
    def now(self) -> datetime:
        """Noon of 2024-07-01, and one day later for each closed period."""
        return datetime(2024, 6, 30, 12, tzinfo=UTC) + timedelta(days=1 + self.day)

    def build_due(self, most: int) -> None:
        """Form batches for every open period; `brief` gets the same reports as `number`."""
        for _ in range(most):
            size = self.rng.randint(1, 3)
            if self.formed + size > BITS or self.day >= DAYS:
                return
            numbers, day = range(self.formed, self.formed + size), self.rng.randrange(self.day, DAYS)
            self.formed += size
            for metric in DEFINITIONS.versions():
                batch = _batch(metric, numbers, day)
                self.sent[batch.batch_id] = (batch, numbers, day)

    def crash(self, target: str | None) -> None:
        """Run the service until the failpoint or a random moment, and send batches in the meantime."""
        victim = target or self._next_victim()
        self.database_died = victim in (BACKEND, SERVER, FAILOVER)
        self.over.clear()
        service = Service(self, target, self.rng.randint(1, 3) if target and target.startswith("append") else 1)
        threads = [threading.Thread(target=self._send, daemon=True) for _ in range(SENDERS)]
        for thread in threads:
            thread.start()
        try:
            if target:
                service.wait_for(f"met {target}", GIVE_UP)
                met = f"met {target}" in service.messages
            else:
                if self.rng.random() < 0.8 or victim == FAILOVER:
                    service.wait_for("ready", GIVE_UP)
                service.wait_for("never sent", self.rng.uniform(0, 0.3))
                self._kill(victim, service)
                met = True
            if len(self.ports) > 1 and not service.is_over:
                service.wait_for("never sent", self.rng.choice([0, 0.1, 0.1, 0.8]))  # the other processes keep running
        finally:
            service.kill()  # its processes would hold the output of this one open
        self.over.set()
        for thread in threads:
            thread.join()
        if self.server:
            self.server.wait()
        self.reached[victim] += met

    def _kill(self, victim: str, service: Service) -> None:
        if victim == ALL:
            service.kill()
        elif victim == ONE:
            service.replace_one(self.rng)
        elif isinstance(self.server, PostgresPair) and victim == FAILOVER:
            self.server.fail_over()
            self._require_service()
        elif self.server and victim == BACKEND:
            self.server.kill_backend(self.rng)
        elif self.server:
            self.server.kill()
            self.server.start()

    def _require_service(self) -> None:
        """Wait until another batch is stored; fail after a time."""
        until, before = time.monotonic() + GIVE_UP, self.num_taken
        while self.num_taken == before:
            assert time.monotonic() < until, f"no batch was stored in the {GIVE_UP} seconds after the failover"
            time.sleep(0.01)

    def _connection(self, rng: random.Random) -> http.client.HTTPConnection:
        """Return a connection to the proxy, else to one of the processes."""
        if self.proxy is None:
            return http.client.HTTPConnection("127.0.0.1", rng.choice(self.ports), timeout=10)
        return _ProxyConnection(*self.proxy)

    def _send(self) -> None:
        rng = random.Random(self.rng.random())  # noqa: S311  (what to send)
        while not self.over.is_set():
            with self.lock:
                waiting = [batch_id for batch_id in self.sent if batch_id not in self.acknowledged]
                again = rng.random() < 0.2 or not waiting
                chosen = rng.choice(list(self.sent) if again else waiting)
            batch, _, day = self.sent[chosen]
            statuses = _post([self._connection(rng) for _ in range(2 if rng.random() < 0.2 else 1)], batch)
            expected = ({503} if self.database_died else set()) | ({502} if self.proxy else set())
            in_doubt = [status for status in statuses if status in expected]
            closed = [status for status in statuses if status == 410 and day < self.day]
            taken = [status for status in statuses if status in (200, 202)]
            with self.lock:
                if taken:
                    self.acknowledged.add(chosen)
                    self.num_taken += 1
                if taken.count(202) > 1 or len(in_doubt) + len(closed) + len(taken) < len(statuses):
                    self.unexpected.append(f"responses to one batch sent in parallel: {statuses}")
            if len(taken) + len(closed) == 0:
                time.sleep(0.005)

    def check(self, counted: dict[str, list[int]]) -> None:
        """Check the counts against the formed and the acknowledged reports."""
        assert not self.unexpected, self.unexpected
        assert set(counted["number"]) <= {0, 1}, "a report was counted twice"
        assert not any(counted["number"][self.formed :]), "a report was counted that was not formed"
        assert set(counted["brief"]) <= {0, 1}
        for batch_id, (batch, numbers, day) in self.sent.items():
            ones = [counted[batch.metric][number] for number in numbers]
            assert len(set(ones)) == 1, "a batch was stored in part"
            if batch_id in self.acknowledged and (batch.metric == "number" or day >= self.day):
                assert all(ones), "an acknowledged report is not counted"

    @property
    def proves_something(self) -> bool:
        """Whether more than 5 % of the batches were acknowledged; on a slow machine a service may be killed before it answers."""
        return len(self.acknowledged) > len(self.sent) / 20

    def finish(self) -> None:
        """Store all batches of open periods, then check that every report of an open period is counted."""
        assert self.proves_something, "5 % of the batches or fewer were acknowledged"
        counted = in_child(lambda: _settled(self))
        self.acknowledged |= {i for i, (_, _, day) in self.sent.items() if day >= self.day}
        self.check(counted)
        purged = [number for _, numbers, day in self.sent.values() if day < self.day for number in numbers]
        assert not any(counted["brief"][number] for number in purged), "a purged report is counted again"


def _batch(metric: Metric, numbers: range, day: int) -> Batch:
    rows = b"".join((1 << number).to_bytes(metric.row_bytes, "little") for number in numbers)
    period = (FIRST_DAY + timedelta(days=day)).isoformat()
    return Batch(uuid.uuid4(), metric.name, metric.digest, period, bytes(len(numbers)), rows)


class _ProxyConnection(http.client.HTTPConnection):
    """A TLS connection to a proxy on this machine, under the name of its certificate."""

    def __init__(self, port: int, trust: ssl.SSLContext) -> None:
        super().__init__("127.0.0.1", port, timeout=10)
        self._trust = trust

    def connect(self) -> None:
        super().connect()
        self.sock = self._trust.wrap_socket(self.sock, server_hostname=NAME)


def _post(through: Sequence[http.client.HTTPConnection], batch: Batch) -> list[int]:
    """Send a batch over each connection at the same time; return the statuses of the responses that arrived."""
    body, connections, statuses = batch.to_json(), [], []
    with ExitStack() as stack:
        for connection in through:
            stack.enter_context(closing(connection))
            with suppress(OSError):
                connection.request("POST", "/v1/reports", body, {"Content-Type": "application/json"})
                connections.append(connection)
        for connection in connections:
            with suppress(OSError, http.client.HTTPException):
                statuses.append(connection.getresponse().status)
    return statuses


class Service:
    """The processes of the service, in one process group; they send `ready` and `met FAILPOINT` over a pipe.

    messages : lines received so far
    """

    def __init__(self, campaign: Campaign, target: str | None, countdown: int) -> None:
        self.messages: list[str] = []
        self.is_over = False
        self._campaign, self._target, self._countdown = campaign, target, countdown
        self._read_end, self._write_end = os.pipe()
        self._group = 0
        self._pids = [self._start(port) for port in campaign.ports]

    def _start(self, port: int) -> int:
        with listen("127.0.0.1", port) as listener:
            pid = os.fork()
            if pid == 0:
                os.setpgid(0, self._group)
                os.close(self._read_end)
                _serve(self._campaign, listener, self._target, self._countdown, self._write_end)
        self._group = self._group or pid
        with suppress(OSError):  # the child may have joined the group already
            os.setpgid(pid, self._group)
        return pid

    def wait_for(self, message: str, seconds: float) -> None:
        """Wait until a process has sent this message, at most `seconds`."""
        until = time.monotonic() + seconds
        while message not in self.messages:
            if not select([self._read_end], [], [], max(0, until - time.monotonic()))[0]:
                return
            self.messages += os.read(self._read_end, 1 << 16).decode().splitlines()

    def replace_one(self, rng: random.Random) -> None:
        """Kill a process other than the first, which is the group's leader, and start another one on its port."""
        number = rng.randrange(1, len(self._pids))
        os.kill(self._pids[number], signal.SIGKILL)
        os.waitpid(self._pids[number], 0)
        self._pids[number] = self._start(self._campaign.ports[number])

    def kill(self) -> None:
        """Kill all processes at once, and wait until they are gone."""
        if self.is_over:
            return
        self.is_over = True
        with suppress(ProcessLookupError):
            os.killpg(self._group, signal.SIGKILL)
        for pid in self._pids:
            os.waitpid(pid, 0)
        os.close(self._read_end)
        os.close(self._write_end)


def _serve(campaign: Campaign, listener: socket.socket, target: str | None, countdown: int, write_end: int) -> None:
    """Run one process of the service, in the child, until it is killed."""
    left = countdown

    def send(message: str) -> None:
        os.write(write_end, f"{message}\n".encode())

    def hook(name: str) -> None:
        nonlocal left
        if name == target:  # called from several threads
            left -= 1
            if left <= 0:
                send(f"met {name}")
                os.kill(os.getpid(), signal.SIGKILL)

    now = campaign.now.timestamp()
    logging.disable()
    failpoints.listen(hook)
    try:
        store = SqlStore.open(campaign.database)
        accept(store, now)  # each crash may be followed by a later day
        clock = CredibleClock(store, wall=lambda: now)
        run(
            create_app(DEFINITIONS, store, SETTINGS, clock),
            [listener],
            SETTINGS.connection_limits(),
            lambda: send("ready"),
        )
    finally:
        os._exit(3)


def in_child(work: Callable[[], dict[str, list[int]]]) -> dict[str, list[int]]:
    """Run work that opens the database in a child process, because this process must be able to fork."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        with os.fdopen(write_end, "w") as pipe:
            json.dump(work(), pipe)
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        counted: dict[str, list[int]] = json.load(pipe)
    os.waitpid(child, 0)
    return counted


def _counted(store: SqlStore) -> dict[str, list[int]]:
    counted = {}
    for metric in DEFINITIONS.versions():
        summary = read_summary(store, metric)
        assert isinstance(summary, BitCounts)
        counted[metric.name] = [int(count) for count in summary.ones[0]]
        if metric.name in SETTINGS.keep_reports:
            file = io.BytesIO()
            write_reports(store, metric, summary.periods, file)
            retained = ReportFile(file).bit_counts().ones[0]
            differences = {
                n: (c, int(r)) for n, (c, r) in enumerate(zip(counted[metric.name], retained, strict=True)) if c != r
            }
            assert not differences, f"counted and retained differently: {differences}"
    return counted


def _read(campaign: Campaign) -> dict[str, list[int]]:
    store = SqlStore.open(campaign.database)
    return _counted(store)


def _settled(campaign: Campaign) -> dict[str, list[int]]:
    store = SqlStore.open(campaign.database)
    store.append([batch for batch, _, day in campaign.sent.values() if day >= campaign.day])
    for _ in range(2):
        upkeep(store, DEFINITIONS, SETTINGS, campaign.now)
    return _counted(store)


def _ends_a_period(target: str | None) -> bool:
    return target is not None and target.startswith(("close", "purge"))


def _not_before(target: str | None) -> float:
    """Return the fraction of a campaign before a failpoint: tables are created at the first start, a purge needs reports."""
    if target is not None and target.startswith("start"):
        return -1
    return 0.3 if _ends_a_period(target) else 0


def campaign(
    crashes: int, seed: int, processes: int, server: Postgres | PostgresPair | None, *, with_proxy: bool
) -> Counter[str]:
    """Run one campaign; return the number of crashes at each failpoint."""
    rng = random.Random(seed)  # noqa: S311  (when to kill)
    targets: list[str | None] = [name for name in failpoint_names() if crashes >= CRASHES_A_CAMPAIGN]
    targets += [None] * (crashes - len(targets))
    targets.sort(key=lambda target: _not_before(target) + (1 - abs(_not_before(target))) * rng.random())
    ports = free_ports(processes)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="hubbub-crash-")))
        database = new_postgres(server.url) if server else str(directory / "reports.db")
        proxy = stack.enter_context(nginx_before(ports, directory)) if with_proxy else None
        one = Campaign(database, rng, ports, server, proxy)
        for number, target in enumerate(targets):
            one.build_due(2 + BITS // 3 // crashes)
            if _ends_a_period(target):
                one.day += 1
            one.crash(target)
            if number % 2:
                one.check(in_child(lambda: _read(one)))
        until = time.monotonic() + GIVE_UP
        while not one.proves_something and time.monotonic() < until:
            one.crash(None)
        one.finish()
        return one.reached


def main(engine: str, processes: int, crashes: int, seed: int, *, with_proxy: bool, with_standby: bool) -> None:
    began, reached = time.monotonic(), Counter[str]()
    database = postgres_pair() if with_standby else postgres_server() if engine == "postgres" else nullcontext()
    with database as server:
        for number, start in enumerate(range(0, crashes, CRASHES_A_CAMPAIGN)):
            print(f"{start} of {crashes} crashes; then seed {seed + number}", file=sys.stderr)  # noqa: T201
            some = min(CRASHES_A_CAMPAIGN, crashes - start)
            reached += campaign(some, seed + number, processes, server, with_proxy=with_proxy)
    for name in sorted({*failpoint_names(), *reached}):
        print(f"{reached[name]:5}  {name}")  # noqa: T201
    behind = (" behind nginx" if with_proxy else "") + (" with a standby" if with_standby else "")
    print(  # noqa: T201
        f"{crashes} crashes of {processes} processes on {engine}{behind} in {time.monotonic() - began:.0f} s, seed {seed}: "
        "nothing lost, nothing counted twice"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("engine", choices=["sqlite", "postgres"])
    parser.add_argument("processes", type=int)
    parser.add_argument("crashes", type=int)
    parser.add_argument("seed", type=int, nargs="?", default=random.SystemRandom().getrandbits(48))
    parser.add_argument("--proxy", choices=["nginx"])
    parser.add_argument("--standby", action="store_true", help="with the engine postgres")
    given = parser.parse_args()
    if given.standby and given.engine != "postgres":
        parser.error("--standby needs the engine postgres")
    main(
        given.engine,
        given.processes,
        given.crashes,
        given.seed,
        with_proxy=given.proxy is not None,
        with_standby=given.standby,
    )
