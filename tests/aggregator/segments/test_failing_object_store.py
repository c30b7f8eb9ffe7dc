"""An object store that fails, is slow or hangs while clients upload: 503 with Retry-After, nothing lost, nothing counted twice."""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

import pytest
import urllib3

from hubbub import Batch, Metric, parse_definitions
from hubbub_aggregator.errors import StoreError
from hubbub_aggregator.segments.engines import ArrowEngine
from hubbub_aggregator.segments.folding import fold_folder, folders
from hubbub_aggregator.segments.object_store import ObjectStore
from hubbub_aggregator.segments.segment_store import open_segment_store
from tests.aggregator.conftest import DEFINITIONS
from tests.support.s3_server import environment, s3_server_process
from tests.support.segment_service import resident_bytes, served

if TYPE_CHECKING:
    from tests.aggregator.conftest import Aggregator, HttpResponse, MakeBatch, StartAggregator

GIVE_UP_SECONDS = 60


class FailingObjects(ObjectStore):
    """A directory whose segments are slow and fail at random, before or after they are written, until `works`."""

    works = False
    rng = random.Random(0)  # noqa: S311  (when to fail)

    def create(self, name: str, data: bytes) -> bool:
        event = self.rng.random()
        if self.works or event < 0.5:
            return super().create(name, data)
        time.sleep(self.rng.uniform(0, 0.01))
        if event < 0.7:
            super().create(name, data)  # and the response is lost
        raise StoreError("the object store answers 500")


class RepeatedPuts(ObjectStore):
    """A directory that gets each put twice, like a bucket whose first response is lost: the second put finds the object."""

    def create(self, name: str, data: bytes) -> bool:
        super().create(name, data)
        return super().create(name, data)


class HangingObjects(ObjectStore):
    """A directory that answers nothing until `works` is set."""

    works = Event()

    def create(self, name: str, data: bytes) -> bool:
        assert self.works.wait(2 * GIVE_UP_SECONDS)
        return super().create(name, data)


def start_on(objects: ObjectStore, start: StartAggregator, place: Path, closed_last: ExitStack) -> Aggregator:
    store = closed_last.enter_context(closing(open_segment_store(place / "reports.db", objects, uuid.uuid4)))
    return start(store, max_queue_bytes=20_000)


def num_reports(objects: ObjectStore, metric: Metric) -> int:
    """Fold all segments; return the number of reports."""
    found = [fold_folder(objects, folder, metric, ArrowEngine(), keep=False) for folder in folders(objects)]
    return sum(folded.summary.num_reports for folded in found if folded.summary is not None)


def require_refusal(response: HttpResponse) -> None:
    assert (response.status, response.json["type"].rpartition("/")[2]) == (503, "unavailable")
    assert int(response.headers["retry-after"]) > 0


def test_uploads_to_a_failing_store_are_repeated_and_counted_once(
    start: StartAggregator, make_batch: MakeBatch, tmp_path: Path, closed_last: ExitStack, unseen_seed: int
) -> None:
    """4 clients repeat each batch until it is accepted, and every fifth once more; half of the puts fail."""
    objects = FailingObjects.open(str(tmp_path / "segments"))
    objects.rng = random.Random(unseen_seed)  # noqa: S311
    aggregator = start_on(objects, start, tmp_path, closed_last)
    metric, refused, lock = aggregator.definitions["homepage"], 0, Lock()

    def deliver(number: int) -> None:
        nonlocal refused
        batch = make_batch(metric)
        while (response := aggregator.post(batch)).status != 202:
            require_refusal(response)
            with lock:
                refused += 1
        if number % 5 == 0:
            aggregator.post(batch)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(deliver, range(100)))
    assert refused > 10
    objects.works = True
    assert aggregator.post(make_batch(metric)).status == 202, "the service recovers at once"
    assert num_reports(objects, metric) == 3 * 101


def test_a_fold_recognizes_its_manifest_when_the_put_is_repeated(make_batch: MakeBatch, tmp_path: Path) -> None:
    objects = RepeatedPuts.open(str(tmp_path / "segments"))
    metric = parse_definitions(DEFINITIONS)["homepage"]
    with closing(open_segment_store(tmp_path / "reports.db", objects, uuid.uuid4)) as store:
        for number in range(1, 4):
            store.append([make_batch(metric)])
            assert num_reports(objects, metric) == 3 * number
        store.close_period(metric, make_batch(metric).period)
    assert num_reports(objects, metric) == 9
    assert not any("/ids/" in name for name in objects.names()), "the ids of a closed period are deleted"


def test_requests_with_a_time_limit_use_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as proxy:
        variables = {"AWS_ENDPOINT_URL": "http://s3.invalid", "AWS_REGION": "eu-west-1", "AWS_ALLOW_HTTP": "true"}
        keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
        address = f"http://127.0.0.1:{proxy.getsockname()[1]}"
        for name, value in {**variables, **keys, "AWS_PROXY_URL": address}.items():
            monkeypatch.setenv(name, value)
        objects = ObjectStore.open("s3://bucket", timedelta(seconds=GIVE_UP_SECONDS))
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(objects.read, "object")
            proxy.settimeout(GIVE_UP_SECONDS)
            with proxy.accept()[0] as connection:
                assert connection.recv(1 << 16).startswith(b"GET http://s3.invalid/bucket/object ")
                connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            with pytest.raises(StoreError):
                reading.result(GIVE_UP_SECONDS)


class SlowLink(BaseHTTPRequestHandler):
    """An S3 server behind a slow link: it reads bodies at `BYTES_PER_SECOND`, and keeps nothing."""

    BYTES_PER_SECOND = 400_000

    def do_PUT(self) -> None:
        left = int(self.headers["Content-Length"])
        while left:
            left -= len(self.rfile.read(min(left, 20_000)))
            time.sleep(20_000 / self.BYTES_PER_SECOND)
        self.send_response(200)
        self.send_header("ETag", '"0"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.slow
def test_queue_that_takes_longer_than_a_put_may_take_is_stored(
    start: StartAggregator,
    make_batch: MakeBatch,
    tmp_path: Path,
    closed_last: ExitStack,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The queue takes 5 s on this link, a put may take 3 s, and a commit takes 0.6 s."""
    with ThreadingHTTPServer(("127.0.0.1", 0), SlowLink) as server:
        closed_last.callback(server.shutdown)
        Thread(target=server.serve_forever).start()
        for name, value in environment(f"http://127.0.0.1:{server.server_port}").items():
            monkeypatch.setenv(name, value)
        objects = ObjectStore.open("s3://bucket", timedelta(seconds=4))
        store = closed_last.enter_context(closing(open_segment_store(tmp_path / "reports.db", objects, uuid.uuid4)))
        aggregator = start(store, max_commit_bytes=200_000)
        batches = [make_batch(aggregator.definitions["homepage"], n=10_000) for _ in range(50)]
        with ThreadPoolExecutor(len(batches)) as pool:
            assert {response.status for response in pool.map(aggregator.post, batches)} == {202}


def test_queue_before_a_hanging_store_is_bounded_and_refuses_at_once(
    start: StartAggregator, make_batch: MakeBatch, tmp_path: Path, closed_last: ExitStack
) -> None:
    """A batch in the queue counts for more than 1,024 bytes. Batches beyond 20,000 bytes get 503; all others are stored in the end."""
    objects = HangingObjects.open(str(tmp_path / "segments"))
    aggregator = start_on(objects, start, tmp_path, closed_last)
    metric = aggregator.definitions["homepage"]

    with ThreadPoolExecutor(30) as pool:
        waiting = [pool.submit(aggregator.post, make_batch(metric)) for _ in range(30)]
        until = time.monotonic() + GIVE_UP_SECONDS
        while len(waiting) - len(refused := [future for future in waiting if future.done()]) > 20_000 // 1_024:
            if time.monotonic() > until:
                objects.works.set()
                pytest.fail("more batches wait than the queue may hold")
            time.sleep(0.01)
        for future in refused:
            require_refusal(future.result())
        require_refusal(aggregator.post(make_batch(metric)))
        objects.works.set()
        stored = [future for future in waiting if future.result().status == 202]
    assert len(stored) == 30 - len(refused) > 0
    assert num_reports(objects, metric) == 3 * len(stored)


def test_service_is_not_ready_while_the_object_store_fails(
    start: StartAggregator, make_batch: MakeBatch, tmp_path: Path, closed_last: ExitStack
) -> None:
    objects = ObjectStore.open(str(tmp_path / "segments"))
    aggregator = start_on(objects, start, tmp_path, closed_last)
    assert aggregator.get("/readyz").status == 200
    (tmp_path / "segments").rename(tmp_path / "away")
    (tmp_path / "segments").touch()
    require_refusal(aggregator.post(make_batch(aggregator.definitions["homepage"])))
    assert aggregator.get("/readyz").status == 503
    assert aggregator.get("/livez").status == 200
    (tmp_path / "segments").unlink()
    (tmp_path / "away").rename(tmp_path / "segments")
    assert aggregator.get("/readyz").status == 200
    assert folders(objects) == []


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """The process of an S3 server, whose variables are set."""
    with s3_server_process() as (url, process):
        for name, value in environment(url).items():
            monkeypatch.setenv(name, value)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGCONT)


@pytest.mark.slow
def test_service_refuses_in_time_with_bounded_memory_while_s3_hangs_and_recovers(
    s3: subprocess.Popen[bytes], make_batch: MakeBatch, tmp_path: Path
) -> None:
    """8 clients send batches of 100 kB; the server of S3 is stopped, so that it accepts connections and answers nothing."""
    (tmp_path / "metrics.toml").write_text(DEFINITIONS.replace("2030-01-01", "9000-01-01"))
    metric = parse_definitions((tmp_path / "metrics.toml").read_text())["homepage"]
    today = time.strftime("%Y-%m-%d", time.gmtime())
    batches = [make_batch(metric, n=10_000, period=today) for _ in range(40)]
    objects, stop, statuses = ObjectStore.open("s3://bucket"), Event(), Counter[int]()
    with served(tmp_path / "metrics.toml", tmp_path / "reports.db") as (url, pid):
        # a put fails after 20 seconds, and then the whole queue is refused
        http = urllib3.PoolManager(maxsize=8, retries=False, timeout=30)

        def deliver(batch: Batch) -> int:
            headers = {"Content-Type": "application/json"}
            response = http.request("POST", f"{url}/v1/reports", body=batch.to_json(), headers=headers)
            assert response.status in (202, 503), response.data
            assert response.status == 202 or int(response.headers["retry-after"]) > 0
            return response.status

        def send() -> None:
            while not stop.is_set():
                statuses[deliver(random.choice(batches))] += 1  # noqa: S311

        with ThreadPoolExecutor(8) as pool:
            assert set(pool.map(deliver, batches[:20])) == {202}
            before = resident_bytes(pid)
            s3.send_signal(signal.SIGSTOP)
            senders = [pool.submit(send) for _ in range(8)]
            time.sleep(12)
            largest = resident_bytes(pid)
            stop.set()
            for sender in senders:
                sender.result()
            assert statuses[503] >= 8
            assert largest - before < 64 << 20
            s3.send_signal(signal.SIGCONT)
            assert set(pool.map(deliver, batches)) == {202}
    assert num_reports(objects, metric) == 10_000 * len(batches)
