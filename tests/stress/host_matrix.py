"""Kill the processes of a server at random moments, then check that no recording and no charge is lost.

python -m tests.stress.host_matrix HOST KILLS SEED          (HOST: uwsgi, gunicorn-gevent, node; make matrix: 200 each)

The server has a master and three workers, which share a state directory. Several people call it at once, its clock advances by four hours
at each kill, and its clients send to an aggregator that keeps what arrives. SIGKILL ends a random worker, all workers, the
master (its workers live on while a new server starts), or everything, a random time after a random call.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection, HTTPException
from itertools import islice
from pathlib import Path
from random import Random
from threading import Event, Lock, Thread
from typing import Any

from tests.support.hosts import HOSTS, WORKERS, Host, Running, set_clock
from tests.support.recording_server import RecordingServer, recording_server

SUBJECTS = 20
FIRST = datetime(2026, 11, 21, tzinfo=UTC)
STEP = timedelta(hours=4)
LONGEST_WAIT = 60


@dataclass(frozen=True)
class Moment:
    """When a kill happens, and what it ends.

    victims : "worker", "workers", "master" or "all"
    calls   : number of calls that are answered before
    delay   : seconds after the last of them
    """

    victims: str
    calls: int
    delay: float


def moments(chance: Random) -> Iterator[Moment]:
    """Yield random moments."""
    while True:
        victims = chance.choices(["worker", "workers", "master", "all"], [5, 3, 1, 1])[0]
        yield Moment(victims, chance.randrange(1, 25), chance.uniform(0, 0.02))


class Traffic:
    """Calls of several people at once, until it is stopped.

    answered : recordings that the server acknowledged
    in_doubt : recordings whose connection broke, so that they may have been made
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.calls = self.answered = self.in_doubt = 0
        self.problems: list[str] = []
        self._lock = Lock()
        self._stopping = Event()
        self._threads = [Thread(target=self._run, args=(number,), daemon=True) for number in range(WORKERS)]
        for thread in self._threads:
            thread.start()

    def wait_for(self, calls: int) -> None:
        """Wait until some more calls are answered."""
        wanted, deadline = self.calls + calls, time.monotonic() + LONGEST_WAIT
        while self.calls < wanted:
            if self.problems or time.monotonic() > deadline:
                raise AssertionError(self.problems or f"{calls} calls took more than {LONGEST_WAIT} seconds")
            time.sleep(0.001)

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _run(self, caller: int) -> None:
        chance = Random(caller)  # noqa: S311
        while not self._stopping.is_set():
            path = "flush" if chance.random() < 0.1 else f"record/user{chance.randrange(SUBJECTS)}"
            connection = HTTPConnection(self.address, timeout=LONGEST_WAIT)
            try:
                connection.connect()
            except OSError:  # no server listens
                time.sleep(0.01)
                continue
            try:
                connection.request("GET", f"/{path}", headers={"Connection": "close"})
                response = connection.getresponse()
                body = response.read()
            except (OSError, HTTPException):
                self._count(path, "in_doubt")
            else:
                if response.status != 200:
                    self.problems.append(f"{path}: {response.status} {body!r}")
                self._count(path, "answered")
            finally:
                connection.close()

    def _count(self, path: str, how: str) -> None:
        with self._lock:
            self.calls += how == "answered"
            if path != "flush":
                setattr(self, how, getattr(self, how) + 1)


def kill(server: Running, victims: str, chance: Random) -> int:
    """Kill processes of a server; return their number."""
    workers = server.workers
    pids = {"worker": [chance.choice(workers)] if workers else [], "workers": workers, "master": []}.get(
        victims, workers
    )
    if victims in ("master", "all"):
        pids = [server.process.pid, *pids]
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(pids)


def call(address: str, path: str) -> Any:
    """Return the JSON that a server answers."""
    connection = HTTPConnection(address, timeout=LONGEST_WAIT)
    try:
        connection.request("GET", f"/{path}", headers={"Connection": "close"})
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def drain(host: Host, place: Path, aggregator: RecordingServer, now: datetime) -> dict[str, Any]:
    """Start the server once more, let it send all that is due, and return what its client says of itself."""
    set_clock(place, now)
    server = Running(host, place, aggregator.url)
    deadline = time.monotonic() + LONGEST_WAIT
    try:
        while not call(server.address, "flush"):
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"reports were due after {LONGEST_WAIT} seconds: {call(server.address, 'inspect')}"
                )
            now += timedelta(seconds=20)  # a sender that was killed holds its claim for some seconds of the clock
            set_clock(place, now)
        found = call(server.address, "inspect")
    finally:
        server.kill()
    server.require_no_errors()
    return dict(found)


def run(host: Host, kills: int, seed: int, place: Path) -> dict[str, Any]:
    """Kill the processes of a server; return the figures, or raise AssertionError if one of them is wrong."""
    chance, now, killed = Random(seed), FIRST, Counter[str]()  # noqa: S311
    set_clock(place, now)
    with recording_server() as aggregator:
        servers = [Running(host, place, aggregator.url)]
        traffic = Traffic(servers[-1].address)
        try:
            for moment in islice(moments(chance), kills):
                traffic.wait_for(moment.calls)
                time.sleep(moment.delay)
                killed[f"{moment.victims}: processes"] += kill(servers[-1], moment.victims, chance)
                killed[moment.victims] += 1
                now += STEP
                set_clock(place, now)
                if moment.victims in ("master", "all"):
                    servers[-1].require_no_errors()
                    servers.append(Running(host, place, aggregator.url))
                    servers[-2].kill()
                    traffic.address = servers[-1].address
        finally:
            traffic.stop()
            for server in servers:
                server.kill()
        servers[-1].require_no_errors()
        found = drain(host, place, aggregator, now.replace(hour=12) + timedelta(days=5))
        arrived = sum(map(len, aggregator.batches))
        repeated = len(aggregator.bodies) - len(aggregator.batches)
        periods = Counter[str]()
        for batch in aggregator.batches:
            periods[str(batch.period)] += len(batch)
    result = {"kills": kills, "seed": seed, "killed": dict(killed), "answered": traffic.answered} | found
    result |= {"in_doubt": traffic.in_doubt, "arrived": arrived, "repeated": repeated, "periods": len(periods)}
    people = SUBJECTS if host is not HOSTS["node"] else 1
    is_counted = traffic.answered <= found["recorded"] <= traffic.answered + traffic.in_doubt and not any(
        found["ignored"].values()
    )
    is_charged = found["acknowledged"] <= arrived <= found["formed"] <= found["charged"]
    is_sent = found["acknowledged"] >= found["formed"] - people  # those of the day before may not be due yet
    if not (is_counted and is_charged and is_sent and max(periods.values()) <= people):
        raise AssertionError(result)
    return result


def main(name: str, kills: int, seed: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        sys.stdout.write(json.dumps({"host": name} | run(HOSTS[name], kills, seed, Path(place))) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
