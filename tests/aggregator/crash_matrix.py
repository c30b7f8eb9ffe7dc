"""Kill the service at named and at random moments, and see that no report is lost and none is counted twice.

python tests/aggregator/crash_matrix.py CRASHES [SEED]      (or: make matrix, make soak)

A campaign is a database and 25 crashes. Each report has a bit of its own, and no noise, so that its count is seen: 0, 1,
or the 2 that must not be. The service is forked from this process, which has imported all it needs and opened nothing.
After every crash acknowledged <= counted <= formed, report by report; at a campaign's end, when every batch of an open
period has been answered, the two are equal. The clock moves on, so that periods close, and those of one metric are
purged: what had been acknowledged stays counted as it was, what is purged stays away.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import random
import re
import signal
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import hubbub_aggregator
from hubbub import Batch, Metric, parse_definitions
from hubbub.summary import BitCounts
from hubbub_aggregator import failpoints
from hubbub_aggregator.app import create_app
from hubbub_aggregator.folding import read_summary
from hubbub_aggregator.lifecycle import upkeep
from hubbub_aggregator.server import listen, run
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.sql_store import SqlStore

CRASHES_A_CAMPAIGN, BITS, SENDERS, GIVE_UP = 25, 1_024, 4, 15.0
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
SETTINGS = Settings(fold_every=0.02, keep={"brief": 0})


def failpoint_names() -> list[str]:
    """Find every named moment in the sources: a new one is in the matrix by itself."""
    sources = Path(hubbub_aggregator.__file__).parent.glob("*.py")
    return sorted({name for source in sources for name in re.findall(r'\breach\("([^"]+)"\)', source.read_text())})


@dataclass
class Campaign:
    """One database, the reports formed for it, and what is known of them."""

    database: Path
    rng: random.Random
    day: int = 0  # how many periods have closed
    sent: dict[uuid.UUID, tuple[Batch, range, int]] = field(default_factory=dict)
    acknowledged: set[uuid.UUID] = field(default_factory=set)
    formed: int = 0
    reached: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def now(self) -> datetime:
        """Noon of the last of the days, and from then on one day further for each period that is to close."""
        return datetime(2024, 6, 30, 12, tzinfo=UTC) + timedelta(days=1 + self.day)

    def form(self, most: int) -> None:
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
        """Run the service until the named moment, or a random one, and send it batches meanwhile."""
        listener = listen("127.0.0.1", 0)
        port = listener.getsockname()[1]
        countdown = self.rng.randint(1, 3) if target and target.startswith("append") else 1
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read_end)
            _serve(self.database, self.now, listener, target, countdown, write_end)
        os.close(write_end)
        listener.close()
        threads = [threading.Thread(target=self._send, args=(port,)) for _ in range(SENDERS)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + (GIVE_UP if target else self.rng.uniform(0.05, 0.3))
        while not os.waitpid(child, os.WNOHANG)[0]:
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                break
            time.sleep(0.002)
        for thread in threads:
            thread.join()
        with os.fdopen(read_end, "rb") as pipe:
            self.reached[target or "a random moment"] += bool(pipe.read()) if target else 1

    def _send(self, port: int) -> None:
        rng = random.Random(self.rng.random())  # noqa: S311  (what to send)
        while True:
            with self.lock:
                waiting = [batch_id for batch_id in self.sent if batch_id not in self.acknowledged]
                again = rng.random() < 0.2 or not waiting
                chosen = rng.choice(list(self.sent) if again else waiting)
            batch, _, day = self.sent[chosen]
            status = _post(port, batch)
            if status is None:
                return  # no answer: in doubt
            assert status in (200, 202) or (status == 410 and day < self.day), status
            if status != 410:
                with self.lock:
                    self.acknowledged.add(chosen)

    def check(self, counted: dict[str, list[int]]) -> None:
        """Compare what is counted with what is known."""
        assert set(counted["number"]) <= {0, 1}, "a report was counted twice"
        assert not any(counted["number"][self.formed :]), "a report was counted that nobody formed"
        assert set(counted["brief"]) <= {0, 1}
        for batch_id, (batch, numbers, day) in self.sent.items():
            ones = [counted[batch.metric][number] for number in numbers]
            assert len(set(ones)) == 1, "a batch was stored in part"
            if batch_id in self.acknowledged and (batch.metric == "number" or day >= self.day):
                assert all(ones), "an acknowledged report is not counted"

    def finish(self) -> None:
        """Answer whatever can still be answered; then all that is formed is counted, where it can be."""
        counted = _in_child(lambda: _settled(self))
        self.acknowledged |= {i for i, (_, _, day) in self.sent.items() if day >= self.day}
        self.check(counted)
        purged = [number for _, numbers, day in self.sent.values() if day < self.day for number in numbers]
        assert not any(counted["brief"][number] for number in purged), "what was purged has come back"


def _batch(metric: Metric, numbers: range, day: int) -> Batch:
    rows = b"".join((1 << number).to_bytes(metric.params.row_bytes, "little") for number in numbers)
    period = (FIRST_DAY + timedelta(days=day)).isoformat()
    return Batch(uuid.uuid4(), metric.name, metric.digest, period, bytes(len(numbers)), rows)


def _post(port: int, batch: Batch) -> int | None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("POST", "/v1/reports", batch.to_json(), {"Content-Type": "application/json"})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def _serve(database: Path, now: datetime, listener: object, target: str | None, countdown: int, write_end: int) -> None:
    """Be the service, in the child, until killed."""
    left = countdown

    def hook(name: str) -> None:
        nonlocal left
        left -= name == target
        if left == 0:
            os.write(write_end, b"x")
            os.kill(os.getpid(), signal.SIGKILL)

    logging.disable()
    failpoints.listen(hook)
    app = create_app(DEFINITIONS, SqlStore.open(database), SETTINGS, clock=lambda: now)
    run(app, listener, ready=lambda: None)  # type: ignore[arg-type]  # a socket; this line never returns
    os._exit(3)


def _in_child(work: Callable[[], dict[str, list[int]]]) -> dict[str, list[int]]:
    """Do what opens the database in a process of its own: this one must be able to fork."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        with os.fdopen(write_end, "w") as pipe:
            json.dump(work(), pipe)
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        told: dict[str, list[int]] = json.load(pipe)
    os.waitpid(child, 0)
    return told


def _counted(store: SqlStore) -> dict[str, list[int]]:
    counted = {}
    for metric in DEFINITIONS.versions():
        summary = read_summary(store, metric)
        assert isinstance(summary, BitCounts)
        counted[metric.name] = [int(count) for count in summary.ones[0]]
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


def campaign(crashes: int, seed: int) -> Counter[str]:
    """Run one campaign; return how often each moment was met."""
    rng = random.Random(seed)  # noqa: S311  (when to kill)
    targets: list[str | None] = [name for name in failpoint_names() if crashes >= CRASHES_A_CAMPAIGN]
    targets += [None] * (crashes - len(targets))
    targets.sort(
        key=lambda target: rng.uniform(0.3 if _ends_a_period(target) else 0, 1)
    )  # it must have reports by then
    with TemporaryDirectory(prefix="hubbub-crash-") as directory:
        one = Campaign(Path(directory) / "reports.db", rng)
        for number, target in enumerate(targets):
            one.form(2 + BITS // 3 // crashes)
            if _ends_a_period(target):
                one.day += 1
            one.crash(target)
            if number % 2:
                one.check(_in_child(lambda: _read(one)))
        one.finish()
        return one.reached


def main(crashes: int, seed: int) -> None:
    began, reached = time.monotonic(), Counter[str]()
    for number, start in enumerate(range(0, crashes, CRASHES_A_CAMPAIGN)):
        reached += campaign(min(CRASHES_A_CAMPAIGN, crashes - start), seed + number)
    for name in [*failpoint_names(), "a random moment"]:
        print(f"{reached[name]:5}  {name}")  # noqa: T201
    print(  # noqa: T201
        f"{crashes} crashes in {time.monotonic() - began:.0f} s, seed {seed}: nothing lost, nothing counted twice"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().getrandbits(48))
