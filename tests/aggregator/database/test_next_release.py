"""The database of each kept release goes through a migration of the next one: killed at each step, beside processes of this one."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
import urllib3

import hubbub_aggregator
from hubbub import Batch
from hubbub.testing import SeededBytes
from hubbub_aggregator.database.schema import SCHEMA_VERSION
from hubbub_aggregator.pipeline.folding import fold, read_summary
from hubbub_aggregator.store.interface import AppendResult
from hubbub_aggregator.store.sql_store import SqlStore
from tests.data.make_release import REPORTS, batch_of
from tests.support.databases import contents
from tests.support.release_artefacts import RELEASES, Release, rows

NEXT = SCHEMA_VERSION + 1
ADDED = ("note", "alembic_version")
MIGRATION = f'''
from alembic import op
from sqlalchemy import Column, String

revision, down_revision = "{NEXT:04}", "{SCHEMA_VERSION:04}"

def upgrade():
    op.add_column("collection", Column("note", String(64)))
    op.create_index("ix_collection_period", "collection", ["period"])
'''
UNIQUE = '    UniqueConstraint("digest", "period"),\n'
UPGRADE = """
import os, signal, sys
from sqlalchemy import Engine, event
from hubbub.cli import main

left = int(sys.argv[1])

def count_down(*_):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)

for step in ("before_cursor_execute", "commit"):
    event.listen(Engine, step, count_down)
main(["db", "upgrade", "--database", sys.argv[2]])
"""
"""Runs `hubbub db upgrade`, killed before the n-th statement or commit."""


@pytest.fixture(scope="module")
def next_release(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment in which the aggregator is the next release: this one, and a column and an index more."""
    place = tmp_path_factory.mktemp("next")
    package = place / "hubbub_aggregator"
    shutil.copytree(Path(hubbub_aggregator.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    schema = package / "database" / "schema.py"
    text = schema.read_text()
    for old, new in (
        (f"SCHEMA_VERSION = {SCHEMA_VERSION}", f"SCHEMA_VERSION = {NEXT}"),
        (UNIQUE, f'    Column("note", String(64)),\n    Index("ix_collection_period", "period"),\n{UNIQUE}'),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    schema.write_text(text)
    (package / "database" / "migrations" / f"schema_{NEXT:04}.py").write_text(MIGRATION)
    return {**os.environ, "PYTHONPATH": str(place)}


@pytest.fixture(params=sorted(RELEASES.glob("*.tar.xz")), ids=lambda path: path.name.removesuffix(".tar.xz"))
def release(request: pytest.FixtureRequest, postgres_url: str, tmp_path: Path) -> Release:
    return Release.unpack(request.param, tmp_path, postgres_url)


@pytest.fixture(params=["sqlite", "postgres"])
def kept(request: pytest.FixtureRequest, release: Release) -> str:
    """The release's database, with the tables of this version."""
    name = str(release.folder / "reports.db") if request.param == "sqlite" else release.postgres
    hubbub("db", "upgrade", "--database", name)
    return name


def hubbub(*arguments: str, environment: dict[str, str] | None = None) -> str:
    command = [sys.executable, "-m", "hubbub", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    return done.stdout if done.returncode == 0 else done.stderr


@contextmanager
def served(release: Release, database: str, environment: dict[str, str] | None = None) -> Iterator[str]:
    """Run `hubbub serve` of this version, or in an environment; yield its URL."""
    command = [sys.executable, "-m", "hubbub", "serve", str(release.folder / "metrics.toml"), "--port", "0"]
    with subprocess.Popen(
        [*command, "--database", database], env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        lines = []
        while not (found := re.search(r"listening on (\S+)", (line := process.stderr.readline()))):
            lines.append(line)
            assert line, lines
        yield found[1]
        process.terminate()
        process.communicate(timeout=60)
        assert process.returncode == 0


def status(url: str, batch: Batch) -> int:
    headers = {"Content-Type": "application/json"}
    return urllib3.request("POST", f"{url}/v1/reports", body=batch.to_json(), headers=headers, retries=False).status


def new_batches(release: Release, number: int) -> list[Batch]:
    """Return batches of today with different ids."""
    random, today = SeededBytes("later"), datetime.now(UTC).date().isoformat()
    return [batch_of(release.definitions["theme"], today, random) for _ in range(number)]


@pytest.mark.slow
def test_killed_migration_changes_nothing_and_runs_again(
    kept: str, release: Release, next_release: dict[str, str]
) -> None:
    """After each kill, a process that has been running since before stores a batch. Nothing is lost or counted twice."""
    theme, batches, kills = release.definitions["theme"], iter(new_batches(release, 40)), 0
    with closing(SqlStore.open(kept, create=False)) as store:
        before = contents(kept, ("segment", "batch", "collection"))
        stored: list[Batch] = []
        while True:
            command = [sys.executable, "-c", UPGRADE, str(kills), kept]
            done = subprocess.run(command, env=next_release, capture_output=True, text=True, check=False, timeout=120)
            stored.append(next(batches))
            assert store.append([stored[-1]]) == [AppendResult.STORED]
            assert store.append(stored) == [AppendResult.DUPLICATE] * len(stored)
            if done.returncode == 0:
                break
            assert done.returncode == -signal.SIGKILL, done.stderr
            assert rows(kept, "SELECT version_num FROM alembic_version") == [[f"{SCHEMA_VERSION:04}"]]
            kills += 1
        assert kills >= 6
        assert rows(kept, "SELECT version_num FROM alembic_version") == [[f"{NEXT:04}"]]
        after = contents(kept, ("segment", "batch", "collection", *ADDED))
        assert after == {table: found for table, found in before.items() if table != "alembic_version"}
        assert {note for (note,) in rows(kept, "SELECT note FROM collection")} == {None}
        fold(store, theme)
        assert read_summary(store, theme, [stored[0].period]).num_reports == REPORTS * len(stored)


@pytest.mark.slow
def test_old_and_new_processes_count_each_batch_once(kept: str, release: Release, next_release: dict[str, str]) -> None:
    """The order of docs/how-to/upgrading.md: the new process does not start before the migration; the old one goes on, and can start again."""
    batches = new_batches(release, 12)
    with served(release, kept) as old:
        assert status(old, batches[0]) == 202
        too_early = hubbub(
            "serve", str(release.folder / "metrics.toml"), "--port", "0", "--database", kept, environment=next_release
        )
        assert f"this hubbub has schema version {NEXT}: run `hubbub db upgrade`" in too_early
        assert str(NEXT) in hubbub("db", "upgrade", "--database", kept, environment=next_release)
        with served(release, kept, next_release) as new, served(release, kept) as started_again:
            for number, batch in enumerate(batches):
                first, second, third = [(old, new, started_again)[(number + turn) % 3] for turn in range(3)]
                assert status(first, batch) == (200 if number == 0 else 202)
                assert (status(second, batch), status(third, batch)) == (200, 200)
            for url in (old, new, started_again):
                assert urllib3.request("GET", f"{url}/readyz", retries=False).status == 200
    with closing(SqlStore.open(kept, create=False)) as store:
        fold(store, theme := release.definitions["theme"])
        assert read_summary(store, theme, [batches[0].period]).num_reports == REPORTS * len(batches)
