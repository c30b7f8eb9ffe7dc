"""Segments: immutable Parquet objects with the batches of one commit, metric version and period.

One row is one batch: `batch_id` (16 bytes), `cohorts` (n bytes), `reports` (n x ceil(k / 8) bytes), in the order of the batch ids, which
reveals no order of arrival. So duplicates are equal ids, and the data of a column are the input of the counting kernel as they are. If all
batches of a segment have equally many reports, the columns have a fixed width: they are read ten times faster.

    metric=NAME/digest=DIGEST/period=YYYY-MM-DD/segments/UUID.parquet
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hubbub.wire.batch import Batch
from hubbub_aggregator.errors import StoreError

_FORMATS = "hubbub-segment/"
FORMAT = f"{_FORMATS}1"
COLUMNS = ["batch_id", "cohorts", "reports"]
_COMPRESSION = {"batch_id": "none", "cohorts": "none", "reports": "zstd"}
"""Random bytes, as ids are, do not compress."""
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
    return table_to_bytes(
        pa.array([batch.batch_id.bytes for batch in ordered], pa.binary(16)),
        _column([batch.cohorts for batch in ordered]),
        _column([batch.rows for batch in ordered]),
    )


def _column(values: Sequence[bytes]) -> pa.Array:
    sizes = {len(value) for value in values}
    return pa.array(values, pa.binary(*sizes) if len(sizes) == 1 else pa.binary())


def table_to_bytes(ids: pa.Array, cohorts: pa.Array, reports: pa.Array) -> bytes:
    """Return the bytes of a segment with these columns, in the order of the ids."""
    columns = {"batch_id": ids, "cohorts": cohorts, "reports": reports}
    schema = pa.schema(
        [pa.field(name, column.type, nullable=False) for name, column in columns.items()], {"hubbub": FORMAT}
    )
    sink = io.BytesIO()
    pq.write_table(
        pa.table(columns, schema=schema), sink, compression=_COMPRESSION, use_dictionary=False, write_statistics=False
    )
    return sink.getvalue()


def batch_ids(name: str, data: bytes) -> pa.Array:
    """Return the ids of a segment's batches; raises StoreError with the segment's name if it is damaged."""
    return _read(name, data, ["batch_id"])["batch_id"].combine_chunks()


@dataclass(frozen=True, slots=True)
class SegmentBatches:
    """Batches of a segment: ids, binary(16), and the cohorts and reports of all, concatenated."""

    ids: pa.Array
    cohorts: NDArray[np.uint8]
    reports: NDArray[np.uint8]


def batches_of(name: str, data: bytes, row_bytes: int, without: NDArray[np.int64]) -> SegmentBatches:
    """Return the batches of a segment except for the rows `without`, ascending.

    Raises StoreError if the segment is damaged, or a batch has not `row_bytes` bytes for each of its cohorts.
    """
    table = _read(name, data, COLUMNS)
    if len(without):
        kept = np.ones(len(table), bool)
        kept[without] = False
        bits = pa.py_buffer(np.packbits(kept, bitorder="little"))
        table = table.filter(pa.Array.from_buffers(pa.bool_(), len(kept), [None, bits]))  # `pa.array` imports pandas
    ids, cohorts, reports = (table[column].combine_chunks() for column in COLUMNS)
    sizes, widths = (_sizes(column) for column in (cohorts, reports))
    if not np.array_equal(sizes * row_bytes, widths):
        raise StoreError(
            f"{name}: a batch has {row_bytes} bytes for each report in its definition, but others in the segment: "
            "the segment is of another program, or damaged. Move it out of the folder"
        )
    return SegmentBatches(ids, _data(cohorts), _data(reports))


def _read(name: str, data: bytes, columns: list[str]) -> pa.Table:
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        found = (file.schema_arrow.metadata or {}).get(b"hubbub", b"").decode(errors="replace")
        if found.startswith(_FORMATS) and found != FORMAT:
            raise StoreError(
                f"{name} has format {found!r}, but this version reads {FORMAT!r}: install the newer hubbub"
            )
        if not _is_segment(file.schema_arrow):
            raise StoreError(f"{name}: this is not a segment of format {FORMAT!r}: move it out of the folder")
        return file.read(columns, use_threads=False)  # threads cost more than they save on small files
    except (pa.ArrowException, OSError, ValueError) as problem:
        reason = (str(problem).splitlines() or [""])[0]
        raise StoreError(
            f"{name}: the segment is damaged ({reason}): restore it, or move it out of the folder"
        ) from None


def _is_segment(schema: pa.Schema) -> bool:
    return (
        (schema.metadata or {}).get(b"hubbub") == FORMAT.encode()
        and schema.names == COLUMNS
        and not any(field.nullable for field in schema)
        and schema.types[0] == pa.binary(16)
        and all(pa.types.is_binary(column) or pa.types.is_fixed_size_binary(column) for column in schema.types[1:])
    )


def _sizes(column: pa.Array) -> NDArray[np.int32]:
    if pa.types.is_fixed_size_binary(column.type):
        return np.broadcast_to(np.int32(column.type.byte_width), len(column))
    return np.diff(_offsets(column))


def _data(column: pa.Array) -> NDArray[np.uint8]:
    if not len(column):
        return np.zeros(0, np.uint8)
    if pa.types.is_fixed_size_binary(column.type):
        width, start = column.type.byte_width, column.offset
        return np.frombuffer(column.buffers()[1], np.uint8)[start * width : (start + len(column)) * width]
    offsets = _offsets(column)
    return np.frombuffer(column.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]


def _offsets(column: pa.Array) -> NDArray[np.int32]:
    if not len(column):
        return np.zeros(1, np.int32)
    return np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
