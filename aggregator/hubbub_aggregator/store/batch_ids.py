"""Insert batch ids and return the new ones, in few large statements."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, Engine, text

from hubbub_aggregator.database.engine import Statement

_GIVEN = """
    WITH RECURSIVE at(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM at WHERE i + 1 < :n),
    given(batch_id) AS (SELECT substr(:ids, 16 * i + 1, 16) FROM at)
"""
_STORED = text(_GIVEN + "SELECT batch_id FROM batch WHERE collection_id = :collection_id AND batch_id IN given")  # noqa: S608  (constants)
_INSERT = text("INSERT INTO batch (collection_id, batch_id)" + _GIVEN + "SELECT :collection_id, batch_id FROM given")  # noqa: S608
_INSERT_NEW = text(
    "INSERT INTO batch (collection_id, batch_id) SELECT :collection_id, unnest(CAST(:ids AS bytea[])) "
    "ON CONFLICT DO NOTHING RETURNING batch_id"
)


class BatchIds:
    """Insert the batch ids that are new to a collection, in at most two statements for any number of ids.

    Every statement releases Python's global lock and has to take it again.
    """

    def __init__(self, engine: Engine) -> None:
        self._postgres = engine.dialect.name == "postgresql"
        self._insert = Statement(engine, _INSERT_NEW if self._postgres else _INSERT)
        self._stored = Statement(engine, _STORED)

    def insert(self, connection: Connection, collection_id: int, ids: Collection[bytes]) -> set[bytes]:
        """Insert ids; return those that were new."""
        if self._postgres:  # sorted, so that two transactions with the same ids cannot deadlock
            given = {"collection_id": collection_id, "ids": sorted(ids)}
            return {new for (new,) in self._insert.execute(connection, given)}
        given = {"collection_id": collection_id, "ids": b"".join(ids), "n": len(ids)}
        new = set(ids).difference(stored for (stored,) in self._stored.execute(connection, given))
        if new:
            self._insert.execute(connection, given | {"ids": b"".join(new), "n": len(new)})
        return new
