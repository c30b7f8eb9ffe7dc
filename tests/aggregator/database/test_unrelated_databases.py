"""Empty databases and databases of other programs are not changed by accident."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hubbub.cli import main
from hubbub_aggregator.database.location import is_postgres
from hubbub_aggregator.errors import SchemaError
from hubbub_aggregator.server import listener
from hubbub_aggregator.store.sql_store import SqlStore
from tests.aggregator.conftest import DEFINITIONS
from tests.support.databases import contents, sql

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
def test_reading_commands_do_not_change_an_empty_database(empty: str, arguments: list[str]) -> None:
    before = bytes_of(empty)
    result = ran(arguments, empty)
    assert result.exit_code == 1
    assert "the database has no tables: create them with `hubbub db create`" in result.output
    assert bytes_of(empty) == before


@pytest.mark.parametrize(
    "arguments", [*LOOKING, ["token", "create", "x", "--scope", "read"], ["db", "upgrade"]], ids=" ".join
)
def test_database_of_another_program_is_refused_and_not_changed(foreign: str, arguments: list[str]) -> None:
    before = bytes_of(foreign)
    result = ran(arguments, foreign)
    assert result.exit_code == 1
    assert (
        "the database belongs to another program, its tables are account, address, invoice and 1 more: give"
        in result.output
    )
    with pytest.raises(SchemaError, match="another program"):
        SqlStore.open(foreign)
    assert bytes_of(foreign) == before


def test_copy_refuses_a_target_of_another_program(database: str, tmp_path: Path) -> None:
    source = tmp_path / "source.db"
    SqlStore.open(source).close()
    sql(database, "CREATE TABLE account (id INTEGER)")
    result = CliRunner().invoke(main, ["db", "copy", str(source), database])
    assert result.exit_code == 1
    assert ("another program" if is_postgres(database) else "exists already") in result.output


def test_serve_and_token_create_refuse_a_named_database_that_does_not_exist(database: str, tmp_path: Path) -> None:
    (definitions := tmp_path / "metrics.toml").write_text(DEFINITIONS)
    for arguments in (["token", "create", "one", "--scope", "read"], ["serve", str(definitions), "--port", "0"]):
        refused = ran(arguments, database)
        assert refused.exit_code == 1
        assert "`hubbub db create`" in refused.stderr
        if is_postgres(database):
            assert "the database has no tables" in refused.stderr
        else:
            assert "reports.db: the file does not exist" in refused.stderr
            assert "check the path, and that its volume is mounted" in refused.stderr
            assert list(tmp_path.iterdir()) == [definitions]


def test_db_create_creates_a_database_once(database: str) -> None:
    first, second = (ran(["db", "create", "--json"], database) for _ in range(2))
    assert [json.loads(made.stdout)["created"] for made in (first, second)] == [True, False]
    for name in ("one", "two"):
        made = ran(["token", "create", name, "--scope", "read"], database)
        assert (made.exit_code, made.stderr) == (0, "")
        assert made.stdout.startswith("hubbub_")
        assert len(made.stdout.splitlines()) == 1
    assert ran(["db", "create"], database).stdout.endswith("exists already: nothing was changed\n")
    assert [line.split()[:2] for line in ran(["token", "list"], database).stdout.splitlines()[1:]] == [
        ["one", "read"],
        ["two", "read"],
    ]


def test_db_create_creates_tables_in_an_empty_file(tmp_path: Path) -> None:
    (file := tmp_path / "empty.db").touch()
    assert json.loads(ran(["db", "create", "--json"], str(file)).stdout)["created"] is True
    assert ran(["token", "list"], str(file)).exit_code == 0


def test_serve_logs_the_creation_of_the_default_database_at_info(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (definitions := tmp_path / "metrics.toml").write_text(DEFINITIONS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HUBBUB_DATABASE", raising=False)
    monkeypatch.setattr(listener, "run", lambda *_: None)
    for level, num_lines in (("info", 1), ("warning", 0)):
        done = CliRunner().invoke(main, ["serve", str(definitions), "--port", "0", "--log-level", level])
        assert (done.exit_code, Path("hubbub.db").exists()) == (0, True)
        assert done.stderr.count("created a new database at hubbub.db") == num_lines
        Path("hubbub.db").unlink()


def test_token_create_creates_the_default_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HUBBUB_DATABASE", raising=False)
    first, second = (CliRunner().invoke(main, ["token", "create", name, "--scope", "read"]) for name in ("one", "two"))
    assert (first.exit_code, first.stderr) == (0, "created a new database at hubbub.db\n")
    assert (second.exit_code, second.stderr) == (0, "")
    named = CliRunner().invoke(main, ["token", "create", "x", "--scope", "read"], env={"HUBBUB_DATABASE": "other.db"})
    assert (named.exit_code, Path("other.db").exists()) == (1, False)
