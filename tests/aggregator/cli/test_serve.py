"""`hubbub serve` as a process: start, log, reload, stop, and SIGKILL without loss."""

from __future__ import annotations

import json
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import urllib3

from hubbub import Batch, Metric, load_definitions
from hubbub.summary import BitCounts, reports_from_bytes, summary_from_bytes

NUM_REPORTS = 1_024
KILLS = 4  # of the command; crash_matrix.py kills at every failpoint

DEFINITIONS = f"""
[[metric]]                # no noise: each report is identified by its number, so that a double count shows
name = "number"
kind = "categorical"
description = "A bit of its own for each report."
owner = "owner@example.org"
categories = [{", ".join(f'"{number}"' for number in range(NUM_REPORTS))}]
prob_p = 0
prob_q = 1
prob_f = 0
expires = 9000-01-01
"""


@dataclass
class Process:
    """A `hubbub serve` that is listening."""

    popen: subprocess.Popen[str]
    url: str
    local_url: str  # where reads need no token
    before: str = ""  # warnings
    http: urllib3.PoolManager = field(default_factory=lambda: urllib3.PoolManager(retries=False, maxsize=8))

    def post(self, body: bytes) -> int:
        headers = {"Content-Type": "application/json"}
        return self.http.request("POST", f"{self.url}/v1/reports", body=body, headers=headers, timeout=30).status

    def post_alone(self, body: bytes) -> int:
        """Send a batch over a new connection."""
        with urllib3.PoolManager(retries=False, num_pools=1) as http:
            headers = {"Content-Type": "application/json"}
            return http.request("POST", f"{self.url}/v1/reports", body=body, headers=headers, timeout=30).status

    def counted(self) -> list[int]:
        """Return the count of each number."""
        summary = summary_from_bytes(self.http.request("GET", f"{self.local_url}/v1/metrics/number/summary").data)
        assert isinstance(summary, BitCounts)
        assert summary.num_reports == summary.ones.sum()
        return [int(count) for count in summary.ones[0]]

    def end(self, by: signal.Signals) -> str:
        """Send a signal and return stderr since the start."""
        self.popen.send_signal(by)
        output = self.popen.communicate(timeout=60)[1]
        self.http.clear()
        return output


@pytest.fixture
def definitions_file(tmp_path: Path) -> Path:
    path = tmp_path / "metrics.toml"
    path.write_text(DEFINITIONS)
    return path


@pytest.fixture
def serve(definitions_file: Path) -> Iterator[Callable[..., Process]]:
    """Function that starts the command on a free port; processes that still run after the test are killed."""
    started: list[Process] = []
    program = [
        str(Path(sys.executable).parent / "hubbub"),
        "serve",
        str(definitions_file),
        "--port",
        "0",
        "--local-reads-without-token",
        "--local-port",
        "0",
        "--create",
    ]

    def start(*options: str) -> Process:
        arguments = [*program, "--database", str(definitions_file.with_suffix(".db")), *options]
        popen = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert popen.stderr is not None
        before, line = "", popen.stderr.readline()
        while line.startswith("WARNING"):
            before, line = before + line, popen.stderr.readline()
        found = re.fullmatch(r"hubbub is listening on (http://127\.0\.0\.1:\d+)\n", line)
        assert found, line + popen.communicate()[1]
        local = re.search(r"without a token on (http://127\.0\.0\.1:\d+) ", popen.stderr.readline())
        assert local
        started.append(Process(popen, found[1], local[1], before))
        return started[-1]

    yield start
    for process in started:
        if process.popen.returncode is None:
            process.end(signal.SIGKILL)


def failure(definitions: Path, *options: str) -> str:
    """Run a command that must fail; return its error line."""
    program = [str(Path(sys.executable).parent / "hubbub"), "serve", str(definitions), "--port", "0", *options]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


def batch_of(metric: Metric, numbers: range) -> Batch:
    rows = ((1 << number).to_bytes(metric.row_bytes, "little") for number in numbers)
    today = datetime.now(UTC).date().isoformat()
    return Batch(uuid.uuid4(), metric.name, metric.digest, today, bytes(len(numbers)), b"".join(rows))


@pytest.mark.slow
def test_sigterm_finishes_accepted_requests_and_exits_with_0(
    serve: Callable[..., Process], definitions_file: Path
) -> None:
    """A request with a body that is still arriving at the signal gets its response, and is stored."""
    metric = load_definitions(definitions_file)["number"]
    process, body = serve(), batch_of(metric, range(3)).to_json()
    host, port = process.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as client:
        client.sendall(b"POST /v1/reports HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
        client.sendall(f"Content-Length: {len(body)}\r\n\r\n".encode() + body[:9])
        assert process.http.request("GET", f"{process.url}/livez").status == 200
        process.popen.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        client.sendall(body[9:])
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 202 ")
    output = process.popen.communicate(timeout=60)
    process.http.clear()
    assert (process.popen.returncode, output) == (0, ("", ""))
    restarted = serve()
    assert restarted.counted()[:4] == [1, 1, 1, 0]
    assert restarted.end(signal.SIGINT) == ""
    assert restarted.popen.returncode == 0


@pytest.mark.slow
def test_restart_without_keep_reports_keeps_them_and_warns(
    serve: Callable[..., Process], definitions_file: Path
) -> None:
    metric = load_definitions(definitions_file)["number"]
    kept, without = ("--fold-interval", "0.01", "--keep-reports", "number=9"), ("--fold-interval", "0.01")
    process = serve(*kept)
    for numbers, options in ((range(3), without), (range(3, 5), kept)):
        assert process.post(batch_of(metric, numbers).to_json()) == 202
        deadline = time.monotonic() + 60
        while (
            "hubbub_segments_waiting 0.0"
            not in process.http.request("GET", f"{process.local_url}/metrics").data.decode()
        ):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.end(signal.SIGTERM)
        process = serve(*options)
    export = process.http.request("GET", f"{process.local_url}/v1/metrics/number/reports").data
    assert reports_from_bytes(export).num_reports == 3, "those that arrived without the option are counted only"
    assert process.counted()[:6] == [1, 1, 1, 1, 1, 0]
    assert process.before == ""
    process.end(signal.SIGTERM)
    assert "3 retained reports of number (" in serve().before


def test_responses_omit_server_header_and_logs_omit_clients(serve: Callable[..., Process]) -> None:
    process = serve()
    canary = {"User-Agent": "canary", "X-Forwarded-For": "203.0.113.9", "Forwarded": "for=203.0.113.9"}
    for path in ("/livez", "/nowhere", "/v1/metrics/number/summary?period=canary"):
        headers = process.http.request("GET", process.url + path, headers=canary).headers
        assert "server" not in headers
        assert "date" in headers
    output = process.end(signal.SIGTERM)
    assert output == ""


@pytest.mark.slow
def test_start_errors_are_one_line_with_exit_code_1(definitions_file: Path, tmp_path: Path) -> None:
    assert "nowhere.toml: cannot be read" in failure(tmp_path / "nowhere.toml")
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(DEFINITIONS.replace("prob_f = 0", "prob_f = 1"))
    assert "number: prob_f must be in [0, 1), got 1" in failure(wrong)
    assert "file is not a database" in failure(definitions_file, "--database", str(wrong))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        database = str(tmp_path / "some.db")
        assert f"cannot listen on 127.0.0.1:{port}: Address already in use. Choose another" in failure(
            definitions_file, "--port", port, "--database", database
        )


def test_refuses_address_in_use(serve: Callable[..., Process], definitions_file: Path) -> None:
    port = serve().url.rpartition(":")[2]
    assert f"cannot listen on 127.0.0.1:{port}" in failure(definitions_file, "--port", port)


@pytest.mark.slow
def test_replicas_on_one_database_store_every_batch_once(
    serve: Callable[..., Process], definitions_file: Path, database: str
) -> None:
    """Every batch is sent three times at once to two processes that both fold; every copy gets a response."""
    metric = load_definitions(definitions_file)["number"]
    replicas = [serve("--fold-interval", "0.01", "--database", database) for _ in range(2)]
    bodies = [batch_of(metric, range(n, n + 4)).to_json() for n in range(0, NUM_REPORTS, 4)]
    copies = [(replicas[(number + copy) % 2], body) for number, body in enumerate(bodies) for copy in range(3)]
    with ThreadPoolExecutor(24) as pool:
        statuses = list(pool.map(lambda sent: sent[0].post_alone(sent[1]), copies))
    assert Counter(statuses) == {202: len(bodies), 200: 2 * len(bodies)}
    results = Counter[str]()
    for process in replicas:
        assert process.counted() == [1] * NUM_REPORTS
        text = process.http.request("GET", f"{process.local_url}/metrics").data.decode()
        for result, count in re.findall(
            r'hubbub_batches_total\{metric="[^"]+",result="(stored|duplicate)"\} (\S+)', text
        ):
            results[result] += int(float(count))
        assert process.end(signal.SIGTERM) == ""
    assert results == {"stored": len(bodies), "duplicate": 2 * len(bodies)}


@pytest.mark.slow
def test_reports_in_segments_are_counted_by_fold(serve: Callable[..., Process], definitions_file: Path) -> None:
    """A batch that is sent twice is answered with 202 both times, and counts once, also after SIGKILL."""
    [metric] = load_definitions(definitions_file).versions()
    place, out = str(definitions_file.parent / "segments"), definitions_file.parent / "out"
    service = serve("--segments", place)
    batches = [batch_of(metric, range(start, start + 2)).to_json() for start in range(0, 20, 2)]
    assert [service.post(body) for body in (*batches, *batches[:3])] == [202] * 13
    service.end(signal.SIGKILL)
    fold = [str(Path(sys.executable).parent / "hubbub"), "fold", str(definitions_file), place, "--out-dir", str(out)]
    subprocess.run(fold, check=True, capture_output=True, timeout=60)
    [summary] = out.iterdir()
    counted = summary_from_bytes(summary.read_bytes())
    assert isinstance(counted, BitCounts)
    assert counted.ones[0].tolist() == [1] * 20 + [0] * (NUM_REPORTS - 20)


@pytest.mark.slow
def test_start_warns_once_of_a_definition_edited_in_place(
    serve: Callable[..., Process], definitions_file: Path
) -> None:
    metric, process = load_definitions(definitions_file)["number"], serve()
    assert process.post(batch_of(metric, range(1)).to_json()) == 202
    assert (len(process.before.splitlines()), process.end(signal.SIGTERM)) == (1, "")
    definitions_file.write_text(DEFINITIONS.replace("prob_q = 1", "prob_q = 0.75"))
    restarted = serve()
    assert (restarted.before + restarted.end(signal.SIGTERM)).count(
        f"number with digest {metric.digest[:12]} is changed or removed"
    ) == 1


NEW_METRIC = """
[[metric]]
name = "theme"
kind = "boolean"
description = "Whether the dark theme is on."
owner = "owner@example.org"
prob_p = 0.25
prob_q = 0.75
prob_f = 0
expires = 9000-01-01
"""


@pytest.mark.slow
def test_sighup_reloads_definitions_and_logs_json(definitions_file: Path, tmp_path: Path) -> None:
    program = [str(Path(sys.executable).parent / "hubbub"), "serve", str(definitions_file), "--port", "0"]
    program += ["--database", str(tmp_path / "reports.db"), "--create"]
    program += ["--log-format", "json", "--log-level", "info"]
    popen = subprocess.Popen(program, stderr=subprocess.PIPE, text=True)
    http = urllib3.PoolManager(retries=False)
    lines: list[dict[str, Any]] = []

    def read_until(beginning: str) -> dict[str, Any]:
        """Read lines until one begins like this; return it."""
        assert popen.stderr is not None
        while not lines or not lines[-1]["message"].startswith(beginning):
            lines.append(json.loads(popen.stderr.readline()))
        return lines[-1]

    def collected() -> set[str]:
        messages = [http.request("GET", f"{url}/v1/metrics", headers={"Connection": "close"}).json() for _ in range(8)]
        return {" ".join(metric["name"] for metric in message["metrics"]) for message in messages}

    try:
        url = read_until("hubbub is listening on http")["url"]
        assert collected() == {"number"}
        definitions_file.write_text(DEFINITIONS + NEW_METRIC)
        popen.send_signal(signal.SIGHUP)
        output = read_until("reloaded the definitions of number, theme; added: theme")
        assert (output["level"], output["metrics"], len(output["added"]), output["removed"]) == (
            "info",
            ["number", "theme"],
            1,
            [],
        )
        assert collected() == {"number theme"}
        definitions_file.write_text(DEFINITIONS + "[[")
        popen.send_signal(signal.SIGHUP)
        assert read_until("the definitions were not reloaded")["level"] == "error"
        assert collected() == {"number theme"}
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=30) as client:
            client.sendall(b"canary\r\n\r\n")
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 400 ")
        popen.send_signal(signal.SIGTERM)
        rest = popen.communicate(timeout=60)[1]
    finally:
        popen.kill()
        popen.wait()
        http.clear()
    assert popen.returncode == 0
    messages = [*lines, *map(json.loads, rest.splitlines())]
    assert all({"time", "level", "logger", "message"} <= set(line) for line in messages)
    assert sum(line["message"] == "Application shutdown complete." for line in messages) == 1
    assert "canary" not in str(messages)
    assert "Invalid HTTP request" not in str(messages), "a request is no event"


@pytest.mark.slow
def test_invalid_options_are_usage_errors(definitions_file: Path) -> None:
    for option, messages in (
        (["--max-body", "0"], "--max-body (HUBBUB_MAX_BODY) must be above 0, got 0"),
        (["--fold-interval", "inf"], "--fold-interval (HUBBUB_FOLD_INTERVAL) must be above 0 and finite, got inf"),
        (["--cors-origin", "example.org"], "--cors-origin (HUBBUB_CORS_ORIGIN) must be https://host"),
        (
            ["--trusted-proxy", "10.0.0.1/8"],
            "--trusted-proxy (HUBBUB_TRUSTED_PROXY) must be a network, such as 10.0.0.0/8",
        ),
        (["--log-format", "xml"], "'xml' is not one of"),
    ):
        program = [str(Path(sys.executable).parent / "hubbub"), "serve", str(definitions_file), *option]
        done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert messages in done.stderr


def test_warns_of_undefined_metrics_in_keep_counts(serve: Callable[..., Process]) -> None:
    process = serve("--keep-counts", "numbers=3", "--keep-counts", "number=3")
    assert "--keep-counts numbers: no metric has this name" in process.before
    assert "number" in process.before


@dataclass
class Sender:
    """Sends batches from several threads until the server is gone."""

    process: Process
    left: list[Batch]
    acknowledged: set[uuid.UUID]
    num_answers: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> None:
        while True:
            with self.lock:
                if not self.left:
                    return
                batch = self.left.pop()
            try:
                status = self.process.post(batch.to_json())
            except urllib3.exceptions.HTTPError:
                return  # in doubt; sent again later
            assert status in (200, 202)
            with self.lock:
                self.acknowledged.add(batch.batch_id)
                self.num_answers += 1


@pytest.mark.slow
def test_sigkill_loses_no_acknowledged_batch_and_counts_none_twice(
    serve: Callable[..., Process], definitions_file: Path, unseen_seed: int
) -> None:
    """After each kill acknowledged <= counted <= created, for each report; after resending all they are equal.

    The server folds all the time, so that kills fall into folds too. Some acknowledged batches are sent again.
    """
    metric = load_definitions(definitions_file)["number"]
    rng = random.Random(unseen_seed)  # noqa: S311  (when to kill)
    numbers: dict[uuid.UUID, range] = {}
    batches: list[Batch] = []
    while sum(map(len, numbers.values())) < NUM_REPORTS:
        start = sum(map(len, numbers.values()))
        batches.append(batch_of(metric, range(start, min(NUM_REPORTS, start + rng.randint(1, 4)))))
        numbers[batches[-1].batch_id] = range(start, start + len(batches[-1]))
    acknowledged: set[uuid.UUID] = set()
    formed = 0

    for kill in range(1, KILLS + 2):
        process = serve("--fold-interval", "0.01")
        counted = process.counted()
        assert set(counted) <= {0, 1}
        assert all(counted[number] for batch_id in acknowledged for number in numbers[batch_id])
        assert not any(counted[formed:])
        if kill > KILLS:
            break
        so_far = batches[: len(batches) * kill // KILLS]
        formed = sum(map(len, so_far))
        left = [batch for batch in so_far if batch.batch_id not in acknowledged or rng.random() < 0.1]
        rng.shuffle(left)
        sender = Sender(process, left, acknowledged)
        enough, pause = rng.randint(1, len(left)), rng.uniform(0, 0.02)
        threads = [threading.Thread(target=sender.run) for _ in range(6)]
        for thread in threads:
            thread.start()
        while sender.num_answers < enough and any(thread.is_alive() for thread in threads):
            time.sleep(0.001)
        time.sleep(pause)
        process.end(signal.SIGKILL)
        for thread in threads:
            thread.join()

    for batch in batches:
        assert process.post(batch.to_json()) in ((200,) if batch.batch_id in acknowledged else (200, 202))
    assert process.counted() == [1] * NUM_REPORTS


@pytest.mark.slow
def test_reject_implausible_warns_of_its_bias(definitions_file: Path) -> None:
    nowhere = str(definitions_file.parent / "missing" / "x.db")
    program = [str(Path(sys.executable).parent / "hubbub"), "serve", str(definitions_file), "--database", nowhere]
    ended = [
        subprocess.run([*program, *options], capture_output=True, text=True, timeout=60, check=False)
        for options in ([], ["--reject-implausible"])
    ]
    assert [done.returncode for done in ended] == [1, 1]
    assert "refused permanently" not in ended[0].stderr
    assert "--reject-implausible is on: a few genuine clients are refused permanently" in ended[1].stderr
    assert "shares are biased by up to 1e-9 / (q* - p*)" in ended[1].stderr
