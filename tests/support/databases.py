"""Create, change and compare databases without the store."""

from __future__ import annotations

import sqlite3
import uuid
from contextlib import closing
from typing import Any

import psycopg
from sqlalchemy import MetaData, select

from hubbub_aggregator.database.engine import open_existing, transaction
from hubbub_aggregator.database.location import is_postgres
from tests.support.paths import DATA


def new_postgres(server: str) -> str:
    """Create an empty database on a PostgreSQL server; return its URL."""
    name = f"test_{uuid.uuid4().hex}"
    with closing(psycopg.connect(server, autocommit=True)) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return server.replace("/postgres?", f"/{name}?")


def sql(database: str, statements: str) -> None:
    """Run SQL statements over the driver, without hubbub."""
    if is_postgres(database):
        with psycopg.connect(database) as connection:
            connection.execute(statements.encode())
    else:
        with closing(sqlite3.connect(database)) as file:
            file.executescript(statements)


def make_version_6(database: str) -> None:
    """Load a dump of a database that the first release, of schema version 6, created and used."""
    sql(database, (DATA / f"version_6.{'postgres' if is_postgres(database) else 'sqlite'}.sql").read_text())


def contents(database: str, without: tuple[str, ...] = ()) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of all tables, except for tables and columns with these names."""
    found = MetaData()
    with open_existing(database, read_only=True) as engine, transaction(engine, writes=False) as connection:
        found.reflect(connection)
        return {
            table.name: sorted(
                connection.execute(select(*(c for c in table.c if c.name not in without))).all(), key=repr
            )
            for table in found.sorted_tables
            if table.name not in without
        }
