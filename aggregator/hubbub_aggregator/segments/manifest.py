"""Manifests: the state of folding of one metric version and period, as numbered objects.

    .../folded/00000012.json     {"format", "segments": [...], "ids": [...], "summary": name, "kept": [...]}
    .../ids/UUID-N.parquet       ids of the batches that task N of a fold counted
    .../summaries/UUID.parquet   the summary of all segments that were folded so far
    .../closed/mark              the period is closed: every segment was created before this object

A manifest is created exclusively: of two folds that start from number 12, one creates 13 and the other starts again. What no manifest
names is not valid. Objects of ids are Parquet files with the column `batch_id`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from hubbub_aggregator.errors import StoreError

FORMAT = "hubbub-fold/1"
_DIGITS = 8


@dataclass(frozen=True, slots=True)
class Manifest:
    """State after fold `number`; 0: nothing is folded.

    segments : names of folded segments that may still exist
    ids      : names of the objects with the ids of all counted batches
    summary  : name of the summary; "": none
    closed   : whether the period is closed and all its segments are folded; then there are no ids
    kept     : folded segments that a run was told to keep; the others are deleted. A manifest that does not say it was written by an earlier
               version, which deleted all segments that it did not keep
    """

    number: int = 0
    segments: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    summary: str = ""
    closed: bool = False
    kept: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        """Return the bytes of the object, without its number, which is in the name."""
        about = {"format": FORMAT, **asdict(self)}
        del about["number"]
        if not self.closed:
            del about["closed"]
        return (json.dumps(about, indent=1) + "\n").encode()

    @classmethod
    def from_bytes(cls, name: str, data: bytes) -> Manifest:
        """Return the manifest of an object; raises StoreError if it is none."""
        try:
            about = json.loads(data)
            if about["format"] != FORMAT:
                raise StoreError(
                    f"{name} has format {about['format']!r}, but this version reads {FORMAT!r}: install the newer hubbub"
                )
            return cls(
                number=_number_of(name),
                segments=tuple(about["segments"]),
                ids=tuple(about["ids"]),
                summary=str(about["summary"]),
                closed=bool(about.get("closed", False)),
                kept=tuple(about.get("kept", about["segments"])),
            )
        except (ValueError, KeyError, TypeError):
            raise StoreError(f"{name} is not a manifest: restore it") from None


def manifest_name(folder: str, number: int) -> str:
    """Name of a manifest.

    >>> manifest_name("metric=page", 12)
    'metric=page/folded/00000012.json'
    """
    return f"{folder}/folded/{number:0{_DIGITS}}.json"


def closed_name(folder: str) -> str:
    """Name of the object that marks a period as closed."""
    return f"{folder}/closed/mark"


def newest_manifest(names: Iterable[str]) -> str | None:
    """Name of the manifest with the largest number among the names of a folder's objects; None: there is none."""
    return max((name for name in names if "/folded/" in name), key=_number_of, default=None)


def _number_of(name: str) -> int:
    return int(name.rpartition("/")[2].removesuffix(".json"))


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
