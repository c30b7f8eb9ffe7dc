"""Threads of one process that write to a SQLite file take turns."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Event, Thread

from sqlalchemy import text

from hubbub_aggregator.database.engine import open_sqlite, transaction

_HELD_SECONDS = 0.03
_WRITES = 5


def test_a_thread_that_writes_without_pause_keeps_no_other_out(tmp_path: Path) -> None:
    """SQLite polls for its lock, and here it is held all the time but microseconds: others had waited for 10 s in vain."""
    engine = open_sqlite(tmp_path / "reports.db")
    with transaction(engine, writes=True) as connection:
        connection.execute(text("CREATE TABLE written (thread TEXT)"))
    begun, done = Event(), Event()

    def write_without_pause() -> None:
        while not done.is_set():
            with transaction(engine, writes=True) as connection:
                connection.execute(text("INSERT INTO written VALUES ('busy')"))
                begun.set()
                time.sleep(_HELD_SECONDS)

    busy = Thread(target=write_without_pause)
    busy.start()
    try:
        assert begun.wait(60)
        for _ in range(_WRITES):
            with transaction(engine, writes=True) as connection:
                connection.execute(text("INSERT INTO written VALUES ('other')"))
    finally:
        done.set()
        busy.join()
    with transaction(engine, writes=False) as connection:
        written = connection.execute(text("SELECT thread FROM written ORDER BY rowid")).scalars().all()
    before_the_last = written[: len(written) - written[::-1].index("other")]
    assert before_the_last.count("busy") <= 4 * _WRITES, written
    engine.dispose()
