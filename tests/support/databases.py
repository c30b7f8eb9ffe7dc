"""Databases as somebody else sees them: made, worked on and compared without the store."""

from __future__ import annotations

import sqlite3
import uuid
from contextlib import closing
from typing import Any

import psycopg
from sqlalchemy import MetaData, select
from tests.support.paths import DATA

from hubbub_aggregator.database.database_url import is_postgres
from hubbub_aggregator.database.engine import open_existing, transaction


def new_postgres(server: str) -> str:
    """Make an empty database on a server; return its URL."""
    name = f"test_{uuid.uuid4().hex}"
    with closing(psycopg.connect(server, autocommit=True)) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return server.replace("/postgres?", f"/{name}?")


def sql(database: str, statements: str) -> None:
    """Run statements as somebody else would."""
    if is_postgres(database):
        with psycopg.connect(database) as connection:
            connection.execute(statements.encode())
    else:
        with closing(sqlite3.connect(database)) as file:
            file.executescript(statements)


def make_version_2(database: str) -> None:
    """Put there what a hubbub of schema version 2 has made and worked with."""
    sql(database, (DATA / f"version_2.{'postgres' if is_postgres(database) else 'sqlite'}.sql").read_text())


def contents(database: str, without: tuple[str, ...] = ()) -> dict[str, list[tuple[Any, ...]]]:
    """Return all rows of all tables, but of the tables and columns with these names."""
    found = MetaData()
    with open_existing(database) as engine, transaction(engine, writes=False) as connection:
        found.reflect(connection)
        return {
            table.name: sorted(
                connection.execute(select(*(c for c in table.c if c.name not in without))).all(), key=repr
            )
            for table in found.sorted_tables
            if table.name not in without
        }
