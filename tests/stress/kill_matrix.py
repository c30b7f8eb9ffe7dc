"""Kill client and aggregator at seeded random points, then check that every report is counted once and both identities hold.

python -m tests.stress.kill_matrix POINTS SEED          (make matrix: 200, make soak: 1000)

A life of a client is a child forked from this preloaded process. SIGKILL ends it before or after its n-th operation on the disk or the
network, or in the middle of an append with its record half written. At every third point two lives share the directory, each killed at
its own time. Every tenth point kills the aggregator as well, and restarts it. The aggregator requires tokens; the first that a life gives it
has been revoked.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hubbub import Client
from hubbub.client import collaborators
from hubbub.sdk.assembly import AllSeams
from hubbub.sdk.storage.filesystem import File, SystemDisk
from hubbub.sdk.upload.retry_policy import UploadResponse
from hubbub.sdk.upload.transport import HttpTransport, always
from hubbub.testing import UNLIMITED, ManualClock, deliver
from hubbub_decoder.data.pull import pull_summary
from tests.support.paths import DATA

METRICS = DATA / "metrics.toml"
NAMES = ("homepage", "os", "dark_mode")
LIVES, DAYS = 3, 6


class Killer:
    """Kills this process at its n-th step, and writes the name of the step to a file."""

    def __init__(self, at: int, step_file: Path) -> None:
        self._left = at
        self._step_file = step_file

    def step(self, name: str, last: Callable[[], Any] = bool) -> None:
        self._left -= 1
        if self._left == 0:
            last()
            self._step_file.write_text(name)
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, name: str, do: Callable[[], Any]) -> Any:
        self.step(f"before {name}")
        done = do()
        self.step(f"after {name}")
        return done


class KilledFile:
    def __init__(self, file: File, killer: Killer) -> None:
        self._file, self._killer = file, killer
        self.identity, self.read, self.close = file.identity, file.read, file.close

    def append(self, data: bytes) -> None:
        self._killer.step("amid append", lambda: self._file.append(data[: len(data) // 2]))
        self._killer.around("append", lambda: self._file.append(data))

    def sync(self) -> None:
        self._killer.around("sync", self._file.sync)


class KilledDisk(SystemDisk):
    def __init__(self, killer: Killer) -> None:
        self._killer = killer

    def open(self, path: Path) -> File:
        return KilledFile(super().open(path), self._killer)

    def open_new(self, path: Path) -> File:
        return KilledFile(super().open_new(path), self._killer)

    def replace(self, source: Path, target: Path) -> None:
        self._killer.around("replace", lambda: SystemDisk.replace(self, source, target))

    def link(self, source: Path, target: Path) -> None:
        self._killer.around("link", lambda: SystemDisk.link(self, source, target))

    def remove(self, path: Path) -> None:
        self._killer.around("remove", lambda: SystemDisk.remove(self, path))

    def sync_directory(self, path: Path) -> None:
        self._killer.around("sync_directory", lambda: SystemDisk.sync_directory(self, path))


class KilledTransport:
    def __init__(self, url: str, tokens: Tokens, killer: Killer) -> None:
        self._transport, self._killer = HttpTransport(url, authorization=tokens), killer

    def send(self, body: bytes, is_wanted: Callable[[], bool] = always) -> UploadResponse:
        answer: UploadResponse = self._killer.around("send", lambda: self._transport.send(body, is_wanted))
        return answer


class Tokens:
    """The app's function: a token that was revoked, and then the valid one."""

    def __init__(self, *tokens: str) -> None:
        self._tokens = list(tokens)

    def __call__(self) -> str:
        return self._tokens.pop(0) if len(self._tokens) > 1 else self._tokens[0]


class Aggregator:
    """A `hubbub serve` that can be killed and restarted on the same port with the same database."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._port = "0"
        self.start()
        self._revoked, self._valid = (self._token("create", name, "--scope", "report") for name in ("revoked", "valid"))
        self._token("revoke", "revoked")

    @property
    def tokens(self) -> Tokens:
        """Tokens for one life of a client."""
        return Tokens(self._revoked, self._valid)

    def _token(self, *words: str) -> str:
        program = Path(sys.executable).with_name("hubbub")
        command = [str(program), "token", *words, "--database", str(self._place / "reports.db")]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def start(self) -> None:
        log = self._place / "serve.log"
        program = Path(sys.executable).with_name("hubbub")
        command = [str(program), "serve", str(METRICS), "--port", self._port, "--local-reads-without-token"]
        command += [
            "--require-report-token",
            "--local-port",
            "0",
            "--database",
            str(self._place / "reports.db"),
            "--create",
        ]
        with log.open("wb") as errors:
            self.process = subprocess.Popen(command, stderr=errors)
        while not (found := re.search(r"listening on (\S+:(\d+))", log.read_text())):
            if self.process.poll() is not None:
                raise RuntimeError(log.read_text())
        self.url, self._port = found.group(1), found.group(2)
        local = re.search(r"without a token on (\S+)", log.read_text())
        assert local, log.read_text()
        self.local_url = local.group(1)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def life(state: Path, aggregator: Aggregator, day: datetime, seed: int, killer: Killer) -> None:
    """Record, advance the clock and send, until the killer ends the process."""
    chance, clock = random.Random(seed), ManualClock(day.date())  # noqa: S311
    transport = KilledTransport(aggregator.url, aggregator.tokens, killer)
    seams = AllSeams(disk=KilledDisk(killer), clock=clock, transport=transport)
    client = Client(METRICS, state, aggregator.url, policy=UNLIMITED, environment={}, seams=seams)
    client.set_consent("on")
    for _ in range(DAYS // LIVES):
        for _ in range(chance.randrange(1, 4)):
            client.record("homepage", str(chance.randrange(4)))
        if chance.random() < 0.5:
            deliver(client)
        if chance.random() < 0.3:
            collaborators(client).compactor.compact(always=True)
        clock.move(days=1)
    os._exit(0)


def point(aggregator: Aggregator, place: Path, number: int, chance: random.Random) -> tuple[Counter[str], str]:
    """Kill one client once in each of its lives; return its accounting after all is delivered, and the steps of the kills."""
    state = place / str(number)
    first = datetime.now(UTC) - timedelta(days=DAYS)
    where = []
    for life_number in range(LIVES):
        children = []
        for sibling in range(2 if number % 3 == 0 else 1):
            step_file = place / f"step {sibling}"
            step_file.write_text("nowhere")
            killer, seed = Killer(chance.randrange(1, 60), step_file), chance.randrange(1 << 32)
            child = os.fork()
            if child == 0:
                life(state, aggregator, first + timedelta(days=2 * life_number), seed, killer)
            children.append((child, step_file))
        if number % 10 == 5 and life_number == 1:
            aggregator.kill()
            aggregator.start()
        for child, step_file in children:
            os.waitpid(child, 0)
            where.append(step_file.read_text())
    options: dict[str, Any] = {"policy": UNLIMITED, "environment": {}, "authorization": aggregator.tokens}
    with Client(METRICS, state, aggregator.url, **options) as client:
        client.set_consent("on")
        for _ in range(3):
            deliver(client)
        counts = client.accounting()
    if counts.recorded != counts.chosen + counts.superseded + sum(counts.ignored.values()):
        raise AssertionError(f"point {number}, killed {where}: {counts}")
    gone = sum(counts.dropped.values())
    if counts.formed != counts.acknowledged + counts.queued + counts.quarantined + gone:
        raise AssertionError(f"point {number}, killed {where}: {counts}")
    reports = {"formed": counts.formed, "acknowledged": counts.acknowledged, "lost": gone + counts.queued}
    return Counter(reports), "; ".join(where)


def main(points: int, seed: int) -> None:
    chance, totals, places = random.Random(seed), Counter[str](), Counter[str]()  # noqa: S311
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        aggregator = Aggregator(place)
        try:
            for number in range(points):
                counts, where = point(aggregator, place, number, chance)
                totals += counts
                places.update(where.split("; "))
            counted = sum(pull_summary(aggregator.local_url, name).num_reports for name in NAMES)
        finally:
            aggregator.kill()
    result = {"points": points, "seed": seed, "counted": counted, **totals, "killed": dict(places)}
    sys.stdout.write(json.dumps(result) + "\n")
    if not (counted == totals["acknowledged"] == totals["formed"]):
        raise SystemExit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
