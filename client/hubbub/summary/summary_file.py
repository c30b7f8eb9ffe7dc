"""Read and write summary files (Parquet).

Bit counts: one row per cohort with the columns `cohort`, `reports`, `ones` (k numbers). Pattern counts: one row per pattern that
occurred, with the columns `cohort`, `pattern`, `count`. The schema metadata `hubbub` is JSON: `format`, `counts` (kind), `num_reports`,
`metric`, `periods`, `implausible_rejected`, `closed`, `dropped_rows`, and for bit counts `ones_histogram` if known.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hubbub.errors import HubbubError, SummaryError
from hubbub.files.complete_file import replace_when_complete
from hubbub.files.regular_files import open_regular
from hubbub.metrics.metric import Metric
from hubbub.summary.bit_counts import BitCounts
from hubbub.summary.counting import CountProfile
from hubbub.summary.pattern_counts import PatternCounts
from hubbub.text import escape_control_characters

Summary = BitCounts | PatternCounts
"""`BitCounts` or `PatternCounts`."""

FORMAT = "hubbub-summary/1"
CONTENT_TYPE = "application/vnd.apache.parquet"


class _Collected(TypedDict):
    """What a summary says of how its reports were collected."""

    implausible_rejected: bool
    closed: bool
    dropped_rows: Mapping[str, int]


_MAX_BYTES = 1 << 30
_REMEDY = "use a file written by `hubbub pull` or `hubbub simulate`"


def write_summary(summary: Summary, path: str | Path) -> None:
    """Write a summary file; a new one has mode 0600.

    Parameters
    ----------
    summary
        Summary to write.
    path
        Path of the file. It is replaced after the new file is complete.

    Raises
    ------
    SummaryError
        The argument is no summary, as `Reports` are none.
    """
    with replace_when_complete(path, private=True) as file:
        file.write(summary_to_bytes(summary))


def read_summary(path: str | Path) -> Summary:
    """Return the summary of a file.

    Parameters
    ----------
    path
        Path of a summary file.

    Returns
    -------
    Summary
        Bit counts or pattern counts, as the file has them.

    Raises
    ------
    SummaryError
        The file is not a summary file. The message contains the path.
    """
    if not isinstance(path, str | Path) or "\0" in str(path):
        raise SummaryError(f"path must be the path of a summary file, got {path!r}")
    name = escape_control_characters(str(path))
    try:
        with open_regular(path) as file:
            if os.fstat(file.fileno()).st_size > _MAX_BYTES:
                raise SummaryError(f"it has more than {_MAX_BYTES >> 20} MiB, so it is no summary: {_REMEDY}")
            return _read(file.read())
    except OSError as problem:
        raise SummaryError(f"{name}: cannot be read: {problem.strerror}") from None
    except HubbubError as problem:
        raise SummaryError(f"{name}: {problem}") from None


def summary_to_bytes(summary: Summary) -> bytes:
    """Return the bytes of a summary file, as an aggregator sends them.

    Parameters
    ----------
    summary
        Summary to write.

    Returns
    -------
    bytes
        Parquet file with the metadata of docs/reference/format.md.

    Raises
    ------
    SummaryError
        The argument is no summary, as `Reports` are none.
    """
    match summary:
        case BitCounts():
            kind, columns = "bit-counts", _bit_columns(summary)
        case PatternCounts():
            kind, columns = "pattern-counts", _pattern_columns(summary)
        case _:
            found = type(summary).__name__
            raise SummaryError(
                f"summary must be BitCounts or PatternCounts, got {found}: `write_reports` writes reports"
            )
    metadata = {
        "format": FORMAT,
        "counts": kind,
        "num_reports": summary.num_reports,
        "periods": list(summary.periods),
        "implausible_rejected": summary.implausible_rejected,
        "closed": summary.closed,
        "dropped_rows": dict(summary.dropped_rows),
        "metric": summary.metric.to_dict(),
    }
    if isinstance(summary, BitCounts) and summary.ones_histogram is not None:
        metadata["ones_histogram"] = summary.ones_histogram.tolist()
    table = pa.table(columns).replace_schema_metadata({"hubbub": json.dumps(metadata)})
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def summary_from_bytes(data: bytes) -> Summary:
    """Return the summary of the bytes of a file.

    Parameters
    ----------
    data
        Bytes of a summary file.

    Returns
    -------
    Summary
        Bit counts or pattern counts, as the file has them.

    Raises
    ------
    SummaryError
        The bytes are not a summary file.
    """
    return _read(data)


def _read(data: bytes) -> Summary:
    try:
        # pq.read_table would import pyarrow.dataset, 40 ms. Arrow reads a file, and any file with threads, in threads of its own: a command
        # that ended soon after was aborted at its exit (github.com/apache/arrow, issues 34314 and 50482).
        table = pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False)
    except (pa.ArrowException, KeyError, TypeError, ValueError, IndexError, OSError):
        raise SummaryError(f"this is not a Parquet file, or it is damaged: {_REMEDY}") from None
    about = (table.schema.metadata or {}).get(b"hubbub")
    if about is None:
        raise SummaryError(f"this Parquet file has no hubbub metadata: {_REMEDY}")
    try:
        metadata = json.loads(about)
        if metadata["format"] != FORMAT:
            raise SummaryError(
                f"the file has format {metadata['format']!r}, but this version reads {FORMAT!r}: install the newer hubbub"
            )
        metric = Metric.from_dict(metadata["metric"])
        periods = tuple(metadata["periods"])
        collected = _Collected(
            implausible_rejected=bool(metadata.get("implausible_rejected", False)),
            closed=bool(metadata.get("closed", False)),
            dropped_rows=dict(metadata.get("dropped_rows", {})),
        )
        match metadata["counts"]:
            case "bit-counts":
                return _read_bits(metric, table, periods, metadata.get("ones_histogram"), collected)
            case "pattern-counts":
                return _read_patterns(metric, table, periods, collected)
            case "reports":
                raise SummaryError("the file contains reports, not a summary: use read_reports")
            case counts:
                raise SummaryError(
                    f"the file contains {counts!r}, but this version reads bit-counts and pattern-counts"
                )
    except HubbubError:
        raise
    except (pa.ArrowException, KeyError, TypeError, ValueError, IndexError, OSError) as problem:
        raise SummaryError(f"this is not a hubbub summary ({type(problem).__name__}): {_REMEDY}") from None


def read_count_profile(data: bytes) -> CountProfile:
    """Return the count profile of the bytes of a summary file, without building its summary."""
    file = pq.ParquetFile(io.BytesIO(data))
    metadata = json.loads(file.schema_arrow.metadata[b"hubbub"])
    metric = Metric.from_dict(metadata["metric"])
    if metadata["counts"] == "bit-counts":
        histogram = metadata.get("ones_histogram")
        reports = numbers_of(file.read(["reports"])["reports"])
        return CountProfile(
            reports, None if histogram is None else np.array(histogram, np.int64), len(metadata["periods"])
        )
    cohort, pattern, count = (numbers_of(column) for column in file.read(["cohort", "pattern", "count"]).columns)
    reports, ones_histogram = np.zeros(metric.num_cohorts, np.int64), np.zeros(metric.num_bits + 1, np.int64)
    np.add.at(reports, cohort, count)
    np.add.at(ones_histogram, np.bitwise_count(pattern), count)
    return CountProfile(reports, ones_histogram, len(metadata["periods"]))


def numbers_of(column: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """Return the integers of a column; `to_numpy` would import pandas where it is installed, which takes 0.3 s."""
    if column.null_count or not pa.types.is_integer(column.type):
        raise TypeError(f"a column must contain integers without gaps, got {column.type}")
    return np.from_dlpack(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)


def _bit_columns(summary: BitCounts) -> dict[str, Any]:
    return {
        "cohort": pa.array(np.arange(len(summary.reports)), pa.int32()),
        "reports": pa.array(summary.reports, pa.int64()),
        "ones": pa.FixedSizeListArray.from_arrays(pa.array(summary.ones.ravel(), pa.int64()), summary.metric.num_bits),
    }


def _read_bits(
    metric: Metric,
    table: pa.Table,
    periods: tuple[str, ...],
    ones_histogram: list[int] | None,
    collected: _Collected,
) -> BitCounts:
    if table["cohort"].to_pylist() != list(range(metric.num_cohorts)):
        raise SummaryError(f"{metric.name}: the file must have one row for each of {metric.num_cohorts} cohorts")
    ones = np.array(table["ones"].to_pylist(), np.int64)
    return BitCounts(metric, numbers_of(table["reports"]), ones, periods, ones_histogram, **collected)


def _pattern_columns(summary: PatternCounts) -> dict[str, Any]:
    cohort, pattern = np.nonzero(summary.counts)
    return {
        "cohort": pa.array(cohort, pa.int32()),
        "pattern": pa.array(pattern, pa.int32()),
        "count": pa.array(summary.counts[cohort, pattern], pa.int64()),
    }


def _read_patterns(metric: Metric, table: pa.Table, periods: tuple[str, ...], collected: _Collected) -> PatternCounts:
    counts = np.zeros_like(PatternCounts.empty(metric).counts)
    cohort, pattern = numbers_of(table["cohort"]), numbers_of(table["pattern"])
    if len(cohort) and (cohort.min() < 0 or pattern.min() < 0):
        raise SummaryError(f"{metric.name}: cohorts and patterns must not be negative")
    np.add.at(counts, (cohort, pattern), numbers_of(table["count"]))
    return PatternCounts(metric, counts, periods, **collected)
