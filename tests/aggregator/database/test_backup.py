"""Backup, restore and copy: a complete snapshot of one moment, or nothing."""

from __future__ import annotations

import json
import os
import random
import resource
import sqlite3
import stat
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from hubbub import Batch, Definitions
from hubbub.cli import main
from hubbub_aggregator.database import backup as backup_module
from hubbub_aggregator.database import row_copy, schema_version
from hubbub_aggregator.database.backup import copy_file, new_file
from hubbub_aggregator.database.engine import open_existing, transaction
from hubbub_aggregator.database.location import is_postgres
from hubbub_aggregator.database.row_copy import copy_rows
from hubbub_aggregator.database.schema import SCHEMA_VERSION
from hubbub_aggregator.errors import SchemaError, StoreError
from hubbub_aggregator.pipeline.folding import fold, read_summary
from hubbub_aggregator.store.clock_state import ClockState, StoredClock
from hubbub_aggregator.store.interface import AppendResult
from hubbub_aggregator.store.sql_store import SqlStore
from hubbub_aggregator.store.tokens import Scope, Token
from tests.support.crashing_store import DiesError
from tests.support.databases import contents, new_postgres, sql
from tests.support.postgres import binary

if TYPE_CHECKING:
    from tests.aggregator.conftest import MakeBatch

HUBBUB = str(Path(sys.executable).parent / "hubbub")
READ = [Scope.READ]
ROWS = {
    "clock": 1,
    "collection": 5,
    "refusal": 2,
    "token": 1,
    "batch": 5,
    "due_mark": 2,
    "retained": 3,
    "segment": 3,
    "session": 1,
}
"""Number of rows of each table in the database that is copied."""
MARKS = ("last_backup", "write_probes")
"""Columns that a copy does not keep."""


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["db", *map(str, arguments)])


@pytest.fixture
def filled(database: str, definitions: Definitions, make_batch: MakeBatch) -> tuple[str, list[Batch]]:
    """A database with rows in every table, and the batches of its open periods."""
    homepage, carrier = definitions["homepage"], definitions["carrier"]
    store = SqlStore.open(database)
    for day in ("2024-05-01", "2024-05-02"):
        store.append([make_batch(homepage, period=day)])
        fold(store, homepage)
        store.close_period(homepage, day)
    store.purge(homepage.digest, "2024-05-02")
    batches = [make_batch(metric, n) for metric in (homepage, carrier) for n in (3, 200)]
    store.append(batches[:3])
    fold(store, homepage)
    store.append(batches[3:])
    store.append([make_batch(homepage, period="2024-06-14")])
    store.add_refusals({("homepage", "padding-set"): 7, ("", "malformed"): 2**31 + 1})
    store.add_token(Token("analysts", frozenset(READ)), bytes(range(32)))
    store.add_session(bytes(32), "analysts", expires=2**40, now=0)
    assert store.save_clock(StoredClock(ClockState(7, 2.0**31, 0.0), None, 1.0), replaces=None)
    store.close()
    sql(database, "UPDATE collection SET smallest_segment = 3")
    sql(database, "INSERT INTO due_mark SELECT id FROM collection WHERE closed")
    sql(database, "INSERT INTO retained (collection_id, cohorts, reports) SELECT 1, cohorts, reports FROM segment")
    return database, batches


def elsewhere(database: str, place: Path, request: pytest.FixtureRequest) -> str:
    """Return the name of a new database on the other engine."""
    if is_postgres(database):
        return str(place / "copy.db")
    return new_postgres(request.getfixturevalue("postgres_url"))


def test_copy_to_the_other_engine_and_back_keeps_all_rows(
    filled: tuple[str, list[Batch]], tmp_path: Path, definitions: Definitions, request: pytest.FixtureRequest
) -> None:
    database, batches = filled
    there = elsewhere(database, tmp_path, request)
    rows = copy_rows(database, there)
    assert rows == ROWS
    assert contents(there, MARKS) == contents(database, MARKS)
    back = str(tmp_path / "back.db") if not is_postgres(database) else elsewhere("any.db", tmp_path, request)
    copy_rows(there, back)
    assert contents(back, MARKS) == contents(database, MARKS)

    store, copied = SqlStore.open(database), SqlStore.open(there)
    for metric in definitions.versions():
        assert read_summary(copied, metric) == read_summary(store, metric)
        assert [h.summary for h in copied.read(metric.digest)] == [h.summary for h in store.read(metric.digest)]
        assert copied.closed_periods(metric.digest) == store.closed_periods(metric.digest)
    assert copied.append(batches) == [AppendResult.DUPLICATE] * len(batches)
    assert copied.token(bytes(range(32))) == Token("analysts", frozenset(READ))
    assert copied.refusals() == store.refusals()
    store.close()
    copied.close()


def test_copy_continues_ids_after_the_copied_ones(
    filled: tuple[str, list[Batch]],
    tmp_path: Path,
    definitions: Definitions,
    make_batch: MakeBatch,
    request: pytest.FixtureRequest,
) -> None:
    database, _ = filled
    there = elsewhere(database, tmp_path, request)
    copy_rows(database, there)
    before, store = contents(there), SqlStore.open(there)
    new = [make_batch(definitions["homepage"], period=f"2024-06-{day}") for day in (11, 12, 15)]
    assert store.append(new) == [AppendResult.STORED] * 3
    store.close()
    after = contents(there)
    for name, more in (("segment", 3), ("collection", 2)):
        ids_before = {row[0] for row in before[name]}
        assert len({row[0] for row in after[name]} - ids_before) == more
        assert min({row[0] for row in after[name]} - ids_before) > max(ids_before)


def test_copy_during_ingest_is_a_snapshot_with_all_acknowledged_batches(
    database: str, tmp_path: Path, definitions: Definitions, make_batch: MakeBatch
) -> None:
    metric, store = definitions["homepage"], SqlStore.open(database)
    batches = [make_batch(metric) for _ in range(400)]
    acknowledged: list[Batch] = []
    enough, backed_up = threading.Event(), threading.Event()

    def send(mine: list[Batch]) -> None:
        for batch in mine:
            store.append([batch])
            acknowledged.append(batch)
            if len(acknowledged) == 100:
                fold(store, metric)
                enough.set()
            if len(acknowledged) > 300:
                backed_up.wait()  # the last hundred are stored after the copy

    file = str(tmp_path / "backup.db")
    with ThreadPoolExecutor(4) as pool:
        sending = [pool.submit(send, batches[part::4]) for part in range(4)]
        enough.wait()
        before = list(acknowledged)
        (copy_rows if is_postgres(database) else copy_file)(database, file)
        backed_up.set()
        for future in sending:
            future.result()

    restored = SqlStore.open(file)
    held = [batch for batch in batches if restored.contains(batch)]
    assert all(restored.contains(batch) for batch in before)
    assert len(before) <= len(held) < 400
    assert read_summary(restored, metric).num_reports == 3 * len(held)
    assert restored.append(batches).count(AppendResult.STORED) == 400 - len(held)
    assert read_summary(restored, metric) == read_summary(store, metric), "the missing batches were stored again, once"
    restored.close()
    store.close()


def test_copy_to_a_database_with_rows_is_refused(
    filled: tuple[str, list[Batch]], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    database, _ = filled
    other = elsewhere(database, tmp_path, request)
    store = SqlStore.open(other)
    store.add_token(Token("auditors", frozenset(READ)), bytes(32))
    store.close()
    before = contents(other)
    with pytest.raises(StoreError, match=r"exists already|token has rows already"):
        copy_rows(database, other)
    with pytest.raises(StoreError, match=r"exists already|has rows already"):
        copy_rows(database, database)
    assert contents(other) == before


def test_copy_from_another_schema_version_is_refused(
    database: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """A newer version may have columns that this release does not know."""
    SqlStore.open(database).close()
    sql(database, f"UPDATE alembic_version SET version_num = '{SCHEMA_VERSION + 1:04}'")
    there = elsewhere(database, tmp_path, request)
    with pytest.raises(SchemaError, match=f"schema version {SCHEMA_VERSION + 1}, .*: use the newer hubbub"):
        copy_rows(database, there)
    if not is_postgres(database):
        with pytest.raises(SchemaError, match=f"schema version {SCHEMA_VERSION + 1}, .*: use the newer hubbub"):
            copy_file(database, str(tmp_path / "backup.db"))


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_backup_of_an_older_schema_keeps_its_version(
    filled: tuple[str, list[Batch]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup from before an upgrade is restored by the new release, and upgraded then."""
    backup, restored = str(tmp_path / "backup.db"), str(tmp_path / "restored.db")
    for module in (backup_module, schema_version):
        monkeypatch.setattr(module, "SCHEMA_VERSION", SCHEMA_VERSION + 1)
    copy_file(filled[0], backup)
    copy_file(backup, restored)
    assert contents(restored, MARKS) == contents(filled[0], MARKS)
    with pytest.raises(SchemaError, match="run `hubbub db upgrade`"):
        SqlStore.open(restored)


def test_failed_copy_leaves_the_target_as_before(
    filled: tuple[str, list[Batch]], tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, _ = filled
    place = tmp_path / "backups"
    place.mkdir()
    there = elsewhere(database, place, request)

    def die(*_: object) -> None:
        raise DiesError

    with monkeypatch.context() as dying:
        dying.setattr(row_copy, "continue_ids", die)
        with pytest.raises(DiesError):
            copy_rows(database, there)
    assert list(place.iterdir()) == []
    copy_rows(database, there)
    assert contents(there, MARKS) == contents(database, MARKS)


@pytest.mark.parametrize("step", ["vacuum_into", "page_damage"])
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_failed_backup_leaves_no_file(
    filled: tuple[str, list[Batch]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    (place := tmp_path / "backups").mkdir()

    def die(*_: object) -> None:
        raise DiesError

    monkeypatch.setattr(backup_module, step, die)
    with pytest.raises(DiesError):
        copy_file(filled[0], str(place / "backup.db"))
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_backup_on_a_full_disk_fails_and_leaves_no_file(filled: tuple[str, list[Batch]], tmp_path: Path) -> None:
    """The disk is simulated with a limit on the size of a file."""
    (place := tmp_path / "backups").mkdir()
    copy_file(filled[0], str(tmp_path / "complete.db"))
    room = (tmp_path / "complete.db").stat().st_size - 4096
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
        with pytest.raises(StoreError, match="check whether its disk is full"):
            copy_file(filled[0], str(place / "backup.db"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(place.iterdir()) == []
    with pytest.raises(StoreError, match=r"cannot write into .*: No such file or directory"):
        copy_file(filled[0], str(place / "nowhere" / "backup.db"))


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_backup_without_stored_time_is_complete_and_exits_with_1(
    filled: tuple[str, list[Batch]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise StoreError("the database is read-only")

    monkeypatch.setattr(backup_module, "record_backup", fail)
    done = run("backup", tmp_path / "backup.db", "--database", filled[0])
    assert (done.exit_code, "the database is read-only" in done.stderr) == (1, True)
    assert contents(str(tmp_path / "backup.db"), MARKS) == contents(filled[0], MARKS)


@pytest.fixture(scope="module")
def backup(definitions: Definitions, make_batch: MakeBatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup for tests that damage it."""
    place = tmp_path_factory.mktemp("backup")
    store = SqlStore.open(place / "reports.db")
    store.append([make_batch(definitions["homepage"], 5_000)])
    store.append([make_batch(definitions["carrier"], 50) for _ in range(20)])
    fold(store, definitions["carrier"])
    store.close()
    copy_file(str(place / "reports.db"), str(place / "backup.db"))
    return place / "backup.db"


@pytest.mark.parametrize("share", [0, 0.001, 0.03, 0.5, 0.9, 0.99999])
def test_restore_refuses_a_truncated_backup(backup: Path, tmp_path: Path, share: float) -> None:
    data = backup.read_bytes()
    (tmp_path / "short.db").write_bytes(data[: int(len(data) * share)])
    with pytest.raises(StoreError):
        copy_file(str(tmp_path / "short.db"), str(tmp_path / "restored.db"))
    assert [path.name for path in tmp_path.iterdir()] == ["short.db"]


@pytest.mark.parametrize("number", range(30))
def test_restore_refuses_a_changed_bit_or_is_undamaged(
    backup: Path, tmp_path: Path, number: int, unseen_seed: int
) -> None:
    """SQLite has no checksum of its contents: a bit that changes within a report is not found, only structure is checked.

    Every second bit is one of the first page, which has the definitions of the tables.
    """
    rng = random.Random(unseen_seed * 30 + number)  # noqa: S311
    data = bytearray(backup.read_bytes())
    data[rng.randrange(4096 if number % 2 else len(data))] ^= 1 << rng.randrange(8)
    damaged, restored = tmp_path / "damaged.db", tmp_path / "restored.db"
    damaged.write_bytes(data)
    try:
        copy_file(str(damaged), str(restored))
    except StoreError:
        assert [path.name for path in tmp_path.iterdir()] == ["damaged.db"]
    else:
        assert {name: len(rows) for name, rows in contents(str(restored)).items()} == {
            name: len(rows) for name, rows in contents(str(backup)).items()
        }
        with closing(SqlStore.open(restored)) as store:
            store.probe()
        with closing(sqlite3.connect(restored)) as connection:
            connection.execute("PRAGMA foreign_keys = on")
            # each statement checks the keys that name the table
            for table in ("segment", "session", "token", "collection"):
                connection.execute(f"DELETE FROM {table} WHERE false")
        with open_existing(str(restored), read_only=True) as engine, transaction(engine, writes=False) as connection:
            assert connection.exec_driver_sql("PRAGMA integrity_check").scalars().all() == ["ok"]


def sql_value(database: Path, query: str) -> Any:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(query).fetchone()[0]


def fails_integrity_check(database: Path) -> bool:
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            return bool(connection.execute("PRAGMA integrity_check").fetchall() != [("ok",)])
    except sqlite3.DatabaseError:
        return True


@pytest.mark.parametrize("fill", [os.urandom, bytes], ids=["random", "zeros"])
def test_backup_refuses_a_source_with_an_overwritten_page_or_keeps_all_rows(
    backup: Path, tmp_path: Path, fill: Callable[[int], bytes]
) -> None:
    """`VACUUM INTO` builds indexes again and leaves out what it cannot reach: its copy is sound, and lacks rows."""
    data, refused = backup.read_bytes(), 0
    damaged, copy = tmp_path / "damaged.db", tmp_path / "copy.db"
    without_reports = contents(str(backup), ("cohorts", "reports"))
    for page in range(len(data) // 4096):
        damaged.write_bytes(data[: page * 4096] + fill(4096) + data[(page + 1) * 4096 :])
        is_damaged = fails_integrity_check(damaged)
        done = run("backup", copy, "--database", damaged)
        assert (done.exit_code, copy.exists()) == ((1, False) if is_damaged else (0, True)), (page, done.output)
        refused += is_damaged
        if copy.exists():
            assert contents(str(copy), ("cohorts", "reports")) == without_reports
            copy.unlink()
        else:
            assert "wrote" not in done.output
            with suppress(sqlite3.DatabaseError):
                assert sql_value(damaged, "SELECT last_backup FROM hubbub_schema") is None
    assert refused > len(data) / 4096 / 2


@pytest.mark.parametrize("command", ["backup", "restore", "copy"])
def test_backup_refuses_a_summary_that_cannot_be_read(backup: Path, tmp_path: Path, command: str) -> None:
    source, target = tmp_path / "source.db", tmp_path / "target.db"
    source.write_bytes(backup.read_bytes())
    sql(str(source), "UPDATE collection SET summary = zeroblob(length(summary)) WHERE summary NOT NULL")
    arguments = [source, "--database", target] if command == "restore" else [target, "--database", source]
    done = run(command, *([source, target] if command == "copy" else arguments))
    assert done.exit_code == 1
    assert "the summary of 'carrier', '2024-06-15', cannot be read" in done.output
    assert not target.exists()
    assert sql_value(source, "SELECT last_backup FROM hubbub_schema") is None


def test_restore_refuses_table_names_that_are_not_text(backup: Path, tmp_path: Path) -> None:
    """SQLite's error message contains the bytes of the name."""
    data = backup.read_bytes()
    assert b"tablesegmentsegment" in data
    (tmp_path / "damaged.db").write_bytes(
        data.replace(b"tablesegmentsegment", b"tables\xf4gmentsegment").replace(
            b"CREATE TABLE segment", b"CREATE TABLX segment"
        )
    )
    with pytest.raises(StoreError, match=r"damaged|malformed"):
        copy_file(str(tmp_path / "damaged.db"), str(tmp_path / "restored.db"))
    assert not (tmp_path / "restored.db").exists()
    checked = run("check", "--database", tmp_path / "damaged.db")
    assert checked.exit_code == 1
    assert "Traceback" not in checked.output


def test_restore_refuses_a_schema_that_is_not_text(tmp_path: Path) -> None:
    """The table `batch` is empty: its rows would make the check of foreign keys look for the table with the damaged name."""
    SqlStore.open(tmp_path / "reports.db").close()
    copy_file(str(tmp_path / "reports.db"), str(tmp_path / "backup.db"))
    data = (tmp_path / "backup.db").read_bytes()
    assert b"REFERENCES collection" in data
    (tmp_path / "damaged.db").write_bytes(data.replace(b"REFERENCES collection", b"REFERENCES coll\xe5ction"))
    with pytest.raises(StoreError, match="UTF-8"):
        copy_file(str(tmp_path / "damaged.db"), str(tmp_path / "restored.db"))
    assert not (tmp_path / "restored.db").exists()


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE segment",
        "ALTER TABLE segment DROP COLUMN reports",
        "ALTER TABLE segment ADD COLUMN more BLOB",
        "UPDATE alembic_version SET version_num = '0099'",
        "UPDATE alembic_version SET version_num = 'strange'",
        "UPDATE segment SET reports = 'text where bytes belong'",
        "UPDATE batch SET collection_id = 77",
        "INSERT INTO token (name, secret_hash, scopes) VALUES (CAST(x'ff' AS TEXT), zeroblob(32), 'read')",
        "DROP TABLE hubbub_schema; CREATE VIEW hubbub_schema AS SELECT 2 AS oldest_compatible",
    ],
)
@pytest.mark.parametrize("copy", [copy_file, copy_rows])
def test_restore_and_copy_refuse_files_of_other_programs(
    backup: Path, tmp_path: Path, statement: str, copy: Any
) -> None:
    forged = tmp_path / "forged.db"
    forged.write_bytes(backup.read_bytes())
    sql(str(forged), statement)
    with pytest.raises(StoreError) as refused:
        copy(str(forged), str(tmp_path / "restored.db"))
    assert "\n" not in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["forged.db"]


def test_backup_has_mode_0600_and_restore_only_reads_it(backup: Path, tmp_path: Path) -> None:
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    before = backup.read_bytes(), list(backup.parent.iterdir())
    copy_file(str(backup), str(tmp_path / "restored.db"))
    assert (backup.read_bytes(), list(backup.parent.iterdir())) == before
    assert stat.S_IMODE((tmp_path / "restored.db").stat().st_mode) == 0o600


def test_new_file_is_synced_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def note_fsync(descriptor: int) -> None:
        steps.append("fsync directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "fsync file")
        fsync(descriptor)

    def note_rename(path: Path, target: Path) -> Path:
        steps.append("rename")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(Path, "rename", note_rename)
    with new_file(tmp_path / "new.db") as file:
        file.write_bytes(b"contents")
        assert steps == []
        assert not (tmp_path / "new.db").exists()
    assert steps == ["fsync file", "rename", "fsync directory"]
    assert (tmp_path / "new.db").read_bytes() == b"contents"


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_backup_has_no_deleted_data(
    database: str, tmp_path: Path, definitions: Definitions, make_batch: MakeBatch
) -> None:
    metric, canary = definitions["homepage"], b"AB\x03" * 1_000
    store = SqlStore.open(database)
    store.append([make_batch(metric, 0, cohorts=bytes(1_000), rows=canary)])
    store.append([make_batch(metric, period="2024-06-14")])
    assert canary[:60] in Path(database).read_bytes() + Path(f"{database}-wal").read_bytes()
    fold(store, metric)
    copy_file(database, str(tmp_path / "backup.db"))
    store.close()
    assert canary[:60] not in (tmp_path / "backup.db").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("copy", [copy_file, copy_rows])
def test_copy_needs_little_memory(
    database: str, tmp_path: Path, definitions: Definitions, make_batch: MakeBatch, copy: Any
) -> None:
    """48 MB of segments, 1 MB each."""
    if is_postgres(database) and copy is copy_file:
        pytest.skip("files are SQLite's")
    metric, store = definitions["homepage"], SqlStore.open(database)
    n = 250_000
    for _ in range(48):
        store.append([make_batch(metric, 0, cohorts=bytes(n), rows=bytes(n * metric.row_bytes))])
    store.close()
    tracemalloc.start()
    copy(database, str(tmp_path / "backup.db"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 24 << 20


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_db_backup_and_db_restore_keep_all_rows_and_store_the_time(
    filled: tuple[str, list[Batch]], tmp_path: Path
) -> None:
    database, file, there = filled[0], tmp_path / "backup.db", tmp_path / "restored.db"
    done = run("backup", file, "--database", database)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == f"wrote backup {file} ({sum(ROWS.values())} rows)\n"
    restored = json.loads(run("restore", file, "--database", there, "--json").stdout)
    assert restored["rows"] == ROWS
    assert contents(str(there), MARKS) == contents(database, MARKS)
    with closing(SqlStore.open(database)) as store:
        assert 0 <= time.time() - (store.last_backup() or 0) < 3_600
        began = store.last_backup()
    with closing(SqlStore.open(there)) as store:
        assert store.last_backup() is None, "a restored database has no backup of its own"
    again = run("backup", file, "--database", database)
    with closing(SqlStore.open(database)) as store:
        assert store.last_backup() == began, "a failed backup is not recorded"
    assert (again.exit_code, again.stdout) == (1, "")
    assert again.stderr.endswith(f"-> {file}: the file exists already: move it away, or give another name\n")
    kept = run("restore", file, "--database", there)
    assert (kept.exit_code, "exists already" in kept.stderr) == (1, True)


def test_db_copy_copies_between_engines(
    filled: tuple[str, list[Batch]], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    database, there = filled[0], elsewhere(filled[0], tmp_path, request)
    assert json.loads(run("copy", database, there, "--json").stdout)["rows"] == ROWS
    if not is_postgres(database):
        assert run("copy", database, tmp_path / "compacted.db").exit_code == 0
        assert contents(str(tmp_path / "compacted.db"), MARKS) == contents(database, MARKS)
    unreachable = "postgresql://hubbub:secret@127.0.0.1:1/hubbub"
    refused = run("copy", unreachable, tmp_path / "other.db")
    assert refused.exit_code == 1
    assert "secret" not in refused.stderr
    assert run("copy", tmp_path / "missing.db", unreachable).exit_code == 1


def test_db_backup_and_db_restore_name_the_tools_of_postgres(tmp_path: Path) -> None:
    url, file = "postgresql://hubbub:secret@127.0.0.1:1/hubbub", tmp_path / "backup.db"
    for arguments, tool in (
        (("backup", file, "--database", url), "pg_dump"),
        (("backup", url, "--database", file), "hubbub db copy"),
        (("restore", file, "--database", url), "pg_restore"),
        (("restore", url, "--database", file), "pg_restore"),
    ):
        refused = run(*arguments)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert tool in refused.stderr
        assert "secret" not in refused.stderr
    assert not file.exists()


def test_db_record_backup_stores_the_time(filled: tuple[str, list[Batch]]) -> None:
    done = run("record-backup", "--began", "1700000000", "--database", filled[0])
    assert (done.exit_code, done.stdout) == (0, "recorded a backup of 2023-11-14 22:13 UTC\n")
    refused = run("record-backup", "--began", "99999999999", "--database", filled[0])
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "99999999999 is after now, " in refused.stderr
    with closing(SqlStore.open(filled[0])) as store:
        assert store.last_backup() == 1_700_000_000
    recorded = json.loads(run("record-backup", "--database", filled[0], "--json").stdout)
    assert 0 <= time.time() - recorded["last_backup"] < 3_600


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_pg_dump_and_pg_restore_keep_all_rows(
    filled: tuple[str, list[Batch]], tmp_path: Path, request: pytest.FixtureRequest, make_batch: MakeBatch
) -> None:
    """The commands that docs/how-to/backup.md gives."""
    database, dump = filled[0], tmp_path / "reports.dump"
    there = new_postgres(request.getfixturevalue("postgres_url"))
    dumped = [binary("pg_dump"), "--format=custom", "--file", str(dump), database]
    subprocess.run(dumped, check=True)
    restore = [
        binary("pg_restore"),
        "--exit-on-error",
        "--single-transaction",
        "--no-owner",
        "--dbname",
        there,
        str(dump),
    ]
    subprocess.run(restore, check=True)
    assert contents(there) == contents(database)
    with closing(SqlStore.open(there)) as store:
        assert store.append(filled[1]) == [AppendResult.DUPLICATE] * len(filled[1])
