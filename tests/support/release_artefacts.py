"""The files that a release writes, each with what this version reads in it, and the mark of a version that is newer than this one.

`tests/data/make_release.py` writes them and packs them in `tests/data/releases`, with what the release itself read in each.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import tarfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from hubbub import Definitions, load_definitions
from hubbub.cli import main
from hubbub.errors import HubbubError
from hubbub.sdk.storage.record_format import FORMAT_VERSION, MAGIC
from hubbub.sdk.storage.state_reader import read_state
from hubbub.sdk.transparency.state_reports import inspect_state, ledger_of_state
from hubbub.summary import BitCounts, Summary, read_reports, read_summary
from hubbub_aggregator.database.schema import SCHEMA_VERSION
from hubbub_aggregator.pipeline.folding import read_summary as read_stored
from hubbub_aggregator.segments.engines import ArrowEngine
from hubbub_aggregator.segments.folding import fold_folder, folders
from hubbub_aggregator.segments.object_store import ObjectStore
from hubbub_aggregator.store.sql_store import SqlStore
from hubbub_decoder.batch_decoding.tasks import counts_hash
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.results_store.database import open_results_database
from hubbub_decoder.results_store.schema import MIGRATIONS, POSTGRES_VERSION
from hubbub_decoder.results_store.store import ResultsStore
from tests.support.databases import new_postgres, sql
from tests.support.paths import DATA, REPOSITORY
from tests.support.programs import installed

RELEASES = DATA / "releases"
NOBODY = "http://127.0.0.1:9"
_SCRIPT = REPOSITORY / "tests" / "typescript" / "scripted_days.mjs"


@dataclass
class Release:
    """The unpacked files of a release. server : of PostgreSQL, for its dumps"""

    folder: Path
    server: str

    @classmethod
    def unpack(cls, archive: Path, folder: Path, server: str) -> Release:
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        return cls(folder, server)

    @property
    def facts(self) -> dict[str, Any]:
        """What the release itself read in each artefact."""
        return dict(json.loads((self.folder / "facts.json").read_text()))

    @cached_property
    def definitions(self) -> Definitions:
        return load_definitions(self.folder / "metrics.toml")

    @cached_property
    def postgres(self) -> str:
        return self._loaded("reports.postgres.sql")

    @cached_property
    def results_postgres(self) -> str:
        return self._loaded("results.postgres.sql")

    def _loaded(self, dump: str) -> str:
        database = new_postgres(self.server)
        sql(database, (self.folder / dump).read_text())
        return database

    def file(self, name: str) -> Path:
        """Return the last file with this pattern."""
        return max(self.folder.glob(name))

    def run_typescript(self, url: str, days: Mapping[str, Sequence[tuple[str, Any]]]) -> dict[str, Any]:
        """Run the TypeScript client on its directory at these times, with these recordings; return what it inspects."""
        bundle = REPOSITORY / "clients" / "typescript" / "dist" / "node.js"
        if not bundle.exists():
            pytest.skip("the TypeScript client is not built: make typescript")
        options = {
            "directory": str(self.folder / "typescript"),
            "definitions": [metric.to_dict() for metric in self.definitions.values()],
            "url": url,
            "groups": {"version": "1.4"},
            "days": list(days.items()),
        }
        command = [installed("node", "nodejs"), str(_SCRIPT), str(bundle), json.dumps(options)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        return dict(json.loads(done.stdout))


def rows(database: str, query: str) -> list[list[Any]]:
    """Return the rows of a query, without hubbub."""
    if database.startswith("postgresql:"):
        with psycopg.connect(database) as connection:
            return [list(row) for row in connection.execute(query.encode())]
    with closing(sqlite3.connect(database)) as file:
        return [list(row) for row in file.execute(query)]


def _counts(summary: Summary) -> list[Any]:
    counts = Evidence(summary).counts
    return [summary.metric.name, list(summary.periods), counts.closed, summary.num_reports, counts_hash(counts)]


def _digests(release: Release) -> Any:
    return {metric.digest: metric.to_dict() for metric in release.definitions.collections()}


def _state(release: Release) -> Any:
    state = read_state(release.folder / "state")
    return {"inspect": inspect_state(state, 10).to_dict(), "ledger": ledger_of_state(state).to_dict()}


def _typescript(release: Release) -> Any:
    found = release.run_typescript(NOBODY, {"2026-03-04T12:00:00Z": ()})
    if "cannot be used" in found["paused"]:
        raise HubbubError(found["paused"])
    return found


def _database(database: str, release: Release) -> Any:
    upgraded = CliRunner().invoke(main, ["db", "upgrade", "--database", database])
    if upgraded.exit_code:
        raise HubbubError(upgraded.stderr)
    with closing(SqlStore.open(database, create=False)) as store:
        stored = [
            [*_counts(read_stored(store, metric, [period.period])), period.closed, store.num_retained(metric.digest)]
            for metric in release.definitions.collections()
            for period in store.read(metric.digest)
        ]
        tokens = [[token.name, sorted(token.scopes), str(token.created)] for token in store.tokens()]
        refusals = [[*key, number] for key, number in store.refusals().items()]
        clock = store.clock()
        return {"stored": stored, "tokens": tokens, "refusals": refusals, "clock": clock and clock.state.remembered}


def _segments(release: Release) -> Any:
    objects = ObjectStore.open(str(release.folder / "segments"))
    found = []
    for folder in folders(objects):
        metric = next(metric for metric in release.definitions.collections() if metric.digest == folder.digest)
        folded = fold_folder(objects, folder, metric, ArrowEngine(), keep=True)
        found.append([folder.path, folded.closed, folded.summary and _counts(folded.summary)])
    return found


def _summaries(release: Release) -> Any:
    files = sorted((release.folder / "summaries").rglob("*.parquet"))
    return {str(file.relative_to(release.folder)): _counts(read_summary(file)) for file in files}


def _reports(release: Release) -> Any:
    reports = read_reports(release.folder / "reports.parquet")
    return _counts(BitCounts.from_rows(reports.metric, reports.cohorts.astype(np.uint8), reports.rows, reports.periods))


def _results(database: str) -> Any:
    with open_results_database(database):
        pass
    return {view: rows(database, f"SELECT * FROM {view} ORDER BY 1, 2, 3, 4, 5") for view in ("shares", "means")}


def _published(release: Release) -> Any:
    database = release.folder / "site.files" / "private" / "results.sqlite"
    ResultsStore(database).close()
    views = ("shares", "means", "epsilons")
    return {view: rows(str(database), f"SELECT * FROM {view} ORDER BY 1, 2, 3, 4, 5") for view in views}


def _newer_definitions(release: Release) -> None:
    file = release.folder / "metrics.toml"
    file.write_text(file.read_text().replace('kind = "boolean"', 'kind = "later"'))


def _newer_state(release: Release) -> None:
    newer = MAGIC[:-1] + bytes([FORMAT_VERSION + 1])
    for file in (release.folder / "state").iterdir():
        file.write_bytes(file.read_bytes().replace(MAGIC, newer))


def _newer_typescript(release: Release) -> None:
    file = release.folder / "typescript" / "journal.jsonl"
    file.write_text(file.read_text().replace('"format":1', '"format":2'))


def _newer_database(database: str) -> None:
    sql(database, f"UPDATE alembic_version SET version_num = '{SCHEMA_VERSION + 1:04}'")
    sql(database, f"UPDATE hubbub_schema SET oldest_compatible = {SCHEMA_VERSION + 1}")


def _newer_format(file: Path, key: bytes = b"hubbub") -> None:
    """Write the format of a Parquet file, in whose metadata it ends with /1, with /2."""
    table = pq.read_table(file)
    metadata = {**table.schema.metadata, key: table.schema.metadata[key].replace(b"/1", b"/2")}
    pq.write_table(table.replace_schema_metadata(metadata), file)


def _newer_manifest(release: Release) -> None:
    file = release.file("segments/**/folded/*.json")
    file.write_text(file.read_text().replace("hubbub-fold/1", "hubbub-fold/2"))


def _newer_results(database: Path) -> None:
    with closing(sqlite3.connect(database)) as file:
        file.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")


@dataclass(frozen=True)
class Artefact:
    """Files of a release.

    name    : in facts.json
    read    : reads them with this version, which may upgrade them; returns JSON
    advance : changes them into files of a version that is newer than this one
    refusal : pattern of the sentence by which this version refuses those
    """

    name: str
    read: Callable[[Release], Any]
    advance: Callable[[Release], None]
    refusal: str = r"has .*(format|version).* this (hubbub|version) (reads|has|knows) .*: install the newer hubbub"


ARTEFACTS = (
    Artefact("definitions", _digests, _newer_definitions, r"kind .*'later'"),
    Artefact("client", _state, _newer_state),
    Artefact("typescript", _typescript, _newer_typescript),
    Artefact(
        "sqlite",
        lambda release: _database(str(release.folder / "reports.db"), release),
        lambda release: _newer_database(str(release.folder / "reports.db")),
    ),
    Artefact(
        "postgres",
        lambda release: _database(release.postgres, release),
        lambda release: _newer_database(release.postgres),
    ),
    Artefact("segments", _segments, lambda release: _newer_format(release.file("segments/**/*.parquet"))),
    Artefact("manifests", _segments, _newer_manifest),
    Artefact("summaries", _summaries, lambda release: _newer_format(release.file("summaries/*.parquet"))),
    Artefact("reports", _reports, lambda release: _newer_format(release.file("reports.parquet"))),
    Artefact(
        "results",
        lambda release: _results(str(release.folder / "results.sqlite")),
        lambda release: _newer_results(release.folder / "results.sqlite"),
    ),
    Artefact(
        "results in PostgreSQL",
        lambda release: _results(release.results_postgres),
        lambda release: sql(
            release.results_postgres, f"UPDATE hubbub_results_version SET version = {POSTGRES_VERSION + 1}"
        ),
    ),
    Artefact(
        "published",
        _published,
        lambda release: _newer_results(release.folder / "site.files" / "private" / "results.sqlite"),
    ),
)
