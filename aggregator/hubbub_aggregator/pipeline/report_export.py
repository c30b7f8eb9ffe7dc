"""Retained reports -> their file, in an order that says nothing, a few megabytes in memory at a time."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from threading import BoundedSemaphore
from typing import IO

import numpy as np

from hubbub.metrics.metric import Metric
from hubbub.randomness import RandomBytes, system_random_bytes
from hubbub.summary import ReportWriter
from hubbub.wire.problems import ProblemType, RefusedError
from hubbub_aggregator.store.interface import Store, StoredReports
from hubbub_aggregator.store.shuffle import sort_reports

_BYTES_AT_ONCE = 32 << 20
_one_at_a_time = BoundedSemaphore()


def write_reports(
    store: Store,
    metric: Metric,
    periods: Collection[str],
    sink: IO[bytes],
    random_bytes: RandomBytes = system_random_bytes,
    *,
    implausible_rejected: bool = False,
) -> None:
    """Write the reports that are held of a metric version and these periods, as of one moment.

    Each goes at random into one of as many parts as memory asks for, and each part is sorted: within a part the order is that of the
    reports' own bytes, and which part a report is in says nothing about it.
    """
    with (
        store.reports(metric.digest, periods) as held,
        ReportWriter(sink, metric, held.periods, implausible_rejected=implausible_rejected) as writer,
    ):
        parts = -(-held.num_reports * (1 + metric.params.row_bytes) // _BYTES_AT_ONCE)
        seed = int.from_bytes(random_bytes(16), "big")
        for part in range(parts):
            drawn = list(_drawn(held, part, parts, seed))
            cohorts, rows = (b"".join(each) for each in zip(*drawn, strict=True)) if drawn else (b"", b"")
            if cohorts:
                writer.write(*sort_reports(cohorts, rows))


def _drawn(held: StoredReports, part: int, parts: int, seed: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the reports that belong to a part: the same draw for each part, since the seed and the blocks are the same."""
    draws = np.random.default_rng(seed)
    for cohorts, rows in held.blocks():
        n = len(cohorts)
        mine = draws.integers(parts, size=n) == part
        cohort_of, bits = np.frombuffer(cohorts, np.uint8), np.frombuffer(rows, np.uint8).reshape(n, -1)
        yield cohort_of[mine].tobytes(), bits[mine].tobytes()


def reports_file(store: Store, metric: Metric, periods: Collection[str], *, implausible_rejected: bool) -> IO[bytes]:
    """Write the reports into a file without a name, which is gone when it is closed; one at a time, for the memory it takes."""
    with _turn():
        file = tempfile.TemporaryFile()  # noqa: SIM115  (whoever asked closes it)
        try:
            write_reports(store, metric, periods, file, implausible_rejected=implausible_rejected)
        except OSError as problem:
            file.close()
            if problem.errno != errno.ENOSPC:
                raise
            raise RefusedError(ProblemType.DISK_FULL, "there is no room for the file of these reports") from None
        except BaseException:
            file.close()
            raise
        return file


@contextmanager
def _turn() -> Iterator[None]:
    if not _one_at_a_time.acquire(blocking=False):
        raise RefusedError(ProblemType.UNAVAILABLE, "reports are being put together for somebody else: ask again")
    try:
        yield
    finally:
        _one_at_a_time.release()
