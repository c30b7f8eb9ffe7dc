"""SQLite's WAL and the journal compared: commits lost to one flipped byte, and latency of an append beside other processes.

    python -m benchmarks.studies.journal [--flips 200] [--runs 5]

Part 1: a process appends `COMMITS` events, one commit each, and is killed. One byte of the file is changed. The next start opens it.
Part 2: 1 or `PROCESSES` processes append `APPENDS` events each: without a pause, and with `PAUSE_SECONDS` between two appends.
p50 and p99 are medians of the runs, the maximum is that of all runs.

SQLite runs in WAL mode with synchronous=NORMAL. Neither side synchronizes an append, as with Client(durability="process").
"""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import NamedTuple

from benchmarks.runner import Benchmark
from hubbub.privacy.ledger import EncodedReport
from hubbub.sdk.storage.event_codec import encode_records
from hubbub.sdk.storage.events import DraftReplacement, Event
from hubbub.sdk.storage.filesystem import SystemDisk
from hubbub.sdk.storage.journal import Journal
from hubbub.sdk.storage.record_format import encode_record
from hubbub.sdk.storage.state_reader import read_state

COMMITS = 200
APPENDS, PROCESSES, PAUSE_SECONDS = 5_000, 4, 0.001
RECORD_HEADER_BYTES = len(encode_record(b""))
Append = Callable[[Event], None]
Opener = Callable[[Path], Append]


class Loss(NamedTuple):
    """Commits that one flipped byte lost, and whether a later start can detect that anything is missing."""

    commits: int
    detected: bool


def draft(subject: str) -> Event:
    """Return a draft as `record()` appends it, of one subject; a later one of that subject replaces it."""
    report = EncodedReport(
        7, b"Z" * 16, b"t" * 32, b"s" * 64, epoch=None, costs_unit=True, stood_in=False, response=None
    )
    return DraftReplacement(subject, "d" * 64, "2026-11-22", 1, report, local=False)


def open_sqlite(directory: Path) -> Append:
    """Return an append to a table of a database in WAL mode: one transaction each."""
    connection = sqlite3.connect(directory / "state.db", isolation_level=None, timeout=5)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("CREATE TABLE IF NOT EXISTS events (body TEXT NOT NULL)")

    def append(event: Event) -> None:
        connection.execute("INSERT INTO events VALUES (?)", (encode_records(event)[RECORD_HEADER_BYTES:].decode(),))

    return append


def open_journal(directory: Path) -> Append:
    """Return an append to a journal: one locked write each."""
    journal = Journal(directory, SystemDisk())

    def append(event: Event) -> None:
        with journal:
            journal.write(event)

    return append


def sqlite_loss(directory: Path) -> Loss:
    """Open a damaged database as the next start does."""
    with closing(sqlite3.connect(directory / "state.db")) as connection:
        (verdict,) = connection.execute("PRAGMA integrity_check").fetchone()
        is_there = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'events'").fetchone()[0]
        kept = connection.execute("SELECT count(*) FROM events").fetchone()[0] if is_there else 0
    return Loss(COMMITS - kept, verdict != "ok")


def journal_loss(directory: Path) -> Loss:
    """Read a damaged journal as the next start does."""
    state = read_state(directory)
    return Loss(COMMITS - len(state.drafts), state.damaged > 0)


def _write_and_die(open_store: Opener, directory: Path) -> None:
    append = open_store(directory)
    for number in range(COMMITS):
        append(draft(str(number)))
    os.kill(os.getpid(), signal.SIGKILL)


def losses(open_store: Opener, name: str, loss: Callable[[Path], Loss], flips: int) -> list[Loss]:
    """Return the loss for each of `flips` random positions in the file of that name."""
    chance, found = random.Random(32), []  # noqa: S311
    with tempfile.TemporaryDirectory() as place:
        written = Path(place) / "written"
        written.mkdir()
        writer = multiprocessing.Process(target=_write_and_die, args=(open_store, written))
        writer.start()
        writer.join()
        assert loss(_copied(written, Path(place) / "whole")) == Loss(0, detected=False)
        for number in range(flips):
            damaged = _copied(written, Path(place) / str(number))
            data = bytearray((damaged / name).read_bytes())
            data[chance.randrange(len(data))] ^= chance.randrange(1, 256)
            (damaged / name).write_bytes(data)
            found.append(loss(damaged))
            shutil.rmtree(damaged)
    return found


def _copied(source: Path, target: Path) -> Path:
    return shutil.copytree(source, target, ignore=shutil.ignore_patterns("*-shm"))  # SQLite makes it anew after a crash


def _time_appends(
    open_store: Opener, directory: Path, subject: str, pause: float, barrier: Barrier, results: SimpleQueue[list[float]]
) -> None:
    append, taken = open_store(directory), []
    event = draft(subject)
    append(event)
    barrier.wait()
    for _ in range(APPENDS):
        began = time.perf_counter_ns()
        append(event)
        taken.append((time.perf_counter_ns() - began) / 1e3)
        if pause:
            time.sleep(pause)
    results.put(taken)


def append_times(open_store: Opener, processes: int, pause: float, runs: int) -> tuple[float, float, float]:
    """Return p50, p99 and the maximum of one append, in us, over all processes and rounds."""
    rounds = [_timed_round(open_store, processes, pause) for _ in range(runs)]
    cuts = [statistics.quantiles(taken, n=100) for taken in rounds]
    p50, p99 = (statistics.median(quantiles[cut] for quantiles in cuts) for cut in (49, 98))
    return p50, p99, max(map(max, rounds))


def _timed_round(open_store: Opener, processes: int, pause: float) -> list[float]:
    barrier = multiprocessing.Barrier(processes)
    results: SimpleQueue[list[float]] = multiprocessing.SimpleQueue()
    with tempfile.TemporaryDirectory() as place:
        open_store(Path(place))(draft("first"))
        workers = [
            multiprocessing.Process(
                target=_time_appends, args=(open_store, Path(place), str(n), pause, barrier, results)
            )
            for n in range(processes)
        ]
        for worker in workers:
            worker.start()
        taken = [us for _ in workers for us in results.get()]
        for worker in workers:
            worker.join()
    return taken


def main() -> None:
    benchmark = Benchmark(__doc__, runs=5)
    benchmark.add("--flips", type=int, default=200, help="changed bytes in each file")
    options = benchmark.start()
    print(f"SQLite {sqlite3.sqlite_version}, {COMMITS} commits, one flipped byte at {options.flips} positions\n")
    stores: dict[str, tuple[Opener, str, Callable[[Path], Loss]]] = {
        "SQLite, WAL": (open_sqlite, "state.db-wal", sqlite_loss),
        "journal": (open_journal, "journal", journal_loss),
    }
    table = benchmark.table()
    for title, (open_store, name, loss) in stores.items():
        found = losses(open_store, name, loss, options.flips)
        lost = [loss_of_flip.commits for loss_of_flip in found]
        cells = {"lost commits: min": min(lost), "median": statistics.median(lost), "max": max(lost)}
        cells["detected"] = sum(loss_of_flip.detected for loss_of_flip in found)
        table.add({"store": title, **{column: f"{number:g}" for column, number in cells.items()}})
    print()
    table = benchmark.table()
    for title, (open_store, _, _) in stores.items():
        for processes, pause in ((1, 0.0), (PROCESSES, 0.0), (PROCESSES, PAUSE_SECONDS)):
            p50, p99, longest = append_times(open_store, processes, pause, options.runs)
            row = {"one append": title, "processes": f"{processes}", "pause ms": f"{pause * 1e3:g}"}
            table.add({**row, "p50 us": f"{p50:.1f}", "p99 us": f"{p99:.0f}", "max us": f"{longest:,.0f}"})


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn", force=True)
    main()
