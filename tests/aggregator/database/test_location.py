"""`--database`: valid and invalid names, error messages, and masked passwords."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import psycopg
import pytest
from click.testing import CliRunner

from hubbub import Definitions
from hubbub.cli import main
from hubbub.cli.findings import Health
from hubbub.wire.urls import mask_url
from hubbub_aggregator.cli.deployment_checks import DeploymentOptions, check_aggregator
from hubbub_aggregator.database.location import is_postgres
from hubbub_aggregator.errors import StoreError
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.sql_store import SqlStore
from hubbub_aggregator.store.tokens import Scope, Token, hash_secret
from tests.aggregator.conftest import DEFINITIONS

if TYPE_CHECKING:
    from tests.aggregator.conftest import MakeBatch

SECRETS = ("s3cret", "tw0")
UNUSABLE = [
    ("postgresql://u:s3cret@127.0.0.1:port/y", "the port is not a number"),
    ("postgresql://u:s3cret/tw0", "the port is not a number"),
    ("mysql://u:s3cret/tw0", "unknown scheme mysql"),
    ("postgresql:u:s3cret", "unknown scheme postgresql"),
    ("postgresql://u:s3cret@tw0@h/y", "an @ in a user name or password must be written %40"),
    ("postgresql+psycopg://u:s3cret@h/y", "unknown scheme postgresql+psycopg: write a path or postgresql://"),
    ("Postgresql://u:s3cret@h/y", "unknown scheme Postgresql"),
    ("mysql://u:s3cret/tw0@x/y", "unknown scheme mysql"),
    ("postgresql:u:s3cret@x/y", "unknown scheme postgresql"),
    ("sqlite:///x.db", "unknown scheme sqlite"),
    ("u:s3cret@h/y", "the name is neither a path nor a URL"),
    ("'postgresql://u:s3cret@h/y", "the name is neither a path nor a URL"),
    ("postgresql://u:s3cret#tw0@h/y", "the URL can be read in two ways"),
    ("postgresql://u:s3cret?tw0@h/y", "the URL can be read in two ways"),
    ("", "the name is empty"),
]


@pytest.fixture
def definitions_file(tmp_path: Path) -> str:
    (tmp_path / "metrics.toml").write_text(DEFINITIONS)
    return str(tmp_path / "metrics.toml")


@pytest.fixture
def nobody() -> Iterator[Path]:
    """A directory with definitions that all users can read, and in which the tests' user cannot write."""
    with TemporaryDirectory() as name:
        place, user = Path(name), os.geteuid()
        (place / "metrics.toml").write_text(DEFINITIONS)
        place.chmod(0o755 if user == 0 else 0o555)
        if user == 0:  # root can write anywhere
            os.seteuid(pwd.getpwnam("nobody").pw_uid)
        try:
            yield place
        finally:
            os.seteuid(user)
            place.chmod(0o700)


def commands(database: str, definitions_file: str, place: Path) -> list[list[str]]:
    """Return every command that takes a database."""
    named, another = ["--database", database], str(place / "another.db")
    return [
        ["serve", definitions_file, *named],
        ["serve", definitions_file, "--print-config", *named],
        ["doctor", definitions_file, "--refusal-window", "0", *named],
        ["token", "create", "x", "--scope", "read", *named],
        ["token", "list", *named],
        ["token", "revoke", "x", *named],
        ["db", "create", *named],
        ["db", "check", *named],
        ["db", "upgrade", *named],
        ["db", "backup", another, *named],
        ["db", "restore", another, *named],
        ["db", "copy", database, another],
        ["db", "copy", another, database],
    ]


@pytest.mark.parametrize(("database", "message"), UNUSABLE)
def test_every_command_refuses_an_invalid_database_name(
    database: str, message: str, definitions_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in commands(database, definitions_file, tmp_path):
        result = CliRunner().invoke(main, arguments)
        assert (result.exit_code, result.stdout) == (2, ""), arguments
        assert message in result.stderr
        assert not [secret for secret in SECRETS if secret in result.output]
    result = CliRunner().invoke(main, ["token", "list"], env={"HUBBUB_DATABASE": database or " "})
    assert (result.exit_code, message in result.stderr) == (2, True)
    for act in (SqlStore.open, is_postgres):
        with pytest.raises(StoreError):
            act(database)
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.toml"]


@pytest.mark.parametrize(
    "database",
    [
        "postgresql://u:s3cret@h/y",
        "postgresql://u:s3c%40tw0@h:5432/y?a=b@c",
        "postgresql://u@mail:s3cret@h/y",
        "postgresql://:s3cret@h/y",
        "postgresql://h/y?user=u&password=s3cret&sslmode=require",
        "postgresql://h/y?sslPassword=s3cret",
        *(database for database, _ in UNUSABLE),
        "u:s3cret@h/y",
        "host=h password=s3cret dbname=y",
    ],
)
def test_masked_name_shows_no_password(database: str) -> None:
    shown = mask_url(database)
    assert not [secret for secret in SECRETS if secret in shown]
    assert mask_url(shown) == shown


@pytest.mark.parametrize(
    "database", ["reports.db", "/var/lib/a@b.db", "postgresql://u@h:5432/y", "postgresql:///y?host=/run/p"]
)
def test_name_without_a_password_is_not_masked(database: str) -> None:
    assert mask_url(database) == database


def test_no_command_prints_the_password_of_an_unreachable_server(definitions_file: str, tmp_path: Path) -> None:
    for database in ("postgresql://u:s3cret@127.0.0.1:1/y", "postgresql://u:s3cret/tw0@127.0.0.1:1/y"):
        for arguments in commands(database, definitions_file, tmp_path)[1:]:  # serve is its process's own test
            result = CliRunner().invoke(main, arguments)
            assert isinstance(result.exception, SystemExit | None), arguments
            assert not [secret for secret in SECRETS if secret in result.output]
            assert "u:***@" in result.output or arguments[0] == "db"


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1", "UTF8"])
def test_postgres_database_of_any_encoding_works(
    encoding: str, postgres_url: str, definitions: Definitions, make_batch: MakeBatch
) -> None:
    """`LC_ALL=C initdb` makes a cluster of SQL_ASCII, in which psycopg gave bytes for text."""
    name = f"test_{encoding.lower()}_{os.urandom(4).hex()}"
    with closing(psycopg.connect(postgres_url, autocommit=True)) as connection:
        connection.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0".encode())
    with closing(SqlStore.open(postgres_url.replace("/postgres?", f"/{name}?"))) as store:
        store.append([make_batch(definitions["homepage"])])
        assert store.open_periods() == [(definitions["homepage"].digest, "2024-06-15")]
        store.add_token(Token("a", frozenset({Scope.READ})), hash_secret("x"))
        assert [token.name for token in store.tokens()] == ["a"]


def test_open_reports_why_a_file_cannot_be_created(tmp_path: Path) -> None:
    for place, message in (
        (
            tmp_path / "no" / "such.db",
            rf"the directory {tmp_path}/no does not exist or is not readable: create it, or give another --database",
        ),
        (tmp_path, "the path is a directory: give a file in it"),
        (tmp_path / ("x" * 300), r"the file cannot be created \(File name too long\): give another --database"),
    ):
        with pytest.raises(StoreError, match=message):
            SqlStore.open(place)
    assert list(tmp_path.iterdir()) == []


def test_open_and_doctor_report_a_directory_that_is_not_writable(nobody: Path) -> None:
    new = str(nobody / "new.db")
    message = f"this user may not write to {nobody}: change its owner or mode"
    with pytest.raises(StoreError, match=message):
        SqlStore.open(new)
    deployment = DeploymentOptions(nobody / "metrics.toml", new, "127.0.0.1", Settings())
    found = [
        finding.observation
        for finding in check_aggregator(deployment, datetime.now(UTC), lambda: None)
        if finding.health is Health.ERROR
    ]
    assert len(found) == 1
    assert message in found[0]


def test_database_files_have_mode_0600(
    sqlite_store: SqlStore, definitions: Definitions, make_batch: MakeBatch, tmp_path: Path
) -> None:
    umask = os.umask(0o022)
    try:
        with closing(SqlStore.open(tmp_path / "other.db")) as store:
            store.append([make_batch(definitions["homepage"])])
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("other.db*")}
    finally:
        os.umask(umask)
    assert modes == dict.fromkeys(("other.db", "other.db-wal", "other.db-shm"), 0o600)
