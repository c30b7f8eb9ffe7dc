"""Export retained reports to a file, in an order independent of arrival, with bounded memory."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from threading import BoundedSemaphore
from typing import IO

import numpy as np

from hubbub.metrics.metric import Metric
from hubbub.randomness import system_random_bytes
from hubbub.summary import ReportWriter
from hubbub.wire.problems import ProblemType, RefusedError
from hubbub_aggregator.store.interface import PeriodStore, StoredReports
from hubbub_aggregator.store.shuffle import sort_reports

_MAX_PART_BYTES = 32 << 20
_export_slot = BoundedSemaphore()
"""Held by the one export that runs in this process, because an export takes memory."""


def write_reports(
    store: PeriodStore,
    metric: Metric,
    periods: Collection[str],
    sink: IO[bytes],
    *,
    implausible_rejected: bool = False,
) -> None:
    """Write the stored reports of a metric version and these periods, as of one moment.

    Each report is assigned at random to one of several parts of at most 32 MB, and each part is sorted by its reports'
    bytes. So the order does not depend on the order of arrival.
    """
    with (
        store.reports(metric.digest, periods) as stored,
        ReportWriter(sink, metric, stored.periods, implausible_rejected=implausible_rejected) as writer,
    ):
        parts = -(-stored.num_reports * (1 + metric.row_bytes) // _MAX_PART_BYTES)
        seed = int.from_bytes(system_random_bytes(16), "big")
        for part in range(parts):
            drawn = list(_draw_part(stored, part, parts, seed))
            cohorts, rows = (b"".join(column) for column in zip(*drawn, strict=True)) if drawn else (b"", b"")
            if cohorts:
                writer.write(*sort_reports(cohorts, rows))


def _draw_part(stored: StoredReports, part: int, parts: int, seed: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the reports of one part; every call draws the same assignment, from the same seed and blocks."""
    draws = np.random.default_rng(seed)
    for cohorts, rows in stored.blocks():
        n = len(cohorts)
        is_here = draws.integers(parts, size=n) == part
        cohort_of, bits = np.frombuffer(cohorts, np.uint8), np.frombuffer(rows, np.uint8).reshape(n, -1)
        yield cohort_of[is_here].tobytes(), bits[is_here].tobytes()


def reports_file(
    store: PeriodStore, metric: Metric, periods: Collection[str], *, implausible_rejected: bool
) -> IO[bytes]:
    """Return an unnamed temporary file with the reports, deleted when it is closed.

    Raises RefusedError (503) while another export runs, and (507) if the disk is full.
    """
    with _only_export():
        file = tempfile.TemporaryFile()  # noqa: SIM115  (the caller closes it)
        try:
            write_reports(store, metric, periods, file, implausible_rejected=implausible_rejected)
        except OSError as problem:
            file.close()
            if problem.errno != errno.ENOSPC:
                raise
            raise RefusedError(
                ProblemType.DISK_FULL,
                "the aggregator has no room for the temporary file of this download: request fewer periods, or free space in TMPDIR",
            ) from None
        except BaseException:
            file.close()
            raise
        return file


@contextmanager
def _only_export() -> Iterator[None]:
    if not _export_slot.acquire(blocking=False):
        raise RefusedError(ProblemType.UNAVAILABLE, "another export of reports is running: try again later")
    try:
        yield
    finally:
        _export_slot.release()
