"""Write result files atomically, and check output paths before the work starts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hubbub.files.complete_file import replace_when_complete
from hubbub.metrics.metric import Metric
from hubbub.summary import ReportWriter, Summary
from hubbub.summary.summary_file import summary_to_bytes
from hubbub_decoder.data.csv_cells import csv_bytes
from hubbub_decoder.errors import OutputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TABLES = (".csv", ".json", ".parquet")
PAGE = ".html"


@contextmanager
def atomic_write(path: str | Path, *, private: bool = False) -> Iterator[IO[bytes]]:
    """Do as `replace_when_complete`, but raise OutputError if the file cannot be written."""
    try:
        with replace_when_complete(path, private=private) as file:
            yield file
    except OSError as problem:
        raise OutputError(f"{path} cannot be written: {problem.strerror}.") from None


def check_output_path(path: Path, inputs: Iterable[Path | None] = ()) -> None:
    """Raise OutputError if no file can be created at `path`, or if it is one of the inputs; None for those that are not given."""
    if path.exists() and any(given is not None and given.exists() and given.samefile(path) for given in inputs):
        raise OutputError(f"{path} is an input of this command, and would be lost. Name another file.")
    if path.is_dir():
        raise OutputError(f"{path} is a directory. Name a file in it.")
    if not path.parent.is_dir():
        raise OutputError(f"{path} cannot be written: there is no directory {path.parent}. Create it first.")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise OutputError(f"{path} cannot be written: this user has no write permission for {path.parent}.")


def make_directory(path: Path, *, private: bool = False) -> None:
    """Make a directory and those above it, if there is none; `private`: of mode 0700. Raises OutputError if it cannot be made."""
    try:
        path.mkdir(mode=0o700 if private else 0o777, parents=True, exist_ok=True)
    except OSError as problem:
        raise OutputError(f"{path} cannot be created: {problem.strerror}.") from None


def check_table_path(path: Path, suffixes: Sequence[str] = TABLES, inputs: Iterable[Path | None] = ()) -> None:
    """Raise OutputError unless `path` ends in one of the suffixes, can be written, and is none of the inputs."""
    if path.suffix.lower() not in suffixes:
        raise OutputError(f"{path} must end in {join_suffixes(suffixes)}. The suffix selects the format.")
    check_output_path(path, inputs)


def join_suffixes(suffixes: Sequence[str]) -> str:
    """Suffixes as a phrase.

    >>> join_suffixes(TABLES)
    '.csv, .json or .parquet'
    """
    return " or ".join(filter(None, (", ".join(suffixes[:-1]), suffixes[-1])))


def check_plot_path(path: Path) -> None:
    """Raise OutputError unless `path` ends in .svg, .png or .pdf and can be written."""
    if path.suffix.lower() not in (".svg", ".png", ".pdf"):
        raise OutputError(f"{path} must end in .svg, .png or .pdf. The suffix selects the format.")
    check_output_path(path)


def check_result_paths(
    out: Path | None, plot: Path | None = None, suffixes: Sequence[str] = TABLES, inputs: Iterable[Path | None] = ()
) -> None:
    """Check the paths of a table and of a figure, where they are given, before the work starts.

    suffixes : of the table
    inputs : files that the table must not replace; None for those that are not given
    """
    if out is not None:
        check_table_path(out, suffixes, inputs)
    if plot is not None:
        check_plot_path(plot)


def write_figure(figure: Figure, path: Path) -> None:
    """Write a figure; raises OutputError for another suffix than .svg, .png or .pdf, or if the file cannot be written."""
    check_plot_path(path)
    with atomic_write(path) as file:
        draw_figure(figure, file, path.suffix.lower())


def draw_figure(figure: Figure, file: IO[bytes], suffix: str) -> None:
    """Write a figure as .svg, .png or .pdf into an open file; an SVG file has no date, so that the same figure has the same bytes."""
    kind = suffix.removeprefix(".")
    figure.savefig(file, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)


def check_parquet_path(path: Path) -> None:
    """Raise OutputError if `path` has the suffix of another format than Parquet, or cannot be written."""
    if path.suffix.lower() in (".csv", ".html", ".json", ".toml", ".tsv", ".txt"):
        raise OutputError(f"{path} must end in .parquet. Summaries and reports are Parquet files.")
    check_output_path(path)


def write_summary_file(summary: Summary, path: Path) -> None:
    """Write a summary file of mode 0600."""
    with atomic_write(path, private=True) as file:
        file.write(summary_to_bytes(summary))


def write_report_file(
    metric: Metric,
    blocks: Iterable[tuple[NDArray[Any], NDArray[np.uint8]]],
    path: Path,
    periods: Iterable[str] = (),
    dropped_rows: Mapping[str, int] | None = None,
) -> None:
    """Write a report file of mode 0600 from blocks of cohorts (n,) and packed bits (n, ceil(k / 8)).

    periods      : first days
    dropped_rows : rows of another collector's file that are left out, by reason; None: none
    """
    with (
        atomic_write(path, private=True) as file,
        ReportWriter(file, metric, periods, dropped_rows=dropped_rows or {}) as writer,
    ):
        for cohorts, rows in blocks:
            writer.write(cohorts, rows)


def write_population(population: Mapping[str, int], num_reports: int, path: Path) -> None:
    """Write a population file (`populations.read_population`) with the additional column share.

    num_reports : total; those beyond the counts of the population are written as "no value", an empty cell without quotes
    """
    no_value = num_reports - sum(population.values())
    rows: list[tuple[str | None, int]] = [*population.items(), *([(None, no_value)] if no_value > 0 else [])]
    data = csv_bytes(("value", "count", "share"), ((value, count, count / num_reports) for value, count in rows))
    with atomic_write(path) as file:
        file.write(data)
