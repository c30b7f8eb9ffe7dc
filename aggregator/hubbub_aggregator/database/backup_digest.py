"""What a backup says of itself: a digest of all that it holds, so that damage to any of it is noticed.

    SHA-256 over the schema's version, and for each table its name, its columns by name, and each row's values by column,
    every part as its kind, its length and its bytes

Against accidents: whoever changes a backup on purpose can change the digest with it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Column, Connection, LargeBinary, MetaData, Table, insert, inspect, select

seal = Table("hubbub_backup", MetaData(), Column("digest", LargeBinary(32), primary_key=True))
"""In a backup alone: it goes as soon as an aggregator works with the file."""


class Digest:
    """The digest of what is held, as it is read."""

    def __init__(self, version: int) -> None:
        self._hash = hashlib.sha256(_part(version))

    def table(self, name: str, columns: Iterable[str]) -> None:
        """Go on with a table."""
        self._hash.update(b"".join([_part(None), *map(_part, (name, *sorted(columns)))]))

    def rows(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Go on with rows of it, in the order of its primary key."""
        self._hash.update(b"".join([_part(row[name]) for row in rows for name in sorted(row)]))

    def value(self) -> bytes:
        """Return it."""
        return self._hash.digest()


def seal_of(connection: Connection) -> bytes | None:
    """Return the digest that a database says is its own; None: it is no backup."""
    if not inspect(connection).has_table(seal.name):
        return None
    said = connection.scalar(select(seal.c.digest))
    return said if isinstance(said, bytes) else b""


def put_seal(connection: Connection, digest: bytes) -> None:
    """Make a backup of a database that has just been filled."""
    seal.create(connection)
    connection.execute(insert(seal), {"digest": digest})


def break_seal(connection: Connection) -> None:
    """Make a database of what may have been a backup."""
    seal.drop(connection, checkfirst=True)


def _part(value: object) -> bytes:
    match value:
        case bytes():
            kind, data = b"b", value
        case str():
            kind, data = b"s", value.encode("utf-8", "surrogatepass")
        case None:
            kind, data = b"n", b""
        case _:  # a number; a boolean is one on some engines
            kind, data = b"i", str(int(value)).encode()  # type: ignore[call-overload]
    return b"%b%d:%b" % (kind, len(data), data)
