"""SIGTERM: scans end after one more summary, long deletions after one more step, and the process ends even if a thread hangs."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event

from hubbub import Definitions, Metric
from hubbub_aggregator.app import create_app
from hubbub_aggregator.database.engine import open_sqlite
from hubbub_aggregator.errors import StoppedError
from hubbub_aggregator.pipeline import folding
from hubbub_aggregator.pipeline.folding import fold
from hubbub_aggregator.pipeline.report_export import write_reports
from hubbub_aggregator.pipeline.retention import upkeep
from hubbub_aggregator.server import listener
from hubbub_aggregator.server.listener import bound_address, bound_url, listen, run
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.interface import AppendResult
from hubbub_aggregator.store.sql_store import SqlStore
from tests.aggregator.conftest import DEFINITIONS

if TYPE_CHECKING:
    from tests.aggregator.conftest import MakeBatch, StartAggregator

FIRST = datetime(2024, 6, 1, tzinfo=UTC)
PERIODS = [str((FIRST + timedelta(days=day)).date()) for day in range(12)]
SETTINGS = Settings(local_reads_without_token=True, fold_interval=1000, keep_reports={"homepage": 1000})


@pytest.fixture
def metric(definitions: Definitions) -> Metric:
    return definitions["homepage"]


@pytest.fixture
def filled(store: SqlStore, metric: Metric, make_batch: MakeBatch) -> SqlStore:
    """A store with a summary and retained reports for each of 12 periods."""
    store.append([make_batch(metric, period=text) for text in PERIODS])
    fold(store, metric, keeps_reports=lambda _period: True)
    return store


@pytest.mark.parametrize("read", range(len(PERIODS)))
def test_stop_ends_a_scan_of_summaries(filled: SqlStore, metric: Metric, read: int) -> None:
    statements = list[str]()
    scan = filled.read(metric.digest)
    for _ in range(read):
        next(scan)
    filled.stop()
    event.listen(filled._engine, "before_cursor_execute", lambda *arguments: statements.append(arguments[2]))
    with pytest.raises(StoppedError):
        next(scan)
    assert not [statement for statement in statements if "summary" in statement]


def test_stop_ends_a_scan_of_retained_reports(filled: SqlStore, metric: Metric) -> None:
    with filled.reports(metric.digest, PERIODS) as held:
        blocks = held.blocks()
        next(blocks)
        filled.stop()
        with pytest.raises(StoppedError):
            next(blocks)
    with pytest.raises(StoppedError), Path("/dev/null").open("wb") as sink:
        write_reports(filled, metric, PERIODS, sink)


def test_stopped_store_accepts_batches_and_refusal_counts(
    filled: SqlStore, metric: Metric, make_batch: MakeBatch
) -> None:
    filled.stop()
    assert filled.append([make_batch(metric)]) == [AppendResult.STORED]
    filled.add_refusals({("", "malformed"): 1})
    filled.probe()


@pytest.mark.parametrize("path", ["/v1/metrics/homepage/summary", "/v1/metrics/homepage/reports"])
def test_stopping_service_refuses_reads_with_503(start: StartAggregator, filled: SqlStore, path: str) -> None:
    aggregator = start(filled, keep_reports={"homepage": 1000})
    assert aggregator.get(path).status == 200
    filled.stop()
    answer = aggregator.get(path)
    assert (answer.status, answer.json["detail"]) == (
        503,
        "the aggregator is stopping: send the same request again after its restart",
    )


def test_stop_ends_upkeep_and_a_restart_finishes_it(
    database: str, definitions: Definitions, metric: Metric, make_batch: MakeBatch
) -> None:
    steps = 0

    def pause(_seconds: float) -> None:
        nonlocal steps
        steps += 1
        store.stop()

    store = SqlStore.open(database)
    store._pause = pause
    store.append([make_batch(metric, 1, period=PERIODS[0]) for _ in range(3_500)])
    now = FIRST + timedelta(days=100)
    upkeep(store, definitions, SETTINGS, now)
    assert steps == 1
    store.close()
    store = SqlStore.open(database)
    assert store.half_closed_periods() == [(metric.digest, PERIODS[0])]
    assert store.append([make_batch(metric, 1, period=PERIODS[0])]) == [AppendResult.CLOSED]
    upkeep(store, definitions, SETTINGS, now)
    assert store.half_closed_periods() == []
    store.close()


def test_closing_a_period_folds_segments_between_steps(
    tmp_path: Path, definitions: Definitions, metric: Metric, make_batch: MakeBatch
) -> None:
    """A batch arrives in each pause; `fold_interval` elapses between two readings of the clock."""
    store, open_period, seconds = SqlStore(open_sqlite(tmp_path / "reports.db")), PERIODS[-1], iter(range(10**6))
    waiting = list[int]()

    def pause(_seconds: float) -> None:
        waiting.append(store.segments_waiting())
        store.append([make_batch(metric, 1, period=open_period)])

    store._pause = pause
    store.append([make_batch(metric, 1, period=PERIODS[0]) for _ in range(5_500)])
    due = FIRST + timedelta(days=1 + 30)
    settings = Settings(fold_interval=1)
    upkeep(store, definitions, settings, due, elapsed=lambda: float(next(seconds)))
    assert len(waiting) >= 6
    assert set(waiting) == {0}, "segments that arrive in one pause are folded before the next"
    assert store.segments_waiting() == 0
    store.close()


def test_folding_between_steps_waits_for_fold_interval(
    tmp_path: Path, definitions: Definitions, metric: Metric, make_batch: MakeBatch
) -> None:
    store, folds = SqlStore(open_sqlite(tmp_path / "reports.db"), pause=lambda _seconds: None), 0
    unfolded = store.unfolded_reports

    def count() -> dict[tuple[str, str], tuple[int, int]]:
        nonlocal folds
        folds += 1
        return unfolded()

    store.unfolded_reports = count  # type: ignore[method-assign]
    store.append([make_batch(metric, 1, period=PERIODS[0]) for _ in range(5_500)])
    seconds = iter(range(10**6))
    upkeep(
        store, definitions, Settings(fold_interval=3), FIRST + timedelta(days=31), elapsed=lambda: float(next(seconds))
    )
    assert folds in (2, 3)
    store.close()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., tuple[int, str, int]]]:
    """Fork a serving process; return its id, its URL and a pipe with its events."""
    children = list[int]()

    def fork(definitions: Definitions, prepare: Callable[[SqlStore, Callable[[str], None]], None]) -> Any:
        read_end, write_end = os.pipe()

        def say(text: str) -> None:
            os.write(write_end, f"{text}\n".encode())

        with listen("127.0.0.1", 0) as listener:
            url = bound_url(listener)
            child = os.fork()
            if child == 0:
                status = 3
                signal.alarm(60)  # ends the child if the test fails
                try:
                    store = SqlStore.open(tmp_path / "served.db")
                    prepare(store, say)

                    def stop() -> None:
                        say("stopping")
                        store.stop()

                    run(
                        create_app(definitions, store, SETTINGS, local_address=bound_address(listener)),
                        [listener],
                        SETTINGS.connection_limits(),
                        lambda: say("ready"),
                        stop,
                    )
                    status = 0
                    threading._shutdown()  # type: ignore[attr-defined]  # as the interpreter does at exit
                finally:
                    os._exit(status)
        os.close(write_end)
        children.append(child)
        return child, url, read_end

    yield fork
    for child in children:
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def lines(pipe: int) -> Iterator[str]:
    with os.fdopen(pipe) as file:
        for line in file:
            yield line.strip()


def test_sigterm_ends_a_scan_of_summaries(
    serve: Callable[..., Any], tmp_path: Path, definitions: Definitions, metric: Metric, make_batch: MakeBatch
) -> None:
    """400 summaries take 0.1 s each; the test counts those read after the signal was received."""
    store = SqlStore.open(tmp_path / "served.db")
    store.append([make_batch(metric, 1, period=str((FIRST + timedelta(days=day)).date())) for day in range(400)])
    store.close()
    summarize = folding.summarize

    def prepare(_store: SqlStore, say: Callable[[str], None]) -> None:
        def summarize_slowly(*arguments: Any) -> Any:
            say("summary")
            time.sleep(0.1)
            return summarize(*arguments)

        folding.summarize = summarize_slowly  # type: ignore[assignment]

    child, url, pipe = serve(definitions, prepare)
    events = lines(pipe)
    assert next(events) == "ready"

    def read() -> None:
        with suppress(OSError):
            urllib.request.urlopen(f"{url}/v1/metrics/homepage/summary", timeout=60)  # noqa: S310

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(3):
        assert next(events) == "summary"
    os.kill(child, signal.SIGTERM)
    rest = list(events)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    reader.join()
    assert rest[rest.index("stopping") + 1 :] in ([], ["summary"])


def test_sigterm_ends_a_process_with_a_hanging_store(
    serve: Callable[..., Any],
    definitions: Definitions,
    metric: Metric,
    make_batch: MakeBatch,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listener, "_FORCED_EXIT_SECONDS", 0.5)

    def prepare(store: SqlStore, say: Callable[[str], None]) -> None:
        def hang(*_: Any) -> Any:
            say("hangs")
            threading.Event().wait()

        store.append = hang  # type: ignore[assignment, method-assign]

    child, url, pipe = serve(definitions, prepare)
    events = lines(pipe)
    assert next(events) == "ready"
    request = urllib.request.Request(  # noqa: S310
        f"{url}/v1/reports",
        make_batch(metric, period=str(datetime.now(UTC).date())).to_json(),
        {"Content-Type": "application/json"},
    )

    def send() -> None:
        with suppress(OSError):
            urllib.request.urlopen(request, timeout=60)  # noqa: S310

    sender = threading.Thread(target=send)
    sender.start()
    assert next(events) == "hangs"
    os.kill(child, signal.SIGTERM)
    assert list(events) == ["stopping"]
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    sender.join()


@pytest.mark.parametrize("more_bytes", [0, 256 << 10, 4 << 20])
def test_sigterm_ends_a_process_whose_memory_is_exhausted(tmp_path: Path, more_bytes: int) -> None:
    """No thread could be started for the limit of the shutdown, so the process printed a traceback and did not end."""
    (tmp_path / "metrics.toml").write_text(DEFINITIONS)
    command = [str(Path(sys.executable).with_name("hubbub")), "serve", str(tmp_path / "metrics.toml"), "--port", "0"]
    with subprocess.Popen(
        [*command, "--database", str(tmp_path / "served.db"), "--create"], stderr=subprocess.PIPE, text=True
    ) as service:
        assert service.stderr is not None
        try:
            assert any("is listening on" in line for line in service.stderr)
            used = int(Path(f"/proc/{service.pid}/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            resource.prlimit(service.pid, resource.RLIMIT_AS, (used + more_bytes, used + more_bytes))
            service.terminate()
            _, stderr = service.communicate(timeout=30)  # the limit is 10 seconds
        finally:
            service.kill()
    assert service.returncode in (0, 1)
    assert "Traceback" not in stderr
