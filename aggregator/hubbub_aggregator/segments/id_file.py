"""Id files: the ids of the batches that one fold counted, as Parquet objects with the column `batch_id`."""

from __future__ import annotations

import io
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.parquet as pq

from hubbub_aggregator.errors import StoreError


def ids_to_bytes(ids: Iterable[pa.Array]) -> bytes:
    """Return the bytes of an id file."""
    sink = io.BytesIO()
    table = pa.table({"batch_id": pa.chunked_array(list(ids), pa.binary(16))})
    pq.write_table(table, sink, compression="none", use_dictionary=False, write_statistics=False)  # random bytes
    return sink.getvalue()


def read_ids(name: str, data: bytes) -> pa.Array:
    """Return the ids of an id file, binary(16); raises StoreError with its name if it is damaged."""
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        return file.read(["batch_id"], use_threads=False)["batch_id"].combine_chunks()
    except (pa.ArrowException, OSError, KeyError):
        raise StoreError(
            f"{name} is damaged: restore it, since without it repeated batches would count again"
        ) from None
