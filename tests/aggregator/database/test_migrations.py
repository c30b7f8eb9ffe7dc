"""A database goes from one schema version to the next without loss, and nobody works with tables they do not know."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from click.testing import CliRunner
from sqlalchemy import Connection, event, select
from tests.support.crashing_store import dies
from tests.support.databases import contents, sql

from hubbub import Definitions
from hubbub.cli import main
from hubbub_aggregator.database.database_url import is_postgres
from hubbub_aggregator.database.engine import opened, transaction
from hubbub_aggregator.database.schema import SCHEMA_VERSION, tables
from hubbub_aggregator.database.upgrade import STEPS, upgrade
from hubbub_aggregator.errors import SchemaError, StoreError
from hubbub_aggregator.pipeline.folding import fold, read_summary
from hubbub_aggregator.store.interface import Appended
from hubbub_aggregator.store.sql_store import SqlStore
from hubbub_aggregator.store.tokens import Scope, Token

if TYPE_CHECKING:
    from tests.aggregator.conftest import MakeBatch, StartAggregator

NEXT = SCHEMA_VERSION + 1
NEW = (
    *("alembic_version", "clock", "retained", "session", "smallest"),
    *("figures_revision", "reports", "smallest_cohort", "implausible"),
    *("created", "last_used", "expires", "last_backup"),
)
"""Tables and columns that version 2 has not."""


def upgraded(database: str, to: int = SCHEMA_VERSION, steps: Path = STEPS) -> tuple[int, int]:
    with opened(database) as engine, transaction(engine, writes=True) as connection:
        return upgrade(connection, to, steps)


@pytest.fixture
def steps(tmp_path: Path) -> Callable[..., Path]:
    """Make the steps of some later hubbub: ours, and one that adds as any step may, or takes away."""

    def make(oldest: int) -> Path:
        place = tmp_path / f"steps_{oldest}"
        shutil.copytree(STEPS, place, ignore=shutil.ignore_patterns("__pycache__"))
        (place / f"schema_{NEXT:04}.py").write_text(f"""
from alembic import op
from sqlalchemy import Column, Integer, LargeBinary

revision, down_revision = "{NEXT:04}", "{SCHEMA_VERSION:04}"

def upgrade():
    op.add_column("collection", Column("later", Integer, nullable=False, server_default="0"))
    op.add_column("segment", Column("later", LargeBinary))
    op.create_table("later", Column("id", Integer, primary_key=True))
    op.execute("UPDATE hubbub_schema SET version = {oldest}")
""")
        return place

    return make


def test_a_database_of_version_2_is_upgraded_without_loss(
    version_2: str, definitions: Definitions, make_batch: MakeBatch
) -> None:
    before = contents(version_2, NEW)
    assert sum(map(len, before.values())) == 1 + 5 + 5 + 3 + 2 + 1
    assert upgraded(version_2) == (2, SCHEMA_VERSION)
    assert contents(version_2, NEW) == before
    assert upgraded(version_2) == (SCHEMA_VERSION, SCHEMA_VERSION), "nothing to do"
    assert contents(version_2, NEW) == before

    homepage, carrier = definitions["homepage"], definitions["carrier"]
    store = SqlStore.open(version_2)
    store.probe()
    assert [read_summary(store, metric).num_reports for metric in (homepage, carrier)] == [13, 5]
    assert store.closed_periods(homepage.digest) == ["2024-05-01"]
    assert store.append([make_batch(homepage, period="2024-05-02")]) == [Appended.CLOSED], "purged, and still closed"
    assert store.token(bytes(range(32))) == Token("analysts", frozenset([Scope.READ]))
    assert store.refusals() == {("", "malformed"): 2, ("homepage", "padding-set"): 7}
    assert store.append([make_batch(homepage)]) == [Appended.STORED]
    fold(store, homepage)
    assert read_summary(store, homepage).num_reports == 16
    store.close()


def test_an_older_database_is_refused_and_left_alone(version_2: str) -> None:
    before = contents(version_2, NEW)
    with pytest.raises(
        SchemaError, match=f"schema 2, this hubbub has schema {SCHEMA_VERSION}: run `hubbub db upgrade`"
    ) as refused:
        SqlStore.open(version_2)
    assert "another --database" not in str(refused.value)
    assert contents(version_2, NEW) == before


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE hubbub_schema SET version = 1",
        "DROP TABLE hubbub_schema",
        "INSERT INTO hubbub_schema VALUES (7, 0)",
        "CREATE TABLE alembic_version (version_num VARCHAR(32)); INSERT INTO alembic_version VALUES ('ae1027a6acf')",
        "DELETE FROM hubbub_schema",
    ],
)
def test_a_database_of_an_unknown_schema_is_refused_by_everyone(version_2: str, statement: str) -> None:
    sql(version_2, statement)
    for act in (SqlStore.open, upgraded):
        with pytest.raises(SchemaError, match="unknown schema"):
            act(version_2)


def test_an_unknown_schema_that_was_known_once_is_refused(database: str) -> None:
    SqlStore.open(database).close()
    sql(database, "UPDATE alembic_version SET version_num = '0001'")
    with pytest.raises(SchemaError, match=f"schema 1, this hubbub has schema {SCHEMA_VERSION}"):
        SqlStore.open(database)
    with pytest.raises(SchemaError, match=f"schema 1, from which no step leads to schema {SCHEMA_VERSION}"):
        upgraded(database)


@pytest.mark.parametrize("how", ["made at the first start", "made step by step", "upgraded from version 2"])
def test_the_tables_are_those_of_the_schema_however_they_came_to_be(
    database: str, how: str, request: pytest.FixtureRequest
) -> None:
    match how:
        case "made at the first start":
            SqlStore.open(database).close()
        case "made step by step":
            sql(database, "")
            assert upgraded(database) == (0, SCHEMA_VERSION)
        case _:
            assert upgraded(request.getfixturevalue("version_2")) == (2, SCHEMA_VERSION)
    with opened(database) as engine, transaction(engine, writes=False) as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, tables) == []
        assert context.get_current_heads() == (f"{SCHEMA_VERSION:04}",)
        (oldest,) = connection.execute(select(tables.tables["hubbub_schema"].c.oldest)).scalars()
    assert oldest == 2
    SqlStore.open(database).close()


def test_a_difference_between_tables_and_schema_would_be_seen(database: str) -> None:
    SqlStore.open(database).close()
    sql(database, "ALTER TABLE collection ADD COLUMN stray INTEGER; DROP INDEX ix_segment_collection_id")
    with opened(database) as engine, transaction(engine, writes=False) as connection:
        assert len(compare_metadata(MigrationContext.configure(connection), tables)) == 2


def test_a_service_goes_on_exactly_once_while_and_after_the_next_hubbub_upgrades(
    start: StartAggregator,
    store: SqlStore,
    database: str,
    make_batch: MakeBatch,
    steps: Callable[..., Path],
) -> None:
    """Each batch is sent until it is answered, and once again; folding goes on as well."""
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
        assert upgraded(database, NEXT, steps(oldest=SCHEMA_VERSION)) == (SCHEMA_VERSION, NEXT)
        halfway.set()
        for each in sending:
            each.result()
    assert aggregator.summary("homepage").num_reports == 720
    assert aggregator.get("/readyz").status == 200
    again = SqlStore.open(database)
    assert again.append(batches) == [Appended.DUPLICATE] * 240, "a worker of this version may start again, too"
    again.close()


def test_tables_that_have_lost_what_this_hubbub_needs_are_refused(
    store: SqlStore, database: str, steps: Callable[..., Path]
) -> None:
    upgraded(database, NEXT, steps(oldest=NEXT))
    for act in (store.probe, lambda: SqlStore.open(database)):
        with pytest.raises(StoreError, match=f"schema {NEXT}, .* has schema {SCHEMA_VERSION}: install the newer one"):
            act()
    assert upgraded(database) == (NEXT, NEXT), "never back"


def test_of_several_upgrades_at_once_one_does_it_and_the_others_wait(version_2: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        said = sorted(pool.map(lambda _: upgraded(version_2), range(4)))
    assert said == [(2, SCHEMA_VERSION), *[(SCHEMA_VERSION, SCHEMA_VERSION)] * 3]


def test_an_upgrade_that_dies_after_any_statement_changes_nothing(version_2: str) -> None:
    deaths, before = 0, contents(version_2, NEW)
    while upgrade_dies(version_2, deaths):
        assert contents(version_2, NEW) == before
        with pytest.raises(SchemaError, match="schema 2"):
            SqlStore.open(version_2)
        deaths += 1
    assert deaths >= 5
    SqlStore.open(version_2).close()


def upgrade_dies(database: str, statements: int) -> bool:
    def act() -> None:
        with transaction(engine, writes=True) as connection:
            upgrade(connection)

    with opened(database) as engine:
        return dies(engine, statements, act)


def test_an_upgrade_does_not_wait_long_for_a_table_since_whoever_comes_next_would_wait_as_long(
    version_2: str,
) -> None:
    if not is_postgres(version_2):
        pytest.skip("SQLite has one lock, and waits for it at the transaction's start")
    with psycopg.connect(version_2) as busy:
        busy.execute("SELECT * FROM collection")  # a reading transaction that stays open
        with pytest.raises(StoreError, match="lock timeout"):
            upgraded_in_a_hurry(version_2)
    assert upgraded(version_2) == (2, SCHEMA_VERSION)


def upgraded_in_a_hurry(database: str) -> None:
    with opened(database) as engine, transaction(engine, writes=True) as connection:
        event.listen(connection, "before_cursor_execute", _hurry, retval=True)
        upgrade(connection)


def _hurry(_connection: Connection, _cursor: object, statement: str, parameters: Any, *_: object) -> tuple[str, Any]:
    return statement.replace("lock_timeout = '5s'", "lock_timeout = '50ms'"), parameters


def test_the_commands_say_what_holds_and_what_to_do(version_2: str, tmp_path: Path) -> None:
    def run(*arguments: str) -> Any:
        return CliRunner().invoke(main, ["db", *arguments, "--database", version_2])

    refused = run("check")
    assert refused.exit_code == 1
    told = f"schema 2: the database has schema 2, this hubbub has schema {SCHEMA_VERSION}: run `hubbub db"
    assert refused.output.startswith(told)
    assert json.loads(run("upgrade", "--json").stdout) == {"from": 2, "to": SCHEMA_VERSION}
    assert run("upgrade").stdout == f"schema {SCHEMA_VERSION}: nothing to do\n"
    assert json.loads(run("check", "--json").stdout) == {
        "schema": SCHEMA_VERSION,
        "known": SCHEMA_VERSION,
        "refused": None,
        "damaged": [],
        "whole": None,
    }
    missing = CliRunner().invoke(main, ["db", "upgrade", "--database", str(tmp_path / "nowhere.db")])
    assert (missing.exit_code, missing.stdout) == (1, "")
    assert "nowhere.db: there is no such file" in missing.stderr
    assert not (tmp_path / "nowhere.db").exists()
