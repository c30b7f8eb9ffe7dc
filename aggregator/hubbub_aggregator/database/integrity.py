"""Check a database for damage: SQLite's page structure, and whether every summary can be read."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable

from sqlalchemy import Connection, Engine, inspect, select

from hubbub.errors import HubbubError
from hubbub.summary import summary_from_bytes
from hubbub_aggregator.database.engine import open_existing, served_files, transaction
from hubbub_aggregator.database.schema import collection
from hubbub_aggregator.errors import StoreError

_DAMAGE_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_MAX_SHARE_OF_TIME = 0.1
_MAX_DAMAGES = 10
"""Most damages that are reported."""
NEXT_STEP = "stop the aggregator, keep the file, and restore the last backup into a new file with `hubbub db restore`"


def find_damage(engine: Engine) -> list[str]:
    """Return descriptions of damage, at most 10.

    Reads all of a SQLite file (`PRAGMA quick_check`) and its write-ahead log; of a PostgreSQL database it reads the summaries.
    """
    found: list[str] = []
    for check in (log_damage, page_damage, summary_damage):
        try:
            with transaction(engine, writes=False) as connection:
                found += check(connection)
        except StoreError as problem:
            error = _sqlite_error(problem)
            if error is None or error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_CORRUPT:
                raise
            found += [] if found else [str(error)]
    return found[:_MAX_DAMAGES]


class FileCheck:
    """Repeated check of the files of a SQLite database that this process writes, as a restart would find them.

    It compares the write-ahead log with its index, and reads the page structure through a new connection, because the pages that other
    connections have in memory may be on the disk no more. It does nothing if the files have not changed since the last check. Reading
    pages takes at most a tenth of the time: if it took t seconds, it is due again 9 t seconds later.
    """

    def __init__(self, engine: Engine, clock: Callable[[], float] = time.monotonic) -> None:
        self._files = served_files(engine)
        self._clock = clock
        self._due = clock()
        self._sound: list[tuple[int, int]] = []

    def run(self) -> None:
        """Raise FilesInDoubtError if the files are moved or damaged."""
        if self._files is None:
            return
        self._files.require_intact()
        if (state := self._files.state()) == self._sound:
            return
        self._files.require_sound_log()
        if (began := self._clock()) < self._due:
            return
        try:
            damage = self._page_damage(str(self._files.path))
        finally:
            self._files.require_intact()  # a file that was moved in the meantime is not damaged
        if damage:
            self._files.report_damage(f"{self._files.path} is damaged: {damage[0]}")
        self._due = began + (self._clock() - began) / _MAX_SHARE_OF_TIME
        self._sound = state

    @staticmethod
    def _page_damage(database: str) -> list[str]:
        try:
            with open_existing(database, read_only=True) as engine, transaction(engine, writes=False) as connection:
                return page_damage(connection)
        except StoreError as problem:
            if (error := _sqlite_error(problem)) and error.sqlite_errorcode & 0xFF in _DAMAGE_CODES:
                return [str(error)]
            raise


def _sqlite_error(problem: StoreError) -> sqlite3.Error | None:
    """Return the driver's error behind a StoreError; None: it has another cause."""
    error = getattr(problem.__cause__, "orig", None)
    return error if isinstance(error, sqlite3.Error) else None


def page_damage(connection: Connection, pragma: str = "quick_check") -> list[str]:
    """Return the damage that SQLite finds in its pages; [] on PostgreSQL.

    pragma : "quick_check", or "integrity_check", which also compares indexes with their tables
    """
    if connection.dialect.name != "sqlite":
        return []
    results = connection.exec_driver_sql(f"PRAGMA {pragma}({_MAX_DAMAGES})").scalars().all()
    return [line for text in results for line in text.splitlines() if line != "ok" and not line.startswith("***")]


def log_damage(connection: Connection) -> list[str]:
    """Return how SQLite's write-ahead log differs from what its connections read: none verifies the checksums of an open log."""
    files = served_files(connection.engine)
    damage = None if files is None else files.log_damage()
    return [] if damage is None else [damage]


def summary_damage(connection: Connection) -> list[str]:
    """Return which summaries cannot be read."""
    if not inspect(connection).has_table(collection.name):
        return []
    found = []
    query = select(collection.c.metric, collection.c.period, collection.c.summary).where(
        collection.c.summary.is_not(None)
    )
    for metric, period, summary in connection.execution_options(yield_per=8).execute(query):
        try:
            summary_from_bytes(summary)
        except HubbubError:
            found.append(f"the summary of {metric!r:.80}, {period!r:.20}, cannot be read")
    return found
