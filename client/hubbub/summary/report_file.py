"""Read and write report files (Parquet) in blocks.

One row per report: `cohort` (uint16) and `bits` (fixed-size binary, ceil(k / 8) bytes). The schema metadata is that of a summary
file with `"counts": "reports"`. Only one block of reports is in memory at a time.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from operator import add
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import ArrayLike, NDArray

from hubbub.errors import HubbubError, SummaryError
from hubbub.files.complete_file import replace_when_complete
from hubbub.files.regular_files import open_regular
from hubbub.metrics.metric import Metric
from hubbub.metrics.params import Params
from hubbub.summary.base import NO_ROWS, check_report_rows, describe_reports, metric_or_unnamed
from hubbub.summary.bit_counts import BitCounts
from hubbub.summary.pattern_counts import PatternCounts
from hubbub.summary.reports import Reports
from hubbub.summary.summary_file import FORMAT, Summary, numbers_of, read_summary
from hubbub.text import escape_control_characters

KIND = "reports"
BLOCK_REPORTS = 1 << 18
"""Largest number of reports in a row group and in a block."""

ReportBlock = tuple[NDArray[np.uint8 | np.uint16], NDArray[np.uint8]]
"""Cohorts (n,) and packed bits (n, bytes) of n reports."""


class ReportWriter:
    """Writer of a report file, block by block.

    Close the writer to complete the file. It is a context manager.

    Parameters
    ----------
    sink
        Open binary file.
    metric
        Definition of the metric. `Params` are accepted for an unnamed string metric.
    periods
        First days of the periods. Empty: they are unknown.
    implausible_rejected
        Whether the aggregator rejected reports with an implausible number of ones.
    dropped_rows
        Rows of another collector's file that `hubbub import` left out, by reason. Empty: none.

    Raises
    ------
    SummaryError
        `Params` are given for values that are no strings.

    Examples
    --------
    >>> params = Params(num_bits=10, num_hashes=2, num_cohorts=1, prob_p=0.25, prob_q=0.75, prob_f=0)
    >>> sink = io.BytesIO()
    >>> with ReportWriter(sink, params) as writer:
    ...     writer.write([0], [[1, 2]])
    >>> ReportFile(sink).num_reports
    1
    """

    def __init__(
        self,
        sink: IO[bytes],
        metric: Metric | Params,
        periods: Iterable[str] = (),
        *,
        implausible_rejected: bool = False,
        dropped_rows: Mapping[str, int] = NO_ROWS,
    ) -> None:
        self._metric = metric_or_unnamed(metric)
        metadata = {
            "format": FORMAT,
            "counts": KIND,
            "periods": sorted(set(periods)),
            "implausible_rejected": implausible_rejected,
            "dropped_rows": dict(dropped_rows),
            "metric": self._metric.to_dict(),
        }
        self._schema = _schema(self._metric).with_metadata({"hubbub": json.dumps(metadata)})
        self._writer = pq.ParquetWriter(sink, self._schema, compression="zstd", use_dictionary=["cohort"])

    def write(self, cohorts: ArrayLike, rows: ArrayLike) -> None:
        """Append reports.

        Parameters
        ----------
        cohorts
            Shape (n,), cohort of each report.
        rows
            Shape (n, ceil(k / 8)), packed bits of each report.

        Raises
        ------
        SummaryError
            The arrays do not fit the metric.
        """
        cohort_of, bits = check_report_rows(self._metric, cohorts, rows)
        width = self._metric.row_bytes
        for start in range(0, len(bits), BLOCK_REPORTS):
            block = np.ascontiguousarray(bits[start : start + BLOCK_REPORTS])
            columns = [
                pa.array(cohort_of[start : start + BLOCK_REPORTS], pa.uint16()),
                pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(block), [None, pa.py_buffer(block)]),
            ]
            self._writer.write_table(pa.table(columns, schema=self._schema))

    def close(self) -> None:
        """Write the footer; the file is unreadable without it."""
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ReportFile:
    """Reader of a report file, block by block. The reports are checked when they are read.

    Parameters
    ----------
    source
        Path, or an open binary file that supports seek.

    Attributes
    ----------
    metric
        Definition of the metric.
    periods
        First days of the periods. Empty: they are unknown.
    implausible_rejected
        Whether the aggregator rejected reports with an implausible number of ones.
    dropped_rows
        Rows of another collector's file that `hubbub import` left out, by reason. Empty: none.
    num_reports
        Number of reports.

    Raises
    ------
    SummaryError
        The file is invalid. The error may also be raised while reading.
    """

    metric: Metric
    periods: tuple[str, ...]
    implausible_rejected: bool
    dropped_rows: Mapping[str, int]
    num_reports: int

    def __init__(self, source: str | Path | IO[bytes]) -> None:
        self._name = f"{escape_control_characters(str(source))}: " if isinstance(source, str | Path) else ""
        with _summary_errors(self._name):
            if isinstance(source, str | Path):
                try:
                    open_regular(source).close()
                except OSError as problem:
                    raise SummaryError(f"cannot be read: {problem.strerror}") from None
            self._file = pq.ParquetFile(source, pre_buffer=False)  # True reads all row groups at once
            metadata = json.loads((self._file.schema_arrow.metadata or {})[b"hubbub"])
            if metadata["format"] != FORMAT:
                raise SummaryError(
                    f"the file has format {metadata['format']!r}, but this version reads {FORMAT!r}: install the newer hubbub"
                )
            if metadata["counts"] != KIND:
                raise SummaryError(f"the file contains {metadata['counts']}, not reports")
            self.metric = Metric.from_dict(metadata["metric"])
            self.periods = tuple(sorted(set(map(str, metadata["periods"]))))
            self.implausible_rejected = bool(metadata.get("implausible_rejected", False))
            self.dropped_rows = dict(metadata.get("dropped_rows", {}))
            if not self._file.schema_arrow.equals(_schema(self.metric)):
                columns = ", ".join(f"{field.name} ({field.type})" for field in self._file.schema_arrow)
                raise SummaryError(
                    f"{self.metric.name}: a report file for {self.metric.num_bits} bits needs the columns cohort (uint16) and bits "
                    f"(fixed_size_binary[{self.metric.row_bytes}]), but has {columns}"
                )
            self.num_reports = self._file.metadata.num_rows

    def __repr__(self) -> str:
        return f"<ReportFile of {describe_reports(self.metric, self.num_reports, self.periods)}>"

    def blocks(self) -> Iterator[ReportBlock]:
        """Yield the reports of each block.

        Yields
        ------
        ReportBlock
            Checked cohorts, shape (n,), and rows, shape (n, ceil(k / 8)).

        Raises
        ------
        SummaryError
            A block is damaged, or does not fit the metric.
        """
        with _summary_errors(self._name):
            for batch in self._file.iter_batches(BLOCK_REPORTS):
                if batch["cohort"].null_count or batch["bits"].null_count:
                    raise SummaryError(f"{self.metric.name}: a report has no cohort or no bits: the file is damaged")
                yield check_report_rows(self.metric, numbers_of(batch["cohort"]), self._rows(batch["bits"]))

    def _rows(self, bits: pa.Array) -> NDArray[np.uint8]:
        width = self.metric.row_bytes
        flat_rows = np.frombuffer(bits.buffers()[1], np.uint8) if len(bits) else np.empty(0, np.uint8)
        return flat_rows[bits.offset * width : (bits.offset + len(bits)) * width].reshape(-1, width)

    def read(self) -> Reports:
        """Return all reports, in memory.

        Returns
        -------
        Reports
            Reports of all blocks.
        """
        blocks = list(self.blocks())
        if not blocks:
            none = np.empty((0, self.metric.row_bytes), np.uint8)
            return self._reports([], none, self.dropped_rows)
        cohorts, rows = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
        return self._reports(cohorts, rows, self.dropped_rows)

    def bit_counts(self) -> BitCounts:
        """Return the bit counts, with one block in memory at a time.

        Returns
        -------
        BitCounts
            Bit counts of all reports.
        """
        return reduce(add, (part.bit_counts() for part in self._parts()), BitCounts.empty(self.metric))

    def pattern_counts(self) -> PatternCounts:
        """Return the pattern counts, with one block in memory at a time.

        Returns
        -------
        PatternCounts
            Pattern counts of all reports.

        Raises
        ------
        SummaryError
            k is above 16.
        """
        return reduce(add, (part.pattern_counts() for part in self._parts()), PatternCounts.empty(self.metric))

    def _parts(self) -> Iterator[Reports]:
        return (self._reports(*block, {} if n else self.dropped_rows) for n, block in enumerate(self.blocks()))

    def _reports(self, cohorts: ArrayLike, rows: ArrayLike, dropped_rows: Mapping[str, int]) -> Reports:
        return Reports(
            self.metric,
            cohorts,
            rows,
            self.periods,
            implausible_rejected=self.implausible_rejected,
            dropped_rows=dropped_rows,
        )


def write_reports(reports: Reports, path: str | Path) -> None:
    """Write a report file; a new one has mode 0600.

    Parameters
    ----------
    reports
        Reports to write.
    path
        Path of the file. It is replaced after the new file is complete.
    """
    with replace_when_complete(path, private=True) as sink:
        _write(reports, sink)


def read_reports(path: str | Path) -> Reports:
    """Return the reports of a file.

    Parameters
    ----------
    path
        Path of a report file.

    Returns
    -------
    Reports
        All reports of the file.

    Raises
    ------
    SummaryError
        The file is not a report file. The message contains the path.
    """
    return ReportFile(path).read()


def read_collected(path: str | Path) -> Summary | Reports:
    """Return the summary or the reports of a file.

    Parameters
    ----------
    path
        Path of a summary file or a report file.

    Returns
    -------
    Summary | Reports
        What the file holds.

    Raises
    ------
    SummaryError
        The file is neither. The message contains the path.
    """
    try:
        with open_regular(path) as file:
            metadata = json.loads((pq.read_schema(file).metadata or {}).get(b"hubbub", b"{}"))
        holds_reports = isinstance(metadata, dict) and metadata.get("counts") == KIND
    except (pa.ArrowException, TypeError, ValueError, OSError):
        holds_reports = False
    return read_reports(path) if holds_reports else read_summary(path)


def reports_to_bytes(reports: Reports) -> bytes:
    """Return the bytes of a report file.

    Parameters
    ----------
    reports
        Reports to write.

    Returns
    -------
    bytes
        Parquet file with the metadata of docs/reference/format.md.
    """
    sink = io.BytesIO()
    _write(reports, sink)
    return sink.getvalue()


def reports_from_bytes(data: bytes) -> Reports:
    """Return the reports of the bytes of a report file.

    Parameters
    ----------
    data
        Bytes of a report file.

    Returns
    -------
    Reports
        All reports of the file.

    Raises
    ------
    SummaryError
        The bytes are not a report file.
    """
    return ReportFile(io.BytesIO(data)).read()


def _write(reports: Reports, sink: IO[bytes]) -> None:
    with ReportWriter(
        sink,
        reports.metric,
        reports.periods,
        implausible_rejected=reports.implausible_rejected,
        dropped_rows=reports.dropped_rows,
    ) as writer:
        writer.write(reports.cohorts, reports.rows)


@contextmanager
def _summary_errors(name: str) -> Iterator[None]:
    """Convert any exception of an invalid file into a SummaryError that contains its name."""
    try:
        yield
    except HubbubError as problem:
        raise SummaryError(f"{name}{problem}") from None
    except (pa.ArrowException, KeyError, TypeError, ValueError, IndexError, OSError) as problem:
        raise SummaryError(
            f"{name}this is not a report file ({type(problem).__name__}): use a file written by `hubbub pull` or `hubbub simulate`"
        ) from None


def _schema(metric: Metric) -> pa.Schema:
    return pa.schema({"cohort": pa.uint16(), "bits": pa.binary(metric.row_bytes)})
