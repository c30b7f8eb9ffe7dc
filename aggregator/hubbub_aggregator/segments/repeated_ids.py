"""Rows with an id that stands in an earlier row: exact, with memory that does not grow up to about 10**9 ids.

A row is three int64: both halves of the id, and its position. Positions order the rows; -1 is the position of an id that was counted before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from tempfile import TemporaryFile
from typing import IO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Ints = NDArray[np.int64]

KNOWN = -1
ROW_BITS = 32
"""A position is the number of a segment times 2**32, plus the row in the segment."""
NUM_BUCKETS = 256
_MAX_ROWS_IN_MEMORY = 1 << 21


def new_rows(segment: int, ids: pa.Array) -> Ints:
    """Return the rows, (n, 3), of the ids of a segment, binary(16)."""
    return _rows(ids, (segment << ROW_BITS) + np.arange(len(ids)))


def known_rows(ids: pa.Array) -> Ints:
    """Return the rows, (n, 3), of ids that were counted before."""
    return _rows(ids, np.full(len(ids), KNOWN))


def _rows(ids: pa.Array, positions: Ints) -> Ints:
    rows = np.empty((len(ids), 3), np.int64)
    if len(ids):
        rows[:, :2] = np.frombuffer(ids.buffers()[1], np.int64).reshape(-1, 2)[ids.offset : ids.offset + len(ids)]
    rows[:, 2] = positions
    return rows


def per_segment(positions: Ints, segments: range) -> list[Ints]:
    """Split ascending positions into the rows of each of some segments."""
    cuts = np.searchsorted(positions, np.arange(segments.start, segments.stop + 1) << ROW_BITS)
    return [positions[low:high] & ((1 << ROW_BITS) - 1) for low, high in pairwise(cuts)]


def positions_in(positions: Ints, segments: range) -> Ints:
    """Return those of ascending positions that are in some segments."""
    low, high = np.searchsorted(positions, np.array([segments.start, segments.stop]) << ROW_BITS)
    return positions[low:high]


def by_bucket(rows: Ints) -> Iterator[Ints]:
    """Yield the rows of each bucket; equal ids are in one bucket, that of their first byte."""
    buckets = (rows[:, 0] & 0xFF).astype(np.uint8)
    ordered = rows.take(np.argsort(buckets, kind="stable"), axis=0)  # a radix sort
    ends = np.cumsum(np.bincount(buckets, minlength=NUM_BUCKETS))
    yield from np.split(ordered, ends[:-1])


def repeated_in(rows: Ints) -> Ints:
    """Return the positions, except KNOWN, of all rows but the first of each id; not sorted.

    >>> repeated_in(np.array([[7, 7, 2], [7, 7, 1], [7, 8, 3], [9, 9, KNOWN], [9, 9, 4]])).tolist()
    [2, 4]
    """
    halves = np.ascontiguousarray(rows[:, 0])
    order = np.argsort(halves)
    equal = np.diff(halves[order]) == 0
    if not equal.any():
        return np.zeros(0, np.int64)
    few = rows[order[np.append(equal, False) | np.append(False, equal)]]
    few = few[np.lexsort((few[:, 2], few[:, 1], few[:, 0]))]
    again = np.append(False, (few[1:, :2] == few[:-1, :2]).all(axis=1))
    repeated: Ints = few[again & (few[:, 2] != KNOWN), 2]
    return repeated


def repeated_positions(blocks: Iterable[Ints], threads: int) -> Ints:
    """Return the positions of all rows of all blocks but the first of each id, ascending.

    Up to two million rows are sorted in memory. More are divided into 256 temporary files by the first byte of the id, 24 bytes a row, and
    each file is sorted in memory. numpy sorts and copies without the interpreter's lock, so threads share the work.
    """
    parts = _in_parts(blocks)
    first = next(parts)
    if len(first) < _MAX_ROWS_IN_MEMORY:
        return np.sort(repeated_in(first))
    with ExitStack() as stack:
        files = [stack.enter_context(TemporaryFile()) for _ in range(NUM_BUCKETS)]
        pool = stack.enter_context(ThreadPoolExecutor(threads))
        division = pool.submit(_append, files, first)
        for part in parts:  # read while the part before is divided
            division.result()
            division = pool.submit(_append, files, part)
        division.result()
        return np.sort(np.concatenate(list(pool.map(_repeated_in_file, files))))


def _in_parts(blocks: Iterable[Ints]) -> Iterator[Ints]:
    """Yield all rows in parts of at least two million; the last part has fewer."""
    pending, size = [np.zeros((0, 3), np.int64)], 0
    for block in blocks:
        pending.append(block)
        size += len(block)
        if size >= _MAX_ROWS_IN_MEMORY:
            yield np.concatenate(pending)
            pending, size = [np.zeros((0, 3), np.int64)], 0
    yield np.concatenate(pending)


def _append(files: Iterable[IO[bytes]], rows: Ints) -> None:
    for file, some in zip(files, by_bucket(rows), strict=True):
        file.write(some.data)


def _repeated_in_file(file: IO[bytes]) -> Ints:
    file.seek(0)
    return repeated_in(np.frombuffer(file.read(), np.int64).reshape(-1, 3))
