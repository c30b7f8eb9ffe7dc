"""Files the commands write, or a clear reason why not."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.metric import Metric
from hubbub.summary import ReportWriter, Summary, write_summary
from hubbub_decoder.errors import OutputError


def require_parquet(path: Path) -> None:
    """Refuse a name that promises another format than that of summaries and reports."""
    if path.suffix.lower() in (".csv", ".json", ".tsv", ".txt"):
        raise OutputError(f"{path}: must end in .parquet: summaries and reports are Parquet files")


def write_summary_file(summary: Summary, path: Path) -> None:
    """Write a summary file."""
    try:
        write_summary(summary, path)
    except OSError as problem:
        raise OutputError(f"{path}: cannot be written: {problem.strerror}") from None


def write_report_file(metric: Metric, blocks: Iterable[tuple[NDArray[Any], NDArray[np.uint8]]], path: Path) -> None:
    """Write a file of reports, from blocks of cohorts and wire rows."""
    try:
        with path.open("wb") as sink, ReportWriter(sink, metric) as writer:
            for cohorts, rows in blocks:
                writer.write(cohorts, rows)
    except OSError as problem:
        raise OutputError(f"{path}: cannot be written: {problem.strerror}") from None


def write_population(population: Mapping[str, int], num_reports: int, path: Path) -> None:
    """Write who truly had what: CSV with value, count and share."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(("value", "count", "share"))
    writer.writerows((value, count, count / num_reports) for value, count in population.items())
    try:
        path.write_text(text.getvalue(), encoding="utf-8", newline="")
    except OSError as problem:
        raise OutputError(f"{path}: cannot be written: {problem.strerror}") from None
