"""Entries of a directory that no reader can use: made one by one beside good files, by name."""

from __future__ import annotations

import io
import json
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Make = Callable[[Path, bytes], object]
"""Creates an entry at a path; the bytes are those of a good file."""


def _socket(path: Path, _: bytes) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the path of a socket has at most 108 bytes
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def _linked(path: Path, make: Callable[[Path], object]) -> None:
    target = path.with_name(f"target of {path.stem} by {make.__name__}")
    make(target)
    path.symlink_to(target)


def _sparse(path: Path, _: bytes) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


ENTRIES: Mapping[str, Make] = {
    "dangling link": lambda path, _: path.symlink_to("nowhere"),
    "link to itself": lambda path, _: path.symlink_to(path.name),
    "link to a directory": lambda path, _: _linked(path, Path.mkdir),
    "link to a FIFO": lambda path, _: _linked(path, os.mkfifo),
    "directory": lambda path, _: path.mkdir(),
    "FIFO": lambda path, _: os.mkfifo(path),
    "socket": _socket,
    "device": lambda path, _: path.symlink_to("/dev/zero"),
    "empty": lambda path, _: path.write_bytes(b""),
    "truncated": lambda path, good: path.write_bytes(good[: len(good) // 2]),
    "without its end": lambda path, good: path.write_bytes(good[:-9]),
    "huge": _sparse,
    "other bytes": lambda path, _: path.write_bytes(bytes(range(256)) * 40),
}
"""Entries that are no readable file of any format, except that "truncated" and "other bytes" may be text."""


def _write(table: pa.Table, path: Path) -> None:
    sink = io.BytesIO()  # pyarrow takes no path that is not UTF-8
    pq.write_table(table, sink)
    path.write_bytes(sink.getvalue())


def _changed(change: Callable[[dict[str, Any]], object]) -> Make:
    """Good summary with other metadata."""

    def make(path: Path, good: bytes) -> None:
        table = pq.read_table(io.BytesIO(good))
        about = json.loads(table.schema.metadata[b"hubbub"])
        change(about)
        _write(table.replace_schema_metadata({"hubbub": json.dumps(about)}), path)

    return make


def _of_period(day: str) -> Make:
    return _changed(lambda about: about.update(periods=[day]))


def _counted(values: Callable[[list[int]], pa.Array]) -> Make:
    """Good summary with another column of numbers of reports."""

    def make(path: Path, good: bytes) -> None:
        table = pq.read_table(io.BytesIO(good))
        index = table.column_names.index("reports")
        column = values(table["reports"].to_pylist())
        _write(table.set_column(index, "reports", column), path)

    return make


SUMMARIES: Mapping[str, Make] = {
    **ENTRIES,
    **{
        f"period {day}": _of_period(day)
        for day in (
            "9999-12-31",
            "2026-02-30",
            "2026-W54",
            "0000-01-01",
            "20260302",
            "2026-03-02T00:00",
            "../2026-03-02",
            "/escaped",
            "javascript:alert(1)//",
            ".",
            "index",
            "2" * 300,
            "",
            "2026\0",
            "\x1b[31m",
        )
    },
    "period that is no text": _changed(lambda about: about.update(periods=[None])),
    "periods that are no list": _changed(lambda about: about.update(periods=3)),
    "other format": _changed(lambda about: about.update(format="hubbub-summary-9")),
    "other counts": _changed(lambda about: about.update(counts="sketches")),
    "other metric": _changed(lambda about: about.update(metric={"name": "x"})),
    "metric of no table": _changed(lambda about: about.update(metric=[])),
    "negative": _counted(lambda values: pa.array([-1, *values[1:]])),
    "above 63 bits": _counted(lambda values: pa.array([1 << 63, *values[1:]], pa.uint64())),
    "NaN": _counted(lambda values: pa.array([float("nan"), *map(float, values[1:])])),
    "no number": _counted(lambda values: pa.array([None, *values[1:]], pa.int64())),
}
"""Also files in the format of a summary that say what cannot be."""
NAMES = "odd", "odd \udcff", "odd \x1b[31m\n2"
"""Of entries, without a suffix."""
