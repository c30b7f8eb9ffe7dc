"""Damage the files of a SQLite database while it is served, end the service, and check what is left.

python -m tests.stress.served_damage_matrix CASES [SEED]          (make matrix: 200)

A case is a database, mostly with reports in it, a service (`hubbub serve`, forked from this process, which has imported all
modules), and four senders.
At a random moment the database file, its `-wal` or its `-shm` is truncated, emptied or removed. The senders go on for .6
seconds, and then SIGTERM or SIGKILL ends the service. Each batch has one report, with one bit that no other report of its period
has, and without noise. So the report can be read from whatever is left of the files. In every case

- a batch that was sent after the damage, and acknowledged, is in the files;
- the files hold after SIGTERM everything that they held before it;
- a service that refused its last batch does not say that it is ready (`/readyz`), and no signal of the system ends it.

A truncated `-shm` may end the process with SIGBUS, because SQLite maps this file into memory. Every tenth case has no damage: then every acknowledged batch is in the files, the service stays ready and ends with 0.
"""

from __future__ import annotations

import http.client
import os
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

import hubbub_aggregator.app
import hubbub_aggregator.server.listener  # noqa: F401  (imported before the fork, like the line above)
from hubbub import Batch, parse_definitions
from hubbub.cli import main as hubbub
from hubbub.errors import HubbubError
from hubbub.summary import BitCounts, summary_from_bytes
from hubbub_aggregator.pipeline.folding import fold
from hubbub_aggregator.store.sql_store import SqlStore
from tests.stress.file_damage import Damage, empty, remove, truncate
from tests.support.free_ports import free_ports

BITS, PERIODS, SENDERS, WATCHED_SECONDS = 1_024, 5, 4, 0.6
SUFFIXES = ("", "-wal", "-shm")
DAMAGES: tuple[Damage, ...] = (truncate, empty, remove)
_METRIC = f"""
[[metric]]
name = "number"
kind = "categorical"
description = "A bit of its own for each report."
owner = "owner@example.org"
categories = [{", ".join(f'"{number}"' for number in range(BITS))}]
prob_p = 0
prob_q = 1
prob_f = 0
expires = 2100-01-01
"""
METRIC = parse_definitions(_METRIC)["number"]
DAYS = [(datetime.now(tz=UTC).date() - timedelta(days=number)).isoformat() for number in range(PERIODS)]


def _batch(number: int) -> Batch:
    row = (1 << number % BITS).to_bytes(METRIC.row_bytes, "little")
    return Batch(uuid.uuid4(), METRIC.name, METRIC.digest, DAYS[number // BITS], bytes(1), row)


@dataclass
class Case:
    """One database, one damage and the batches that were acknowledged.

    acknowledged : time of sending of each acknowledged report, by its number
    """

    place: Path
    chance: random.Random
    damage: Damage | None
    suffix: str
    ends: signal.Signals
    acknowledged: dict[int, float] = field(default_factory=dict)
    is_detected: bool = False
    last_status: int | None = None
    num_formed: int = 0
    unexpected: list[int] = field(default_factory=list)  # statuses that should not occur
    lock: threading.Lock = field(default_factory=threading.Lock)
    over: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.database = self.place / "r.db"
        if self.chance.random() < 0.7:
            self._prefill(self.chance.choice((50, 500, 1_500)))
        (self.port,) = free_ports(1)
        (self.place / "metrics.toml").write_text(_METRIC)

    def _prefill(self, num: int) -> None:
        """Store and fold reports, and close the database: they are in the database file, and there is no log."""
        pid = os.fork()
        if pid == 0:
            store = SqlStore.open(self.database)
            numbers = range(num)
            for start in range(0, num, 50):
                store.append([_batch(number) for number in numbers[start : start + 50]])
                if self.chance.random() < 0.3:
                    fold(store, METRIC)
            store.close()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        self.num_formed = num
        self.acknowledged = dict.fromkeys(range(num), 0.0)

    def _serve(self) -> int:
        """Start `hubbub serve` in a child; return its process id."""
        pid = os.fork()
        if pid:
            return pid
        code = 70
        try:
            with (self.place / "serve.log").open("wb") as log:
                os.dup2(log.fileno(), 2)
            interval = self.chance.choice(["0.05", "0.3", "10"])
            options = ["--port", str(self.port), "--fold-interval", interval, "--create"]
            options += ["--keep-reports", "number=1"] if self.chance.random() < 0.3 else []
            hubbub(["serve", str(self.place / "metrics.toml"), "--database", str(self.database), *options])
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0
        finally:
            os._exit(code)

    def _request(self, method: str, path: str, body: bytes | None = None) -> int | None:
        """Return the status of the response; None: there was none."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        with closing(connection), suppress(OSError, http.client.HTTPException):
            connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
            return connection.getresponse().status
        return None

    def _send(self) -> None:
        """Send new batches, until the case is over."""
        while not self.over.is_set():
            with self.lock:
                number = self.num_formed
                self.num_formed += 1
            if number >= BITS * PERIODS:
                return
            body, began = _batch(number).to_json(), time.monotonic()
            status = self._request("POST", "/v1/reports", body)
            self.last_status = status
            if status == 202:
                self.acknowledged[number] = began
            elif status not in (503, None):
                self.unexpected.append(status)
            time.sleep(0.002 if status == 202 else 0.02)

    def run(self) -> list[str]:
        """Return the broken promises."""
        pid = self._serve()
        ended: int | None = None
        try:
            until = time.monotonic() + 20
            while self._request("GET", "/readyz") != 200:
                assert time.monotonic() < until, (self.place / "serve.log").read_text()
                time.sleep(0.01)
            threads = [threading.Thread(target=self._send) for _ in range(SENDERS)]
            for thread in threads:
                thread.start()
            wanted = len(self.acknowledged) + self.chance.choice((20, 100, 300, 600))
            until = time.monotonic() + 20
            while len(self.acknowledged) < wanted and time.monotonic() < until:
                time.sleep(0.001)
            time.sleep(self.chance.uniform(0, 0.03))
            if self.damage is not None:
                self.damage(Path(f"{self.database}{self.suffix}"), self.chance)
            damaged = time.monotonic()
            time.sleep(WATCHED_SECONDS)
            self.over.set()
            for thread in threads:
                thread.join()
            is_ready = self._request("GET", "/readyz") == 200
            held = self._held_by_a_copy(pid)
            with suppress(ProcessLookupError):
                os.kill(pid, self.ends)
            ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        finally:
            self.over.set()
            if ended is None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        self.is_detected = not is_ready
        return list(self._broken(held, reports_in(self.database), damaged, is_ready=is_ready, ended=ended))

    def _held_by_a_copy(self, pid: int) -> set[int]:
        """Return the reports in a copy of the files, taken while the service is stopped."""
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
        (there := self.place / "copy").mkdir()
        for suffix in ("", "-wal"):
            with suppress(FileNotFoundError):
                shutil.copy(f"{self.database}{suffix}", there)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        return reports_in(there / "r.db")

    def _broken(
        self, before: set[int], after: set[int], damaged: float, *, is_ready: bool, ended: int
    ) -> Iterator[str]:
        late = {number for number, began in self.acknowledged.items() if began > damaged}
        if lost := late - after:
            yield f"{len(lost)} of {len(late)} batches are lost that were sent after the damage"
        if self.unexpected:
            yield f"responses that should not occur: {self.unexpected}"
        if lost := before - after:
            yield f"the end of the service destroyed {len(lost)} of {len(before)} reports"
        if self.damage is None:
            if lost := set(self.acknowledged) - after:
                yield f"{len(lost)} of {len(self.acknowledged)} batches are lost without damage"
            if not is_ready:
                yield "the service was not ready, without damage"
            if self.ends == signal.SIGTERM and ended:
                yield f"the service ended with {ended}, without damage"
        elif is_ready and self.last_status == 503:
            yield "the service said that it was ready, and refused its last batch"
        if ended not in (0, 1, -self.ends, -signal.SIGBUS):  # SIGBUS: a truncated `-shm`
            yield f"the service ended with {ended}"


def reports_in(database: Path) -> set[int]:
    """Return the numbers of the reports that SQLite reads from a database, as far as it reads it."""
    found: set[int] = set()
    unreadable = sqlite3.DatabaseError, UnicodeDecodeError  # of damaged text, and of a message that quotes it
    is_text = "typeof(period) = 'text'"  # damage changes types, too
    if not database.exists():
        return found
    with closing(sqlite3.connect(database)) as connection:
        with suppress(*unreadable):
            for period, summary in connection.execute(
                f"SELECT period, summary FROM collection WHERE typeof(summary) = 'blob' AND {is_text}"
            ):
                found |= _numbers(period, _bits_of_summary(summary))
        with suppress(*unreadable):
            for period, reports in connection.execute(
                "SELECT period, reports FROM segment JOIN collection ON collection.id = collection_id "
                f"WHERE typeof(reports) = 'blob' AND {is_text} ORDER BY segment.id"
            ):
                bits = np.unpackbits(np.frombuffer(reports, np.uint8), bitorder="little")
                found |= _numbers(period, bits[: len(bits) // BITS * BITS].reshape(-1, BITS).any(axis=0))
    return found


def _bits_of_summary(data: bytes) -> Any:
    try:
        summary = summary_from_bytes(data)
    except HubbubError:
        return []
    assert isinstance(summary, BitCounts)
    return summary.ones[0]


def _numbers(period: str, bits: Any) -> set[int]:
    """Return the numbers of the reports of a period whose bits are set; a damaged period has none."""
    return {DAYS.index(period) * BITS + int(bit) for bit in np.flatnonzero(bits)} if period in DAYS else set()


def cases(number: int, seed: int) -> Iterator[tuple[Damage | None, str, signal.Signals, random.Random]]:
    """Yield all combinations in a random order, again and again; every tenth case has no damage."""
    chance = random.Random(seed)  # noqa: S311
    left: list[tuple[Damage, str, signal.Signals]] = []
    for number_of_case in range(number):
        own = random.Random(chance.random())  # noqa: S311
        if number_of_case % 10 == 9:
            yield None, "", own.choice((signal.SIGTERM, signal.SIGKILL)), own
            continue
        if not left:
            left = [(d, s, e) for d in DAMAGES for s in SUFFIXES for e in (signal.SIGTERM, signal.SIGKILL)]
            chance.shuffle(left)
        yield *left.pop(), own


def main(number: int, seed: int) -> None:
    began, broken, seen, detected = time.monotonic(), list[str](), Counter[str](), Counter[str]()
    acknowledged, keep = 0, os.environ.pop("HUBBUB_KEEP", None)
    for number_of_case, (damage, suffix, ends, chance) in enumerate(cases(number, seed)):
        name = f"{damage.__name__} r.db{suffix}" if damage else "no damage"
        with tempfile.TemporaryDirectory(prefix="hubbub-damage-") as place:
            case = Case(Path(place), chance, damage, suffix, ends)
            problems = case.run()
            acknowledged += len(case.acknowledged)
            if problems and keep:
                shutil.copytree(place, f"{keep}/{number_of_case}")
        seen[name] += 1
        detected[name] += case.is_detected
        broken += [f"case {number_of_case}, {name}, {ends.name}: {problem}" for problem in problems]
        for problem in problems:
            print(f"case {number_of_case}, {name}, {ends.name}: {problem}", file=sys.stderr)  # noqa: T201
    print("cases  detected")  # noqa: T201
    for name, times in sorted(seen.items()):
        print(f"{times:5}  {detected[name]:8}  {name}")  # noqa: T201
    print(  # noqa: T201
        f"{number} cases in {time.monotonic() - began:.0f} s, seed {seed}: {acknowledged} batches acknowledged, "
        f"{len(broken)} promises broken"
    )
    if broken:
        raise SystemExit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().getrandbits(48))
