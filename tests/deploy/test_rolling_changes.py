"""Rolling changes of two replicas on one PostgreSQL database behind nginx, while clients send: the steps of docs/how-to/upgrading.md and changing-definitions.md."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import urllib3

from hubbub import Metric, parse_definitions
from hubbub_aggregator.pipeline.folding import read_summary
from hubbub_aggregator.store.sql_store import SqlStore
from tests.aggregator.conftest import DEFINITIONS
from tests.aggregator.database.test_migrations import NEXT, next_release, upgraded
from tests.deploy.conftest import Certificate, Nginx, free_port, replaced, serving
from tests.support.databases import new_postgres

if TYPE_CHECKING:
    from tests.aggregator.conftest import MakeBatch

__all__ = ["next_release"]  # a fixture
pytestmark = pytest.mark.slow

TODAY = time.strftime("%Y-%m-%d", time.gmtime())
CURRENT = ("-m", "hubbub")
LATER = (
    "-c",
    f"from hubbub_aggregator.database import schema_version as v; v.SCHEMA_VERSION = {NEXT}; from hubbub.cli import main; main()",
)
"""A release of the next schema version. This release, with a migration of the test, plays its part."""
JSON = {"Content-Type": "application/json"}
GIVE_UP_SECONDS = 60


class Replicas:
    """Two replicas behind nginx; `start` and `stop` take the index of one."""

    def __init__(self, place: Path, database: str, definitions: str) -> None:
        self.ports = (free_port(), free_port())
        self.database = database
        self.files = [place / "first.toml", place / "second.toml"]
        for file in self.files:
            file.write_text(definitions)
        self._logs = [place / "first.log", place / "second.log"]
        self.processes: list[subprocess.Popen[bytes] | None] = [None, None]

    def start(self, index: int, release: tuple[str, ...] = CURRENT) -> None:
        """Start a replica and wait until it is ready."""
        options = [
            "--port",
            str(self.ports[index]),
            "--fold-interval",
            "0.1",
            "--client-rate",
            "100000",
            "--log-level",
            "info",
        ]
        command = [sys.executable, *release, "serve", str(self.files[index]), "--database", self.database, *options]
        with self._logs[index].open("ab") as log:
            started = subprocess.Popen([*command, "--client-report-rate", "1000000"], stderr=log)
        self.processes[index] = started
        self.wait(index, lambda http: http.request("GET", "/readyz").status == 200)

    def wait(self, index: int, is_reached: Callable[[urllib3.HTTPConnectionPool], bool]) -> None:
        """Wait until a replica's responses show a state."""
        process, until = self.processes[index], time.monotonic() + GIVE_UP_SECONDS
        with urllib3.HTTPConnectionPool("127.0.0.1", self.ports[index], retries=False) as http:
            while True:
                assert process is not None
                assert process.poll() is None, self._logs[index].read_text()
                assert time.monotonic() < until, self._logs[index].read_text()
                try:
                    if is_reached(http):
                        return
                except urllib3.exceptions.HTTPError:
                    pass
                time.sleep(0.05)

    def stop(self, index: int) -> None:
        """Stop a replica as a service manager does."""
        process = self.processes[index]
        if process is not None:
            process.terminate()
            assert process.wait(GIVE_UP_SECONDS) == 0, self._logs[index].read_text()
            self.processes[index] = None

    def reload(self, index: int, definitions: str, metric: Metric) -> None:
        """Replace a replica's definitions and wait until it serves a metric."""
        process = self.processes[index]
        assert process is not None
        self.files[index].write_text(definitions)
        process.send_signal(signal.SIGHUP)
        self.wait(index, lambda http: metric.digest in http.request("GET", "/v1/metrics").data.decode())


@pytest.fixture
def replicas(tmp_path: Path, postgres_url: str) -> Iterator[Replicas]:
    database = new_postgres(postgres_url)
    SqlStore.open(database, create=True).close()
    both = Replicas(tmp_path, database, DEFINITIONS.replace("2030-01-01", "9000-01-01"))
    try:
        for index in range(2):
            both.start(index)
        yield both
    finally:
        for process in filter(None, both.processes):
            process.kill()
            process.wait(30)


@pytest.fixture
def proxy(nginx: Nginx, certificate: Certificate, replicas: Replicas) -> Iterator[urllib3.HTTPSConnectionPool]:
    program, port, config = nginx
    pairs = [(f"127.0.0.1:{8000 + index}", f"127.0.0.1:{port}") for index, port in enumerate(replicas.ports)]
    config.write_text(replaced(config.read_text(), *pairs, ("rate=50r/s", "rate=100000r/s")))
    with serving(program, port, certificate[0]) as pool:
        yield pool


class Sender:
    """A client that sends new batches of one report, one at a time, and each of them twice."""

    def __init__(self, proxy: urllib3.HTTPSConnectionPool, make: Callable[[], bytes]) -> None:
        self._proxy, self._make = proxy, make
        self.statuses: list[tuple[int, int]] = []
        self._stop = threading.Event()

    def _send(self) -> None:
        while not self._stop.is_set():
            body = self._make()
            first, second = (
                self._proxy.request("POST", "/v1/reports", body=body, headers=JSON).status for _ in range(2)
            )
            self.statuses.append((first, second))

    @contextmanager
    def running(self) -> Iterator[Callable[[], None]]:
        """Send during the block; yield a function that waits until 20 more batches are sent."""

        def more() -> None:
            until, target = time.monotonic() + GIVE_UP_SECONDS, len(self.statuses) + 20
            while len(self.statuses) < target:
                assert time.monotonic() < until
                assert thread.is_alive()
                time.sleep(0.01)

        thread = threading.Thread(target=self._send)
        thread.start()
        try:
            yield more
        finally:
            self._stop.set()
            thread.join()


def num_reports(database: str, metric: Metric) -> int:
    with closing(SqlStore.open(database)) as store:
        return read_summary(store, metric).num_reports


def test_upgrade_and_rollback_refuse_no_batch_and_count_each_once(
    replicas: Replicas, proxy: urllib3.HTTPSConnectionPool, make_batch: MakeBatch, next_release: Callable[..., Path]
) -> None:
    """Upgrade the schema, then each replica; then roll each replica back on the new schema."""
    metric = parse_definitions(replicas.files[0].read_text())["homepage"]
    sender = Sender(proxy, lambda: make_batch(metric, n=1, period=TODAY).to_json())
    with sender.running() as more:
        more()
        replicas.stop(0)
        with pytest.raises(AssertionError, match="run `hubbub db upgrade`"):
            replicas.start(0, LATER)
        replicas.processes[0] = None
        assert upgraded(replicas.database, NEXT, next_release()) == (NEXT - 1, NEXT)
        for release in (LATER, CURRENT):
            for index in range(2):
                replicas.stop(index)
                more()
                replicas.start(index, release)
                more()
    for index in range(2):
        replicas.stop(index)
    assert set(sender.statuses) == {(202, 200)}
    assert num_reports(replicas.database, metric) == len(sender.statuses)


NEW_VERSION = """
[[metric]]
name = "homepage"
kind = "string"
description = "The page they start from."
owner = "owner@example.org"
num_bits = 32
num_hashes = 2
num_cohorts = 4
prob_p = 0.25
prob_q = 0.75
prob_f = 0.5
expires = 9000-01-01
"""


def test_replica_without_a_new_definition_refuses_its_batches_and_loses_none(
    replicas: Replicas, proxy: urllib3.HTTPSConnectionPool, make_batch: MakeBatch
) -> None:
    """A client holds a batch that is refused with 409, and sends it again later."""
    old = replicas.files[0].read_text()
    new = old + NEW_VERSION
    before, after = parse_definitions(old)["homepage"], parse_definitions(new)["homepage"]
    sender = Sender(proxy, lambda: make_batch(before, n=1, period=TODAY).to_json())
    bodies = [make_batch(after, n=1, period=TODAY).to_json() for _ in range(5)]

    def statuses(to: urllib3.HTTPConnectionPool) -> set[int]:
        return {to.request("POST", "/v1/reports", body=body, headers=JSON).status for body in bodies}

    first, second = (urllib3.HTTPConnectionPool("127.0.0.1", port, retries=False) for port in replicas.ports)
    with first, second, sender.running() as more:
        assert statuses(second) == {409}
        replicas.reload(0, new, after)
        assert statuses(second) == {409}
        assert statuses(first) == {202}
        more()
        replicas.reload(1, new, after)
        assert statuses(second) == {200}
        bodies = [make_batch(after, n=1, period=TODAY).to_json() for _ in range(20)]
        assert statuses(proxy) == {202}
        more()
    for index in range(2):
        replicas.stop(index)
    assert set(sender.statuses) == {(202, 200)}, "clients of the earlier version notice nothing"
    assert num_reports(replicas.database, before) == len(sender.statuses)
    assert num_reports(replicas.database, after) == 5 + 20
