"""Kill services that append segments, and folds, at failpoints and at random moments; check that no report is lost or counted twice.

python -m tests.stress.segment_matrix CRASHES [SEED] [--s3]      (or: make matrix)

Two processes append batches to a directory, or to a bucket of SeaweedFS (--s3), some of them again, and two fold it all the time. One closes
periods that are over. A process that reaches the failpoint is killed; the others are killed with it or a little later. At a random moment all are killed. Each report
sets one bit that no other report sets, without noise. After every crash each object is complete, and a fold finds
acknowledged <= counted <= formed for each report. At the end every batch is sent once more, and counted = formed.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import signal
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from select import select
from tempfile import TemporaryDirectory

from hubbub import Batch, parse_definitions
from hubbub.summary import BitCounts, summary_from_bytes
from hubbub_aggregator.database import failpoints
from hubbub_aggregator.errors import StoreError
from hubbub_aggregator.segments.engines import ArrowEngine
from hubbub_aggregator.segments.folding import fold_folder, folders
from hubbub_aggregator.segments.manifest import Manifest
from hubbub_aggregator.segments.object_store import ObjectStore
from hubbub_aggregator.segments.segment_file import SegmentFolder, batch_ids
from hubbub_aggregator.segments.segment_store import open_segment_store
from hubbub_aggregator.store.interface import AppendResult
from hubbub_aggregator.store.sql_store import SqlStore
from tests.stress.crash_matrix import in_child
from tests.support.s3_server import environment, s3_server_of_another_process

BITS, DAYS, FIRST_DAY, GIVE_UP = 1_024, 5, date(2024, 6, 1), 20.0
SPARE = 5  # rounds that may be repeated
RANDOM = "all at a random moment"
WRITTEN = ("segments", "ids", "summaries", "folded", "closed")
FAILPOINTS = [
    *(f"{when} an object of {kind}" for when in ("before", "after") for kind in WRITTEN),
    *(f"{when} a deletion of objects" for when in ("before", "after")),
]

_CATEGORIES = ", ".join(f'"{number}"' for number in range(BITS))
METRIC = parse_definitions(f"""
[[metric]]
name = "number"
kind = "categorical"
description = "A bit of its own for each report."
owner = "owner@example.org"
categories = [{_CATEGORIES}]
prob_p = 0
prob_q = 1
prob_f = 0
expires = 2100-01-01
""")["number"]


def _period(day: int) -> str:
    return (FIRST_DAY + timedelta(day)).isoformat()


def _closes(target: str | None) -> bool:
    return target is not None and target.endswith("closed")


@dataclass
class Campaign:
    """One object store, the reports formed for it, and the batches that were acknowledged."""

    segments: str
    database: Path
    rng: random.Random
    batches: list[tuple[Batch, range]] = field(default_factory=list)
    acknowledged: set[int] = field(default_factory=set)
    formed: int = 0
    day: int = 0  # number of periods that are closed, or about to be

    def build(self, most: int) -> None:
        for number in range(most):
            size = self.rng.randint(1, 3)
            if self.formed + size > BITS:
                return
            numbers = range(self.formed, self.formed + size)
            day = self.rng.randrange(self.day, DAYS) if number else self.day
            self.formed += size
            period = _period(day)
            rows = b"".join((1 << number).to_bytes(METRIC.row_bytes, "little") for number in numbers)
            batch = Batch(uuid.uuid4(), METRIC.name, METRIC.digest, period, bytes(size), rows)
            self.batches.append((batch, numbers))

    def open(self) -> tuple[ObjectStore, SqlStore]:
        """Open both stores; only children do, because this process must be able to fork."""
        objects = ObjectStore.open(self.segments)
        return objects, open_segment_store(self.database, objects, uuid.uuid4)

    def crash_until_reached(self, target: str | None, most: int) -> bool:
        """Crash; return whether the failpoint was reached.

        A process is killed when it reaches the failpoint for the first, second or third time. The new batches may be too few for so many
        objects; then at most `most` more are built, and the first time counts.
        """
        if self.crash(target, 1 if _closes(target) else self.rng.randint(1, 3)):
            return True
        self.check()
        self.build(most)
        return self.crash(target, 1)

    def crash(self, target: str | None, times: int) -> bool:
        """Run two services, two folds and a job that closes periods until one reaches the failpoint so often, or until a random moment.

        Return whether the failpoint was reached.
        """
        read_end, write_end = os.pipe()
        hook = _hook(target, times, write_end)
        work = [self._append, self._append, self._fold, self._fold, self._close]
        children = [_forked(task, hook, write_end, self.rng.random()) for task in work]
        os.close(write_end)
        until, messages = time.monotonic() + (GIVE_UP if target else self.rng.uniform(0.05, 0.5)), b""
        met = False
        while not met and select([read_end], [], [], max(0.0, until - time.monotonic()))[0]:
            messages += os.read(read_end, 1 << 16)
            met = b"met\n" in messages
        if met:
            time.sleep(self.rng.choice([0, 0, 0.1]))  # the other processes keep running
        for child in children:
            os.kill(child, signal.SIGKILL)
        ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        assert ends == [-signal.SIGKILL] * len(ends), "a process ended by itself: see its traceback above"
        while data := os.read(read_end, 1 << 16):
            messages += data
        os.close(read_end)
        self.acknowledged |= {int(line) for line in messages.split(b"\n")[:-1] if line != b"met"}
        return met or target is None

    def _append(self, send: Callable[[str], None], rng: random.Random) -> None:
        _, store = self.open()
        mine = set(self.acknowledged)
        while True:
            left = [number for number in range(len(self.batches)) if number not in mine]
            chosen = rng.choices(left if left and rng.random() < 0.8 else range(len(self.batches)), k=rng.randint(1, 4))
            results = store.append([self.batches[number][0] for number in chosen])
            send(
                "".join(
                    f"{number}\n"
                    for number, result in zip(chosen, results, strict=True)
                    if result is AppendResult.STORED
                )
            )
            mine.update(chosen)
            time.sleep(0.002)  # leave SQLite to the other process

    def _fold(self, _send: Callable[[str], None], rng: random.Random) -> None:
        objects, _ = self.open()
        while True:
            for folder in folders(objects):
                try:
                    fold_folder(objects, folder, METRIC, ArrowEngine(), keep=rng.random() < 0.2)
                except StoreError as problem:
                    if "folded by others" not in str(problem):
                        raise

    def _close(self, _send: Callable[[str], None], _rng: random.Random) -> None:
        """Close the periods that are over, as the service does."""
        _, store = self.open()
        while True:
            self._close_due(store)
            time.sleep(0.01)

    def _close_due(self, store: SqlStore) -> None:
        for _, period in [*store.half_closed_periods(), *store.open_periods()]:
            if period < _period(self.day):
                store.close_period(METRIC, period)

    def check(self, *, again: bool = False) -> None:
        """Check all objects, then the counts after a fold; `again`: after all batches were sent once more."""
        ones = in_child(lambda: self._counted(again=again))["number"]
        assert set(ones) <= {0, 1}, "a report was counted twice"
        assert not any(ones[self.formed :]), "a report was counted that was not formed"
        for number, (_, numbers) in enumerate(self.batches):
            of_batch = {ones[report] for report in numbers}
            assert len(of_batch) == 1, "a batch was counted in part"
            assert number not in self.acknowledged or of_batch == {1}, "an acknowledged report is not counted"

    def finish(self) -> None:
        """Close the periods that are over, send all batches again, and check that every report of an open period is counted."""
        assert len(self.acknowledged) > len(self.batches) / 20, "5 % or fewer were acknowledged: the run proves nothing"
        self.acknowledged |= {n for n, (batch, _) in enumerate(self.batches) if batch.period >= _period(self.day)}
        self.check(again=True)

    def _counted(self, *, again: bool) -> dict[str, list[int]]:
        objects, store = self.open()
        for name in objects.names():
            _check_object(name, objects.read(name))
        if again:
            store.append([batch for batch, _ in self.batches])
            self._close_due(store)
            store.append([batch for batch, _ in self.batches])
        ones = [0] * BITS
        for folder in folders(objects):
            summary = fold_folder(objects, folder, METRIC, ArrowEngine(), keep=False).summary
            if isinstance(summary, BitCounts):
                ones = [one + int(more) for one, more in zip(ones, summary.ones[0], strict=True)]
        left = [name for name in objects.names() if "/segments/" in name]
        assert not left, f"segments are left after a fold: {left}"
        closed = {SegmentFolder.of(name) for name in objects.names() if "/closed/" in name}
        left = [name for name in objects.names() if "/ids/" in name and SegmentFolder.of(name) in closed]
        assert not left, f"ids of closed periods are left after a fold: {left}"
        over = {batch.period for batch, _ in self.batches if batch.period < _period(self.day)}
        assert not again or {folder.period for folder in closed if folder} == over, (
            "a period that is over is not marked"
        )
        return {"number": ones}


def _check_object(name: str, data: bytes) -> None:
    """Raise if an object is not complete."""
    match name.rpartition("/")[0].rpartition("/")[2]:
        case "segments" | "ids" as kind:
            if kind == "segments":
                assert len(batch_ids(name, data)) > 0
            else:
                assert data[-4:] == b"PAR1", name
        case "summaries":
            summary_from_bytes(data)
        case "closed":
            assert data == b"closed\n"
        case "folded":
            Manifest.from_bytes(name, data)
        case _:
            raise AssertionError(f"an object that no process created: {name!r}, {len(data)} bytes")


def _hook(target: str | None, countdown: int, write_end: int) -> Callable[[str], None]:
    left = countdown

    def hook(name: str) -> None:
        nonlocal left
        if name == target:
            left -= 1
            if left <= 0:
                os.write(write_end, b"met\n")
                os.kill(os.getpid(), signal.SIGKILL)

    return hook


def _send(write_end: int, text: str) -> None:
    os.write(write_end, text.encode())


def _forked(
    work: Callable[[Callable[[str], None], random.Random], None],
    hook: Callable[[str], None],
    write_end: int,
    seed: float,
) -> int:
    """Run work in a child until it is killed; return the child's process id."""
    child = os.fork()
    if child:
        return child
    logging.disable()
    failpoints.listen(hook)
    try:
        work(lambda text: _send(write_end, text), random.Random(seed))  # noqa: S311  (what to do)
    except Exception:  # noqa: BLE001  (the parent finds the exit code)
        traceback.print_exc()
    finally:
        os._exit(3)


@contextmanager
def _place(*, on_s3: bool) -> Iterator[tuple[str, Path]]:
    """Yield an empty object store and the path of the database."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="hubbub-segments-")))
        if on_s3:
            os.environ |= environment(stack.enter_context(s3_server_of_another_process()))
        yield "s3://bucket" if on_s3 else str(directory / "segments"), directory / "reports.db"


def main(crashes: int, seed: int, *, on_s3: bool) -> None:
    began, rng, reached = time.monotonic(), random.Random(seed), Counter[str]()  # noqa: S311  (when to kill)
    targets: list[str | None] = [None] * max(0, crashes - len(FAILPOINTS))
    targets += FAILPOINTS[:crashes]
    rng.shuffle(targets)
    most = BITS // 2 // (crashes + SPARE)
    with _place(on_s3=on_s3) as (segments, database):
        campaign = Campaign(segments, database, rng)
        for target in targets:
            campaign.build(most)
            if _closes(target) or (campaign.day < DAYS - 3 and rng.random() < 0.1):
                campaign.day += 1
            reached[target or RANDOM] += campaign.crash_until_reached(target, most)
            campaign.check()
        campaign.finish()
    for name in [*FAILPOINTS, RANDOM]:
        print(f"{reached[name]:5}  {name}")  # noqa: T201
    print(  # noqa: T201
        f"{crashes} crashes on segments in {'a bucket' if on_s3 else 'a directory'} in {time.monotonic() - began:.0f} s, seed {seed}, "
        f"{len(campaign.acknowledged)} of {len(campaign.batches)} batches acknowledged: nothing lost, nothing counted twice"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("crashes", type=int)
    parser.add_argument("seed", type=int, nargs="?", default=random.SystemRandom().getrandbits(48))
    parser.add_argument("--s3", action="store_true", help="in a bucket of SeaweedFS")
    given = parser.parse_args()
    main(given.crashes, given.seed, on_s3=given.s3)
