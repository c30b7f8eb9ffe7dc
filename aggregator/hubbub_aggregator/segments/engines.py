"""Engines: which rows of new segments are the first with their batch id, and were not counted before.

The one step of folding that needs more than a pass over the data. Counting is the same kernel for all engines. Order: the segment's
position, then the row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hubbub.text import install_hint
from hubbub_aggregator.errors import StoreError

Rows = NDArray[np.int64]


class Engine(Protocol):
    """Removes duplicates."""

    def first_rows(self, segments: Sequence[pa.Array], known: Iterable[pa.Array]) -> list[Rows]:
        """Return, for each segment, its rows to count, in ascending order.

        segments : ids of the batches of each segment, binary(16)
        known    : ids that were counted before
        """


class ArrowEngine:
    """Arrow's hash tables, in memory: about 60 bytes an id."""

    def first_rows(self, segments: Sequence[pa.Array], known: Iterable[pa.Array]) -> list[Rows]:
        table = _numbered(segments)
        for ids in known:
            table = table.filter(pc.invert(pc.is_in(table["batch_id"], ids)))
        first = table.group_by("batch_id").aggregate([("row", "min")])["row_min"].to_numpy()
        return _per_segment(np.sort(first), segments)


class DuckDBEngine:
    """DuckDB: uses all cores, and spills to disk beyond `memory_limit`, such as "2GB"."""

    def __init__(self, memory_limit: str | None = None, directory: str | None = None) -> None:
        self._settings = {"memory_limit": memory_limit, "temp_directory": directory}

    def first_rows(self, segments: Sequence[pa.Array], known: Iterable[pa.Array]) -> list[Rows]:
        try:
            import duckdb
        except ImportError:
            raise StoreError(f"--engine duckdb needs duckdb: {install_hint('segments')}") from None
        config: dict[str, str | bool | int | float | list[str]] = {
            name: value for name, value in self._settings.items() if value is not None
        }
        try:
            with duckdb.connect(config=config) as connection:
                connection.register("segments", _numbered(segments))
                counted = pa.chunked_array(list(known), pa.binary(16))
                connection.register("known", pa.table({"batch_id": counted}))
                query = "SELECT min(row) AS row FROM segments ANTI JOIN known USING (batch_id) GROUP BY batch_id ORDER BY row"
                first = connection.execute(query).fetchnumpy()["row"]
        except duckdb.Error as problem:
            raise StoreError(f"DuckDB: {(str(problem).splitlines() or [''])[0]}") from None
        return _per_segment(np.asarray(first, np.int64), segments)


ENGINES = {"arrow": ArrowEngine, "duckdb": DuckDBEngine}


def _numbered(segments: Sequence[pa.Array]) -> pa.Table:
    """Ids of all segments with the number of each row, counted through all segments."""
    ids = pa.chunked_array(list(segments), pa.binary(16))
    return pa.table({"batch_id": ids, "row": pa.array(np.arange(len(ids)))})


def _per_segment(rows: Rows, segments: Sequence[pa.Array]) -> list[Rows]:
    """Split ascending row numbers of all segments into those of each."""
    starts = np.cumsum([0, *map(len, segments)])
    cuts = np.searchsorted(rows, starts)
    return [rows[low:high] - start for low, high, start in zip(cuts[:-1], cuts[1:], starts[:-1], strict=True)]
