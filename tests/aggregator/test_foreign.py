"""What is not an aggregator's database: an empty one is left empty by whoever only looks, another program's by everyone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.aggregator.databases import contents, sql

from hubbub.cli import main
from hubbub_aggregator.database_name import is_postgres
from hubbub_aggregator.sql_store import SqlStore
from hubbub_aggregator.store import SchemaError

LOOKING = [["token", "list"], ["token", "revoke", "x"], ["db", "check"]]


def ran(arguments: list[str], database: str) -> Result:
    return CliRunner().invoke(main, [*arguments, "--database", database])


@pytest.fixture
def empty(database: str) -> str:
    """A database that is there and has nothing: of SQLite a file of 0 bytes."""
    if not is_postgres(database):
        Path(database).touch()
    return database


@pytest.fixture
def foreign(database: str) -> str:
    """Another program's database."""
    for name in ("account", "invoice", "payment", "address"):
        sql(database, f"CREATE TABLE {name} (id INTEGER); INSERT INTO {name} VALUES (7)")
    return database


def bytes_of(database: str) -> Any:
    return contents(database) if is_postgres(database) else Path(database).read_bytes()


@pytest.mark.parametrize("arguments", LOOKING, ids=" ".join)
def test_who_looks_into_an_empty_database_makes_nothing(empty: str, arguments: list[str]) -> None:
    before = bytes_of(empty)
    said = ran(arguments, empty)
    assert said.exit_code == 1
    assert "the database has no tables: `hubbub serve` makes them when it starts" in said.output
    assert bytes_of(empty) == before


@pytest.mark.parametrize(
    "arguments", [*LOOKING, ["token", "create", "x", "--scope", "read"], ["db", "upgrade"]], ids=" ".join
)
def test_another_programs_database_is_refused_by_name_and_left_alone(foreign: str, arguments: list[str]) -> None:
    before = bytes_of(foreign)
    said = ran(arguments, foreign)
    assert said.exit_code == 1
    assert "the database is another program's, it has account, address, invoice and 1 more: give one" in said.output
    with pytest.raises(SchemaError, match="another program's"):
        SqlStore.open(foreign)
    assert bytes_of(foreign) == before


def test_nothing_is_copied_into_another_programs_database(database: str, tmp_path: Path) -> None:
    source = tmp_path / "source.db"
    SqlStore.open(source).close()
    sql(database, "CREATE TABLE account (id INTEGER)")
    said = CliRunner().invoke(main, ["db", "copy", str(source), database])
    assert said.exit_code == 1
    assert ("another program's" if is_postgres(database) else "is there already") in said.output


def test_a_token_before_the_first_start_makes_the_database_and_says_so(database: str) -> None:
    first = ran(["token", "create", "one", "--scope", "read"], database)
    second = ran(["token", "create", "two", "--scope", "read"], database)
    assert (first.exit_code, second.exit_code) == (0, 0)
    assert "is new: give `hubbub serve` the same --database" in first.stderr
    assert second.stderr == ""
    assert first.stdout.startswith("hubbub_")
    assert len(first.stdout.splitlines()) == 1
    assert ran(["token", "list"], database).stdout == "one  read\ntwo  read\n"
