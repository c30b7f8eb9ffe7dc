"""Segments: immutable Parquet objects with the batches of one commit, metric version and period.

One row is one batch: `batch_id` (16 bytes), `cohorts` (n bytes), `reports` (n x ceil(k / 8) bytes), in the order of the batch ids, which
reveals no order of arrival. So duplicates are equal ids, and the data of a column are the input of the counting kernel as they are.

    metric=NAME/digest=DIGEST/period=YYYY-MM-DD/segments/UUID.parquet
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hubbub.wire.batch import Batch
from hubbub_aggregator.errors import StoreError

FORMAT = "hubbub-segment/1"
SCHEMA = pa.schema(
    [
        pa.field("batch_id", pa.binary(16), nullable=False),
        pa.field("cohorts", pa.binary(), nullable=False),
        pa.field("reports", pa.binary(), nullable=False),
    ],
    {"hubbub": FORMAT},
)
_FOLDER = re.compile(r"metric=([a-z][a-z0-9_.-]{0,63})/digest=([0-9a-f]{64})/period=([0-9]{4}-[0-9]{2}-[0-9]{2})")


@dataclass(frozen=True, slots=True, order=True)
class SegmentFolder:
    """Place of the objects of one metric version and period."""

    metric: str
    digest: str
    period: str

    @property
    def path(self) -> str:
        """Prefix of the objects' names, without a final slash."""
        return f"metric={self.metric}/digest={self.digest}/period={self.period}"

    @classmethod
    def of(cls, name: str) -> SegmentFolder | None:
        """Return the folder of an object's name; None: the object is not one of these.

        >>> SegmentFolder.of("notes.txt") is None
        True
        """
        found = _FOLDER.match(name)
        return None if found is None else cls(*found.groups())


def segment_to_bytes(batches: Iterable[Batch]) -> bytes:
    """Return the bytes of a segment of batches with distinct ids."""
    ordered = sorted(batches, key=lambda batch: batch.batch_id.bytes)
    table = pa.table(
        {
            "batch_id": pa.array([batch.batch_id.bytes for batch in ordered], pa.binary(16)),
            "cohorts": pa.array([batch.cohorts for batch in ordered], pa.binary()),
            "reports": pa.array([batch.rows for batch in ordered], pa.binary()),
        },
        schema=SCHEMA,
    )
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", use_dictionary=False)
    return sink.getvalue()


def batch_ids(name: str, data: bytes) -> pa.Array:
    """Return the ids of a segment's batches; raises StoreError with the segment's name if it is damaged."""
    return _read(name, data, ["batch_id"])["batch_id"].combine_chunks()


def reports_of(name: str, data: bytes, rows: np.ndarray, row_bytes: int) -> tuple[bytes, bytes]:
    """Return cohorts and reports of some rows of a segment, concatenated.

    Raises StoreError if the segment is damaged, or a batch has not `row_bytes` bytes for each of its cohorts.
    """
    table = _read(name, data, ["cohorts", "reports"]).take(pa.array(rows))
    cohorts, reports = (table[column].combine_chunks() for column in ("cohorts", "reports"))
    sizes, widths = (np.diff(_offsets(column)) for column in (cohorts, reports))
    if not np.array_equal(sizes * row_bytes, widths):
        raise StoreError(
            f"{name}: a batch has {row_bytes} bytes for each report in its definition, but others in the segment: "
            "the segment is of another program, or damaged. Move it out of the folder"
        )
    return _data(cohorts), _data(reports)


def _read(name: str, data: bytes, columns: list[str]) -> pa.Table:
    try:
        file = pq.ParquetFile(io.BytesIO(data))
        if not file.schema_arrow.equals(SCHEMA) or (file.schema_arrow.metadata or {}).get(b"hubbub") != FORMAT.encode():
            raise StoreError(f"{name}: this is not a segment of format {FORMAT!r}: move it out of the folder")
        return file.read(columns)
    except (pa.ArrowException, OSError, ValueError) as problem:
        reason = (str(problem).splitlines() or [""])[0]
        raise StoreError(
            f"{name}: the segment is damaged ({reason}): restore it, or move it out of the folder"
        ) from None


def _offsets(column: pa.Array) -> np.ndarray:
    return (
        np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
        if len(column)
        else np.zeros(1, np.int32)
    )


def _data(column: pa.Array) -> bytes:
    if not len(column):
        return b""
    offsets = _offsets(column)
    data: bytes = column.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0])).to_pybytes()
    return data
