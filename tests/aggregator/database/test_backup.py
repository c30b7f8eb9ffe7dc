"""Backup, restore and copy: all that is stored comes over, once, from one moment, or nothing does."""

from __future__ import annotations

import json
import random
import stat
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from tests.aggregator.database.test_migrations import NEW
from tests.support.databases import contents, new_postgres, sql

from hubbub import Batch, Definitions
from hubbub.cli import main
from hubbub_aggregator.database import backup as backup_module
from hubbub_aggregator.database import engine
from hubbub_aggregator.database.backup import copy
from hubbub_aggregator.database.database_url import is_postgres
from hubbub_aggregator.database.engine import open_existing, transaction
from hubbub_aggregator.database.schema import SCHEMA_VERSION
from hubbub_aggregator.database.upgrade import upgrade
from hubbub_aggregator.errors import StoreError
from hubbub_aggregator.pipeline.folding import fold, read_summary
from hubbub_aggregator.store.clock_state import ClockState, StoredClock
from hubbub_aggregator.store.interface import AppendResult
from hubbub_aggregator.store.sql_store import SqlStore
from hubbub_aggregator.store.tokens import Scope, Token

if TYPE_CHECKING:
    from tests.aggregator.conftest import MakeBatch

READ = [Scope.READ]
ROWS = {"clock": 1, "collection": 5, "refusal": 2, "token": 1, "batch": 5, "retained": 3, "segment": 3, "session": 1}
"""How many rows the database has that is copied."""


@pytest.fixture
def filled(database: str, definitions: Definitions, make_batch: MakeBatch) -> tuple[str, list[Batch]]:
    """A database with some of everything, and the batches of its open periods."""
    homepage, carrier = definitions["homepage"], definitions["carrier"]
    store = SqlStore.open(database)
    for day in ("2024-05-01", "2024-05-02"):
        store.append([make_batch(homepage, period=day)])
        fold(store, homepage)
        store.close_period(homepage.digest, day)
    store.purge(homepage.digest, "2024-05-02")
    batches = [make_batch(metric, n) for metric in (homepage, carrier) for n in (3, 200)]
    store.append(batches[:3])
    fold(store, homepage)
    store.append(batches[3:])
    store.append([make_batch(homepage, period="2024-06-14")])
    store.add_refusals({("homepage", "padding-set"): 7, ("", "malformed"): 2**31 + 1})
    store.add_token(Token("analysts", frozenset(READ)), bytes(range(32)))
    store.add_session(bytes(32), "analysts", expires=2**40, now=0)
    assert store.save_clock(StoredClock(ClockState(7, 2.0**31, None, 0.0), None, 1.0), replaces=None)
    store.close()
    sql(database, "UPDATE collection SET smallest = 3")
    sql(database, "INSERT INTO retained (collection_id, cohorts, rows) SELECT 1, cohorts, rows FROM segment")
    return database, batches


def elsewhere(database: str, place: Path, request: pytest.FixtureRequest) -> str:
    """Name a place for a copy on the other engine."""
    if is_postgres(database):
        return str(place / "copy.db")
    return new_postgres(request.getfixturevalue("postgres_url"))


def test_a_copy_on_the_other_engine_and_back_is_the_same(
    filled: tuple[str, list[Batch]], tmp_path: Path, definitions: Definitions, request: pytest.FixtureRequest
) -> None:
    database, batches = filled
    there = elsewhere(database, tmp_path, request)
    rows = copy(database, there)
    assert rows == ROWS
    assert contents(there) == contents(database)
    back = str(tmp_path / "back.db") if not is_postgres(database) else elsewhere("any.db", tmp_path, request)
    copy(there, back)
    assert contents(back) == contents(database)

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


def test_ids_go_on_after_those_that_were_copied(
    filled: tuple[str, list[Batch]],
    tmp_path: Path,
    definitions: Definitions,
    make_batch: MakeBatch,
    request: pytest.FixtureRequest,
) -> None:
    database, _ = filled
    there = elsewhere(database, tmp_path, request)
    copy(database, there)
    before, store = contents(there), SqlStore.open(there)
    new = [make_batch(definitions["homepage"], period=f"2024-06-{day}") for day in (11, 12, 15)]
    assert store.append(new) == [AppendResult.STORED] * 3
    store.close()
    after = contents(there)
    for name, more in (("segment", 3), ("collection", 2)):
        known = {row[0] for row in before[name]}
        assert len({row[0] for row in after[name]} - known) == more
        assert min({row[0] for row in after[name]} - known) > max(known)


def test_a_backup_during_ingest_has_whatever_was_acknowledged_before_it_and_each_batch_once(
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
                backed_up.wait()  # the last hundred come after it for certain

    file = str(tmp_path / "backup.db")
    with ThreadPoolExecutor(4) as pool:
        sending = [pool.submit(send, batches[part::4]) for part in range(4)]
        enough.wait()
        before = list(acknowledged)
        copy(database, file)
        backed_up.set()
        for each in sending:
            each.result()

    restored = SqlStore.open(file)
    held = [batch for batch in batches if restored.contains(batch)]
    assert all(restored.contains(batch) for batch in before)
    assert len(before) <= len(held) < 400
    assert read_summary(restored, metric).num_reports == 3 * len(held)
    assert restored.append(batches).count(AppendResult.STORED) == 400 - len(held)
    assert read_summary(restored, metric) == read_summary(store, metric), "counted = formed, on both"
    restored.close()
    store.close()


def test_a_backup_of_an_older_schema_is_restored_as_such_and_upgraded_then(
    version_2: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """So that there is one from before the upgrade."""
    before, there = contents(version_2, NEW), elsewhere(version_2, tmp_path, request)
    copy(version_2, str(tmp_path / "backup.db"))
    copy(str(tmp_path / "backup.db"), there)
    assert {name: rows for name, rows in contents(there, NEW).items() if name != "hubbub_schema"} == {
        name: rows for name, rows in before.items() if name != "hubbub_schema"
    }
    with open_existing(there) as place, transaction(place, writes=True) as connection:
        assert upgrade(connection) == (2, SCHEMA_VERSION)
    SqlStore.open(there).close()


def test_a_database_that_holds_anything_is_left_alone(
    filled: tuple[str, list[Batch]], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    database, _ = filled
    other = elsewhere(database, tmp_path, request)
    store = SqlStore.open(other)
    store.add_token(Token("somebody", frozenset(READ)), bytes(32))
    store.close()
    before = contents(other)
    with pytest.raises(StoreError, match=r"there already|token has rows already"):
        copy(database, other)
    with pytest.raises(StoreError, match=r"there already|has rows already"):
        copy(database, database)
    assert contents(other) == before


def test_an_empty_database_of_another_schema_is_refused(version_2: str, request: pytest.FixtureRequest) -> None:
    target = new_postgres(request.getfixturevalue("postgres_url"))
    SqlStore.open(target).close()
    with pytest.raises(
        StoreError, match=f"one has schema 2, the other has schema {SCHEMA_VERSION}: `hubbub db upgrade` the first"
    ):
        copy(version_2, target)


def test_a_copy_that_dies_half_way_leaves_nothing_behind(
    filled: tuple[str, list[Batch]], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    database, _ = filled
    place = tmp_path / "backups"
    place.mkdir()
    there = elsewhere(database, place, request)

    def die(done: int, rows: int) -> None:
        if done == rows:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        copy(database, there, die)
    assert list(place.iterdir()) == []
    copy(database, there)
    assert contents(there) == contents(database)


def test_a_full_disk_is_said_and_leaves_nothing_behind(
    filled: tuple[str, list[Batch]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "backups"
    place.mkdir()
    copy(filled[0], str(tmp_path / "whole.db"))
    room = (tmp_path / "whole.db").stat().st_size // 4096 - 1
    monkeypatch.setattr(engine, "_FLEETING", (f"PRAGMA max_page_count = {room}",))
    with pytest.raises(StoreError, match="database or disk is full"):
        copy(filled[0], str(place / "backup.db"))
    assert list(place.iterdir()) == []
    with pytest.raises(StoreError, match=r"cannot write into .*: No such file or directory"):
        copy(filled[0], str(place / "nowhere" / "backup.db"))


def test_backup_of_an_older_schema_needs_no_place_for_its_time(version_2: str, tmp_path: Path) -> None:
    before = contents(version_2)
    said = CliRunner().invoke(main, ["db", "backup", str(tmp_path / "backup.db"), "--database", version_2])
    assert (said.exit_code, said.stderr) == (0, "")
    assert contents(version_2) == before


def test_backup_whose_time_cannot_be_stored_is_complete_and_says_so(
    filled: tuple[str, list[Batch]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise StoreError("the database is read-only")

    monkeypatch.setattr(backup_module, "record_backup", away)
    said = CliRunner().invoke(main, ["db", "backup", str(tmp_path / "backup.db"), "--database", filled[0]])
    assert (said.exit_code, "the database is read-only" in said.stderr) == (0, True)
    assert backup_module.is_whole(str(tmp_path / "backup.db"))


@pytest.fixture(scope="module")
def backup(definitions: Definitions, make_batch: MakeBatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup to be damaged."""
    place = tmp_path_factory.mktemp("backup")
    store = SqlStore.open(place / "reports.db")
    store.append([make_batch(definitions["homepage"], 5_000)])
    store.append([make_batch(definitions["carrier"], 50) for _ in range(20)])
    fold(store, definitions["carrier"])
    store.close()
    copy(str(place / "reports.db"), str(place / "backup.db"), sealed=True)
    return place / "backup.db"


@pytest.mark.parametrize("share", [0, 0.001, 0.03, 0.5, 0.9, 0.99999])
def test_a_truncated_backup_is_refused(backup: Path, tmp_path: Path, share: float) -> None:
    data = backup.read_bytes()
    (tmp_path / "short.db").write_bytes(data[: int(len(data) * share)])
    with pytest.raises(StoreError):
        copy(str(tmp_path / "short.db"), str(tmp_path / "restored.db"))
    assert [path.name for path in tmp_path.iterdir()] == ["short.db"]


@pytest.fixture(scope="module")
def held(backup: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    restored = tmp_path_factory.mktemp("held") / "restored.db"
    copy(str(backup), str(restored))
    return contents(str(restored))


@pytest.mark.parametrize("number", range(30))
def test_a_backup_with_a_byte_changed_is_refused_or_restored_as_it_was(
    backup: Path, held: Any, tmp_path: Path, number: int, unseen_seed: int
) -> None:
    """A byte that nothing is read from may be another; half of them are among the reports, which nothing else would miss.

    The check says more: also that an index or a page's count of fragments is damaged, from which nothing is read (3 of 1,092 bytes).
    """
    rng = random.Random(unseen_seed * 30 + number)  # noqa: S311
    data = bytearray(backup.read_bytes())
    at = rng.randrange(len(data))
    data[at] ^= 1 << rng.randrange(8)
    damaged, restored = tmp_path / "damaged.db", tmp_path / "restored.db"
    damaged.write_bytes(data)
    checked = CliRunner().invoke(main, ["db", "check", "--database", str(damaged)])
    try:
        copy(str(damaged), str(restored))
    except StoreError:
        assert not restored.exists()
        assert checked.exit_code == 1
    else:
        assert contents(str(restored)) == held
        assert checked.exit_code in (0, 1)


def test_a_backup_whose_tables_have_names_that_are_no_text_is_damaged(backup: Path, tmp_path: Path) -> None:
    """SQLite says which name it cannot read, in the bytes that it has."""
    data = backup.read_bytes()
    assert b"tablesegmentsegment" in data
    (tmp_path / "damaged.db").write_bytes(
        data.replace(b"tablesegmentsegment", b"tables\xf4gmentsegment").replace(
            b"CREATE TABLE segment", b"CREATE TABLX segment"
        )
    )
    with pytest.raises(StoreError, match="damaged"):
        copy(str(tmp_path / "damaged.db"), str(tmp_path / "restored.db"))
    assert not (tmp_path / "restored.db").exists()
    said = CliRunner().invoke(main, ["db", "check", "--database", str(tmp_path / "damaged.db")])
    assert said.exit_code == 1
    assert "Traceback" not in said.output


def test_a_bit_changed_among_the_reports_is_damage(backup: Path, tmp_path: Path) -> None:
    with open_existing(str(backup), read_only=True) as engine, transaction(engine, writes=False) as connection:
        rows = connection.exec_driver_sql("SELECT rows FROM segment ORDER BY length(rows) DESC").scalar_one()
    damaged = tmp_path / "damaged.db"
    data = bytearray(backup.read_bytes())
    data[data.index(rows[5_000:6_000]) + 500] ^= 1
    damaged.write_bytes(data)
    with pytest.raises(StoreError, match="the backup is damaged"):
        copy(str(damaged), str(tmp_path / "restored.db"))
    said = CliRunner().invoke(main, ["db", "check", "--database", str(damaged), "--json"])
    assert (json.loads(said.stdout)["whole"], said.exit_code) == (False, 1)


def test_a_backup_says_what_it_holds_until_an_aggregator_works_with_it(
    filled: tuple[str, list[Batch]], tmp_path: Path, definitions: Definitions, make_batch: MakeBatch
) -> None:
    def check(database: Path | str) -> tuple[Any, int]:
        said = CliRunner().invoke(main, ["db", "check", "--database", str(database), "--json"])
        return json.loads(said.stdout)["whole"], said.exit_code

    backup, restored = tmp_path / "backup.db", tmp_path / "restored.db"
    for command in (
        ["backup", str(backup), "--database", filled[0]],
        ["restore", str(backup), "--database", str(restored)],
    ):
        assert CliRunner().invoke(main, ["db", *command]).exit_code == 0
    assert [check(database) for database in (filled[0], backup, restored)] == [(None, 0), (True, 0), (None, 0)]
    store = SqlStore.open(backup)
    store.append([make_batch(definitions["homepage"])])
    store.close()
    assert check(backup) == (None, 0)


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE segment",
        "ALTER TABLE segment DROP COLUMN rows",
        "ALTER TABLE segment ADD COLUMN more BLOB",
        "UPDATE alembic_version SET version_num = '0099'",
        "UPDATE alembic_version SET version_num = 'strange'",
        "UPDATE segment SET rows = 'text where bytes belong'",
        "UPDATE batch SET collection_id = 77",
        "INSERT INTO token (name, hash, scopes) VALUES (CAST(x'ff' AS TEXT), zeroblob(32), 'read')",
        "DROP TABLE hubbub_schema; CREATE VIEW hubbub_schema AS SELECT 2 AS version",
    ],
)
def test_what_no_aggregator_wrote_is_refused_in_one_sentence(backup: Path, tmp_path: Path, statement: str) -> None:
    forged = tmp_path / "forged.db"
    forged.write_bytes(backup.read_bytes())
    sql(str(forged), f"DROP TABLE hubbub_backup; {statement}")  # its digest would be another
    with pytest.raises(StoreError) as refused:
        copy(str(forged), str(tmp_path / "restored.db"))
    assert "\n" not in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["forged.db"]


def test_a_backup_is_for_its_owner_alone_and_is_read_without_being_touched(backup: Path, tmp_path: Path) -> None:
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    before = backup.read_bytes(), list(backup.parent.iterdir())
    copy(str(backup), str(tmp_path / "restored.db"))
    assert (backup.read_bytes(), list(backup.parent.iterdir())) == before


@given(st.lists(st.integers(0, 3 * backup_module._BYTES_A_STATEMENT), max_size=30))
def test_rows_are_cut_into_statements_of_a_few_megabytes_in_their_order(sizes: list[int]) -> None:
    whole = bytes(3 * backup_module._BYTES_A_STATEMENT)
    rows = [{"id": number, "rows": memoryview(whole)[:size].tobytes()} for number, size in enumerate(sizes[:6])]
    pieces = list(backup_module._pieces(rows))
    assert [row for piece in pieces for row in piece] == rows
    for piece in pieces:
        assert sum(len(row["rows"]) for row in piece[:-1]) < backup_module._BYTES_A_STATEMENT


def test_a_copy_takes_little_memory_however_much_is_stored(
    database: str, tmp_path: Path, definitions: Definitions, make_batch: MakeBatch
) -> None:
    """48 MB of segments, 1 MB each."""
    metric, store = definitions["homepage"], SqlStore.open(database)
    n = 250_000
    for _ in range(48):
        store.append([make_batch(metric, 0, cohorts=bytes(n), rows=bytes(n * metric.params.row_bytes))])
    store.close()
    tracemalloc.start()
    copy(database, str(tmp_path / "backup.db"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 24 << 20


def test_the_commands_copy_there_and_back(
    filled: tuple[str, list[Batch]], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    database, _ = filled

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(main, ["db", *arguments])

    file, there = str(tmp_path / "backup.db"), elsewhere(database, tmp_path, request)
    done = run("backup", file, "--database", database)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{file} is whole: 1 in clock, 5 in collection, ")
    told = json.loads(run("restore", file, "--database", there, "--json").stdout)
    assert told["rows"] == ROWS
    assert contents(there, ("last_backup",)) == contents(database, ("last_backup",))
    with closing(SqlStore.open(database)) as store:
        assert 0 <= time.time() - (store.last_backup() or 0) < 3_600
        began = store.last_backup()
    with closing(SqlStore.open(there)) as store:
        assert store.last_backup() is None, "a restored database has no backup of its own"
    again = run("backup", file, "--database", database)
    with closing(SqlStore.open(database)) as store:
        assert store.last_backup() == began, "a backup that failed is none"
    assert (again.exit_code, again.stdout) == (1, "")
    assert again.stderr.endswith(f"-> {file}: the file is there already: move it away, or give another name\n")
    unreachable = "postgresql://hubbub:secret@127.0.0.1:1/hubbub"
    refused = run("copy", unreachable, str(tmp_path / "other.db"))
    assert refused.exit_code == 1
    assert "secret" not in refused.stderr
    assert run("copy", str(tmp_path / "missing.db"), unreachable).exit_code == 1
