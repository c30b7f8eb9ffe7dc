"""The file of retained reports: Parquet that says what it is, written and read in blocks.

One row a report: `cohort` (uint16) and `bits` (fixed-size binary, ceil(k / 8) bytes). The schema's metadata is that of a summary
with `"counts": "reports"`. However many reports there are, a block of them is in memory at a time.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import reduce
from operator import add
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hubbub.errors import HubbubError, SummaryError
from hubbub.metrics.metric import Metric
from hubbub.metrics.params import Params
from hubbub.summary.bit_counts import BitCounts
from hubbub.summary.pattern_counts import PatternCounts
from hubbub.summary.reports import Reports
from hubbub.summary.summary_file import FORMAT, Summary, read_summary
from hubbub.summary.validation import check_report_rows, metric_or_unnamed

KIND = "reports"
BLOCK_REPORTS = 1 << 18
"""Most reports of a row group, and of a block."""

Block = tuple[NDArray[Any], NDArray[np.uint8]]


class ReportWriter:
    """Write reports block by block to an open binary file; the file is whole once this is closed.

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
    ) -> None:
        self._metric = metric_or_unnamed(metric)
        about = {
            "format": FORMAT,
            "counts": KIND,
            "periods": sorted(set(periods)),
            "implausible_rejected": implausible_rejected,
            "metric": self._metric.to_dict(),
        }
        self._schema = _schema(self._metric).with_metadata({"hubbub": json.dumps(about)})
        self._writer = pq.ParquetWriter(sink, self._schema, compression="zstd", use_dictionary=["cohort"])

    def write(self, cohorts: Any, rows: Any) -> None:
        """Append reports: cohorts (n,), rows (n, ceil(k / 8)), checked as `Reports` are."""
        cohort_of, bits = check_report_rows(self._metric, cohorts, rows)
        width = self._metric.params.row_bytes
        for start in range(0, len(bits), BLOCK_REPORTS):
            block = np.ascontiguousarray(bits[start : start + BLOCK_REPORTS])
            columns = [
                pa.array(cohort_of[start : start + BLOCK_REPORTS], pa.uint16()),
                pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(block), [None, pa.py_buffer(block)]),
            ]
            self._writer.write_table(pa.table(columns, schema=self._schema))

    def close(self) -> None:
        """Write the file's end, without which it is no file."""
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ReportFile:
    """A file of reports, read block by block.

    source : a path, or an open binary file that can seek

    metric, periods, odd_refused, num_reports : what the file says of itself; the reports are checked as they are read

    Raises SummaryError, here or while reading, for what is no file of reports.
    """

    metric: Metric
    periods: tuple[str, ...]
    implausible_rejected: bool
    num_reports: int

    def __init__(self, source: str | Path | IO[bytes]) -> None:
        self._name = f"{source}: " if isinstance(source, str | Path) else ""
        with _refusing(self._name):
            try:
                self._file = pq.ParquetFile(source, pre_buffer=False)  # else all row groups at once
            except FileNotFoundError:
                raise SummaryError("cannot be read: No such file or directory") from None
            about = json.loads((self._file.schema_arrow.metadata or {})[b"hubbub"])
            if about["format"] != FORMAT:
                raise SummaryError(f"this file has format {about['format']!r}, this hubbub reads {FORMAT!r}")
            if about["counts"] != KIND:
                raise SummaryError(f"this file holds {about['counts']}, not reports")
            self.metric = Metric.from_dict(about["metric"])
            self.periods = tuple(sorted(set(map(str, about["periods"]))))
            self.implausible_rejected = bool(about.get("implausible_rejected", False))
            if not self._file.schema_arrow.equals(_schema(self.metric)):
                columns = ", ".join(f"{field.name} ({field.type})" for field in self._file.schema_arrow)
                raise SummaryError(
                    f"{self.metric.name}: reports of {self.metric.params.num_bits} bits are columns cohort (uint16) and bits "
                    f"(fixed_size_binary[{self.metric.params.row_bytes}]), the file has {columns}"
                )
            self.num_reports = self._file.metadata.num_rows

    def blocks(self) -> Iterator[Block]:
        """Yield cohorts (n,) and rows (n, ceil(k / 8)) of a block at a time, checked."""
        with _refusing(self._name):
            for batch in self._file.iter_batches(BLOCK_REPORTS):
                if batch["cohort"].null_count or batch["bits"].null_count:
                    raise SummaryError(f"{self.metric.name}: a report lacks its cohort or its bits")
                yield check_report_rows(self.metric, batch["cohort"].to_numpy(), self._rows(batch["bits"]))

    def _rows(self, bits: pa.Array) -> NDArray[np.uint8]:
        width = self.metric.params.row_bytes
        held = np.frombuffer(bits.buffers()[1], np.uint8) if len(bits) else np.empty(0, np.uint8)
        return held[bits.offset * width : (bits.offset + len(bits)) * width].reshape(-1, width)

    def read(self) -> Reports:
        """Take all reports into memory."""
        blocks = list(self.blocks())
        if not blocks:
            none = np.empty((0, self.metric.params.row_bytes), np.uint8)
            return Reports(self.metric, [], none, self.periods, implausible_rejected=self.implausible_rejected)
        cohorts, rows = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
        return Reports(self.metric, cohorts, rows, self.periods, implausible_rejected=self.implausible_rejected)

    def bit_counts(self) -> BitCounts:
        """Count the ones of each bit, a block in memory at a time."""
        return reduce(add, (part.bit_counts() for part in self._parts()), BitCounts.empty(self.metric))

    def pattern_counts(self) -> PatternCounts:
        """Count whole patterns, k <= 16, a block in memory at a time."""
        return reduce(add, (part.pattern_counts() for part in self._parts()), PatternCounts.empty(self.metric))

    def _parts(self) -> Iterator[Reports]:
        return (
            Reports(self.metric, *block, self.periods, implausible_rejected=self.implausible_rejected)
            for block in self.blocks()
        )


def write_reports(reports: Reports, path: str | Path) -> None:
    """Write a file of reports."""
    with Path(path).open("wb") as sink:
        _write(reports, sink)


def read_reports(path: str | Path) -> Reports:
    """Read a file of reports; anything else raises SummaryError that names the file."""
    return ReportFile(path).read()


def read_collected(path: str | Path) -> Summary | Reports:
    """Read whichever the file holds, a summary or reports."""
    try:
        about = json.loads((pq.read_schema(path).metadata or {}).get(b"hubbub", b"{}"))
        holds_reports = isinstance(about, dict) and about.get("counts") == KIND
    except (pa.ArrowException, ValueError, OSError):
        holds_reports = False
    return read_reports(path) if holds_reports else read_summary(path)


def reports_to_bytes(reports: Reports) -> bytes:
    """Return the file as bytes."""
    sink = io.BytesIO()
    _write(reports, sink)
    return sink.getvalue()


def reports_from_bytes(data: bytes) -> Reports:
    """Read reports from the bytes of their file."""
    return ReportFile(io.BytesIO(data)).read()


def _write(reports: Reports, sink: IO[bytes]) -> None:
    with ReportWriter(
        sink, reports.metric, reports.periods, implausible_rejected=reports.implausible_rejected
    ) as writer:
        writer.write(reports.cohorts, reports.rows)


@contextmanager
def _refusing(name: str) -> Iterator[None]:
    """Turn whatever a hostile file raises into a SummaryError that names it."""
    try:
        yield
    except HubbubError as problem:
        raise SummaryError(f"{name}{problem}") from None
    except (pa.ArrowException, KeyError, TypeError, ValueError, IndexError, OSError) as problem:
        raise SummaryError(
            f"{name}this is not a file of reports ({type(problem).__name__}): take what `hubbub pull` or `hubbub simulate` wrote"
        ) from None


def _schema(metric: Metric) -> pa.Schema:
    return pa.schema([
        pa.field("cohort", pa.uint16()),
        pa.field("bits", pa.binary(metric.params.row_bytes)),
    ])  # fmt: skip
