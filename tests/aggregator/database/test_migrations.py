"""Migrations: upgrades keep all data, are atomic, and a release refuses tables that it does not work with."""

from __future__ import annotations

import json
import shutil
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from click.testing import CliRunner
from sqlalchemy import Connection, event, select

from hubbub import Definitions
from hubbub.cli import main
from hubbub_aggregator.database.engine import open_existing, transaction
from hubbub_aggregator.database.location import is_postgres
from hubbub_aggregator.database.schema import OLDEST_COMPATIBLE, SCHEMA_VERSION, schema, tables
from hubbub_aggregator.database.upgrade import MIGRATIONS, upgrade
from hubbub_aggregator.errors import SchemaError, StoreError
from hubbub_aggregator.pipeline.folding import fold, read_summary
from hubbub_aggregator.segments.manifest import closed_name
from hubbub_aggregator.segments.object_store import ObjectStore
from hubbub_aggregator.segments.segment_file import SegmentFolder
from hubbub_aggregator.segments.segment_store import open_segment_store
from hubbub_aggregator.store.interface import AppendResult
from hubbub_aggregator.store.sql_store import SqlStore
from hubbub_aggregator.store.tokens import Scope, Token
from tests.support.crashing_store import dies
from tests.support.databases import contents, sql

if TYPE_CHECKING:
    from tests.aggregator.conftest import MakeBatch, StartAggregator

NEXT = SCHEMA_VERSION + 1
NEW = ("due_mark", "later")
"""Tables and columns that versions after the first one add."""


def upgraded(database: str, to: int = SCHEMA_VERSION, migrations: Path = MIGRATIONS) -> tuple[int, int]:
    with open_existing(database) as engine, transaction(engine, writes=True) as connection:
        return upgrade(connection, to, migrations)


@pytest.fixture
def next_release(tmp_path: Path) -> Callable[..., Path]:
    """Create the migrations of the next release: ours, and one that adds tables and columns."""

    def make(oldest_compatible: int = SCHEMA_VERSION) -> Path:
        place = tmp_path / f"migrations_{oldest_compatible}"
        shutil.copytree(MIGRATIONS, place, ignore=shutil.ignore_patterns("__pycache__"))
        (place / f"schema_{NEXT:04}.py").write_text(f"""
from alembic import op
from sqlalchemy import Column, Integer, LargeBinary

revision, down_revision = "{NEXT:04}", "{SCHEMA_VERSION:04}"

def upgrade():
    op.add_column("collection", Column("later", Integer, nullable=False, server_default="0"))
    op.add_column("segment", Column("later", LargeBinary))
    op.create_table("later", Column("id", Integer, primary_key=True))
    op.execute("UPDATE hubbub_schema SET oldest_compatible = {oldest_compatible}")
""")
        return place

    return make


def data_of(database: str) -> dict[str, list[tuple[Any, ...]]]:
    return contents(database, (*NEW, "alembic_version"))


def test_upgrade_keeps_all_data(
    version_6: str, definitions: Definitions, make_batch: MakeBatch, next_release: Callable[..., Path]
) -> None:
    before = data_of(version_6)
    assert sum(map(len, before.values())) == 1 + 5 + 5 + 3 + 2 + 1
    migrations = next_release(oldest_compatible=6)
    assert upgraded(version_6, NEXT, migrations) == (6, NEXT)
    assert data_of(version_6) == before
    assert upgraded(version_6, NEXT, migrations) == (NEXT, NEXT), "nothing to upgrade"
    assert data_of(version_6) == before

    homepage, carrier = definitions["homepage"], definitions["carrier"]
    store = SqlStore.open(version_6)
    store.probe()
    assert [read_summary(store, metric).num_reports for metric in (homepage, carrier)] == [13, 5]
    assert store.closed_periods(homepage.digest) == ["2024-05-01"]
    purged = make_batch(homepage, period="2024-05-02")
    assert store.append([purged]) == [AppendResult.CLOSED], "a purged period stays closed"
    assert store.token(bytes(range(32))) == Token("analysts", frozenset([Scope.READ]))
    assert store.refusals() == {("", "malformed"): 2, ("homepage", "padding-set"): 7}
    assert store.append([make_batch(homepage)]) == [AppendResult.STORED]
    fold(store, homepage)
    assert read_summary(store, homepage).num_reports == 16
    store.close()


@pytest.mark.parametrize("half_closed", ["before", "after"])
def test_period_without_its_mark_in_the_object_store_is_marked_after_an_upgrade(
    version_6: str, half_closed: str, definitions: Definitions, tmp_path: Path
) -> None:
    """The first release stored the nil UUID as a batch id meanwhile. It still runs when the tables are upgraded."""
    nil = "'\\x" + "00" * 16 + "'" if is_postgres(version_6) else "X'" + "00" * 16 + "'"
    homepage, day = definitions["homepage"], "2024-05-01"
    is_this = f"digest = '{homepage.digest}' AND period = '{day}' AND closed"
    half_close = f"INSERT INTO batch SELECT id, {nil} FROM collection WHERE {is_this}"
    if half_closed == "before":
        sql(version_6, half_close)
    upgraded(version_6)
    if half_closed == "after":
        sql(version_6, half_close)
    objects = ObjectStore.open(str(tmp_path / "segments"))
    with closing(open_segment_store(version_6, objects, uuid.uuid4)) as store:
        assert store.half_closed_periods() == [(homepage.digest, day)]
        store.close_period(homepage, day)
        assert store.half_closed_periods() == []
    assert list(objects.names()) == [closed_name(SegmentFolder(homepage.name, homepage.digest, day).path)]


def test_older_schema_is_refused_and_not_changed(version_6: str) -> None:
    before = contents(version_6)
    with pytest.raises(
        SchemaError,
        match=f"schema version 6, this hubbub has schema version {SCHEMA_VERSION}: run `hubbub db upgrade`",
    ) as refused:
        SqlStore.open(version_6)
    assert "create a new one" not in str(refused.value)
    assert contents(version_6) == before


@pytest.mark.parametrize("version", [1, 2, 5])
def test_unreleased_schema_is_refused_and_not_changed(version_6: str, version: int) -> None:
    """Old databases have other columns, so the version is read before them."""
    sql(version_6, f"UPDATE alembic_version SET version_num = '{version:04}'")
    sql(version_6, "ALTER TABLE hubbub_schema RENAME oldest_compatible TO version")
    before = contents(version_6)
    for act in (SqlStore.open, upgraded):
        with pytest.raises(
            SchemaError,
            match=f"schema version {version} of an unreleased hubbub; this hubbub has schema version {SCHEMA_VERSION} "
            ".* create a new one with `hubbub db create`",
        ):
            act(version_6)
    assert contents(version_6) == before


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM alembic_version",
        "DROP TABLE alembic_version",
        "INSERT INTO alembic_version VALUES ('0007')",
        "DROP TABLE hubbub_schema",
        "INSERT INTO hubbub_schema (oldest_compatible, write_probes) VALUES (7, 0)",
        "UPDATE alembic_version SET version_num = 'ae1027a6acf'",
        "DELETE FROM hubbub_schema",
    ],
)
def test_unknown_schema_version_is_refused(version_6: str, statement: str) -> None:
    sql(version_6, statement)
    for act in (SqlStore.open, upgraded):
        with pytest.raises(SchemaError, match="unknown schema version"):
            act(version_6)


def test_upgrade_without_a_migration_path_is_refused(version_6: str) -> None:
    with pytest.raises(SchemaError, match=f"schema version 6, from which no migration leads to version {NEXT}"):
        upgraded(version_6, NEXT)


@pytest.mark.parametrize("how", ["created by serve", "created by upgrade", "created by the first release"])
def test_tables_equal_the_schema_module(database: str, how: str, request: pytest.FixtureRequest) -> None:
    """A change of schema.py without a migration fails here: the dump of the first release stays as it is."""
    match how:
        case "created by serve":
            SqlStore.open(database).close()
        case "created by upgrade":
            sql(database, "")
            assert upgraded(database) == (0, SCHEMA_VERSION)
        case _:
            assert upgraded(request.getfixturevalue("version_6")) == (6, SCHEMA_VERSION)
    with open_existing(database) as engine, transaction(engine, writes=False) as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, tables) == []
        assert context.get_current_heads() == (f"{SCHEMA_VERSION:04}",)
        (oldest,) = connection.execute(select(schema.c.oldest_compatible)).scalars()
    assert oldest == OLDEST_COMPATIBLE
    SqlStore.open(database).close()


def test_comparison_finds_differences_between_tables_and_schema(database: str) -> None:
    SqlStore.open(database).close()
    sql(database, "ALTER TABLE collection ADD COLUMN stray INTEGER; DROP INDEX ix_segment_collection_id")
    with open_existing(database) as engine, transaction(engine, writes=False) as connection:
        assert len(compare_metadata(MigrationContext.configure(connection), tables)) == 2


@pytest.mark.slow
def test_service_counts_each_batch_once_during_an_upgrade(
    start: StartAggregator,
    store: SqlStore,
    database: str,
    make_batch: MakeBatch,
    next_release: Callable[..., Path],
) -> None:
    """Each batch is sent until it is accepted, and once more, while folding runs."""
    aggregator = start(store, fold_interval=0.01)
    metric = aggregator.definitions["homepage"]
    batches = [make_batch(metric) for _ in range(240)]
    arrived, halfway = threading.Semaphore(0), threading.Event()

    def send(mine: list[Any]) -> None:
        for number, batch in enumerate(mine):
            if number == len(mine) // 2:
                halfway.wait()
            while (status := aggregator.post(batch).status) == 503:
                pass
            assert status == 202
            assert aggregator.post(batch).status == 200
            arrived.release()

    with ThreadPoolExecutor(4) as pool:
        sending = [pool.submit(send, batches[part::4]) for part in range(4)]
        for _ in range(40):
            arrived.acquire()
        assert upgraded(database, NEXT, next_release()) == (SCHEMA_VERSION, NEXT)
        halfway.set()
        for future in sending:
            future.result()
    assert aggregator.summary("homepage").num_reports == 720
    assert aggregator.get("/readyz").status == 200
    again = SqlStore.open(database)
    assert again.append(batches) == [AppendResult.DUPLICATE] * 240, "a process of this version can start again"
    again.close()


def test_incompatible_newer_schema_is_refused(
    store: SqlStore, database: str, next_release: Callable[..., Path]
) -> None:
    upgraded(database, NEXT, next_release(oldest_compatible=NEXT))
    for act in (store.probe, lambda: SqlStore.open(database)):
        with pytest.raises(StoreError, match=f"schema version {NEXT}, .* this hubbub has {SCHEMA_VERSION}: install"):
            act()
    assert upgraded(database) == (NEXT, NEXT), "there is no downgrade"


def test_concurrent_upgrades_run_once(version_6: str, next_release: Callable[..., Path]) -> None:
    migrations = next_release()
    with ThreadPoolExecutor(4) as pool:
        versions = sorted(pool.map(lambda _: upgraded(version_6, NEXT, migrations), range(4)))
    assert versions == [(6, NEXT), *[(NEXT, NEXT)] * 3]


@pytest.mark.slow
def test_upgrade_that_fails_after_any_statement_changes_nothing(
    version_6: str, next_release: Callable[..., Path]
) -> None:
    deaths, before, migrations = 0, contents(version_6), next_release()
    while upgrade_dies(version_6, deaths, migrations):
        assert contents(version_6) == before
        deaths += 1
    assert deaths >= 5
    assert upgraded(version_6, NEXT, migrations) == (NEXT, NEXT)


def upgrade_dies(database: str, statements: int, migrations: Path) -> bool:
    def act() -> None:
        with transaction(engine, writes=True) as connection:
            upgrade(connection, NEXT, migrations)

    with open_existing(database) as engine:
        return dies(engine, statements, act)


def test_upgrade_gives_up_on_a_locked_table(version_6: str, next_release: Callable[..., Path]) -> None:
    """Later transactions queue behind a waiting upgrade."""
    if not is_postgres(version_6):
        pytest.skip("SQLite has one lock, and waits for it at the start of the transaction")
    migrations = next_release()
    with psycopg.connect(version_6) as busy:
        busy.execute("SELECT * FROM collection")  # a reading transaction that stays open
        with pytest.raises(StoreError, match="lock timeout"):
            upgraded_with_short_timeout(version_6, migrations)
    assert upgraded(version_6, NEXT, migrations) == (6, NEXT)


def upgraded_with_short_timeout(database: str, migrations: Path) -> None:
    with open_existing(database) as engine, transaction(engine, writes=True) as connection:
        event.listen(connection, "before_cursor_execute", _shorten_timeout, retval=True)
        upgrade(connection, NEXT, migrations)


def _shorten_timeout(
    _connection: Connection, _cursor: object, statement: str, parameters: Any, *_: object
) -> tuple[str, Any]:
    return statement.replace("lock_timeout = '5s'", "lock_timeout = '50ms'"), parameters


def test_db_check_and_db_upgrade_print_version_and_next_step(version_6: str, tmp_path: Path) -> None:
    def run(*arguments: str) -> Any:
        return CliRunner().invoke(main, ["db", *arguments, "--database", version_6])

    assert json.loads(run("upgrade", "--json").stdout) == {"from": 6, "to": SCHEMA_VERSION}
    assert run("upgrade").stdout == f"schema version {SCHEMA_VERSION}: nothing to upgrade\n"
    assert json.loads(run("check", "--json").stdout) == {
        "schema": SCHEMA_VERSION,
        "known": SCHEMA_VERSION,
        "refused": None,
        "damaged": [],
    }
    of_file = CliRunner().invoke(main, ["db", "check", version_6])
    assert (of_file.exit_code, of_file.stdout) == (0, f"schema version {SCHEMA_VERSION}: no damage found\n")
    both = CliRunner().invoke(main, ["db", "check", version_6, "--database", version_6])
    assert (both.exit_code, "FILE and --database exclude each other" in both.stderr) == (2, True)
    sql(version_6, f"UPDATE alembic_version SET version_num = '{NEXT:04}'")
    sql(version_6, f"UPDATE hubbub_schema SET oldest_compatible = {NEXT}")
    refused = run("check")
    assert refused.exit_code == 1
    assert refused.output.startswith(f"schema version {NEXT}: the database has schema version {NEXT}, and works with")
    upgrade_refused = run("upgrade")
    assert (upgrade_refused.exit_code, upgrade_refused.stdout) == (1, "")
    assert upgrade_refused.stderr.endswith(refused.output.removeprefix(f"schema version {NEXT}: "))
    assert "install the newer hubbub" in upgrade_refused.stderr
    sql(version_6, "UPDATE alembic_version SET version_num = '0005'")
    for command in ("check", "upgrade"):
        old = run(command)
        assert (old.exit_code, "unreleased hubbub" in old.output, "Traceback" in old.output) == (1, True, False)
    missing = CliRunner().invoke(main, ["db", "upgrade", "--database", str(tmp_path / "nowhere.db")])
    assert (missing.exit_code, missing.stdout) == (1, "")
    assert "nowhere.db: the file does not exist" in missing.stderr
    assert not (tmp_path / "nowhere.db").exists()
