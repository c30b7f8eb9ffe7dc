"""Files the commands write: whole, or not at all, and a clear reason why not."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from hubbub.metrics.metric import Metric
from hubbub.summary import ReportWriter, Summary
from hubbub.summary.summary_file import summary_to_bytes
from hubbub_decoder.errors import OutputError


@contextmanager
def atomic_write(path: str | Path) -> Iterator[IO[bytes]]:
    """Yield a file that gets its name when all of it is written; until then, and if it never is, another keeps the name."""
    place = Path(path).resolve()
    coming = Path(f"{place}.part") if place.is_file() or not place.exists() else place  # a device is what it is
    try:
        with coming.open("wb") as file:
            yield file
        if coming != place:
            coming.replace(place)
    except OSError as problem:
        raise OutputError(f"{path}: cannot be written: {problem.strerror}") from None
    finally:
        if coming != place:
            with suppress(OSError):
                coming.unlink(missing_ok=True)


def check_output_path(path: Path) -> None:
    """Refuse where no file can be made, before anything is worked out for it."""
    if path.is_dir():
        raise OutputError(f"{path}: is a directory: name a file in it")
    if not path.parent.is_dir():
        raise OutputError(f"{path}: cannot be written: there is no directory {path.parent}")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise OutputError(f"{path}: cannot be written: this user may not write to {path.parent}")


def check_table_path(path: Path) -> None:
    """Refuse a file name that does not say CSV, JSON or Parquet, or that no file can have."""
    if path.suffix.lower() not in (".csv", ".json", ".parquet"):
        raise OutputError(f"{path}: must end in .csv, .json or .parquet: the suffix says the format")
    check_output_path(path)


def check_parquet_path(path: Path) -> None:
    """Refuse a name that promises another format than that of summaries and reports, or that no file can have."""
    if path.suffix.lower() in (".csv", ".json", ".tsv", ".txt"):
        raise OutputError(f"{path}: must end in .parquet: summaries and reports are Parquet files")
    check_output_path(path)


def write_summary_file(summary: Summary, path: Path) -> None:
    """Write a summary file."""
    with atomic_write(path) as file:
        file.write(summary_to_bytes(summary))


def write_report_file(metric: Metric, blocks: Iterable[tuple[NDArray[Any], NDArray[np.uint8]]], path: Path) -> None:
    """Write a file of reports, from blocks of cohorts and wire rows."""
    with atomic_write(path) as file, ReportWriter(file, metric) as writer:
        for cohorts, rows in blocks:
            writer.write(cohorts, rows)


def write_population(population: Mapping[str, int], num_reports: int, path: Path) -> None:
    """Write who truly had what: CSV with value, count and share."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(("value", "count", "share"))
    writer.writerows((value, count, count / num_reports) for value, count in population.items())
    with atomic_write(path) as file:
        file.write(text.getvalue().encode())
