"""The file of results: its schema, migrations, and files that it is not."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hubbub import Metric, UnaryResponse
from hubbub.metrics.group import Group
from hubbub_decoder import Decoding, decode, simulate
from hubbub_decoder.errors import OutputError
from hubbub_decoder.results_store import schema
from hubbub_decoder.results_store.schema import MIGRATIONS, open_database
from hubbub_decoder.results_store.store import (
    FileStamp,
    PeriodKey,
    Release,
    ResultsStore,
    Run,
    StoredResult,
    SummaryFile,
)
from tests.support.every_kind import METRICS
from tests.support.every_result import DAYS, candidates_of, summary_of
from tests.support.paths import DOCS

DARK = Metric.boolean("dark", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5), group=Group("arm", ("a", "other")))
DAY = "2026-03-02"


def result(metric: Metric = DARK, seed: int = 1, day: str = DAY) -> StoredResult:
    counts = simulate(metric, {"true": 300}, np.random.default_rng(seed), no_value=100, periods=[day])
    document = json.dumps(decode(counts).to_dict(), allow_nan=False)
    return StoredResult(PeriodKey.of(metric, day), f"counts {seed}", f"inputs {seed}", document)


def release(of: StoredResult) -> Release:
    return Release(of.key, of.counts_hash, of.result_hash, 400, 400, 0.25, 0.5)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    whole, value = result(), result(DARK.in_group("a"), seed=2)
    assert (value.key.digest, value.key.group_value, value.key.whole) == (DARK.digest, "a", whole.key)
    file = SummaryFile("/x", FileStamp(1, 2, 3, 4), "c", DARK, DAY, True, "n", np.array([3, 4]), np.array([5]))
    with ResultsStore(tmp_path / "r.sqlite") as store:
        store.record([(whole, release(whole)), (value, release(value))])
        store.write_summaries([file], ["/gone"])
        store.remember_run(Run("inputs", "version", (("dark", "published", ""),)))
    with ResultsStore(tmp_path / "r.sqlite") as store:
        assert store.last_run() == Run("inputs", "version", (("dark", "published", ""),))
        assert store.releases() == {stored.key: (release(stored),) for stored in (whole, value)}
        assert store.inputs_hashes() == {whole.key: "inputs 1", value.key: "inputs 2"}
        assert store.document(value.key, value.result_hash) == value.document
        assert {metric.digest for metric in store.metrics().values()} == {DARK.digest, DARK.in_group("a").digest}
        (read,) = store.summaries().values()
        assert (read.path, read.stamp, read.metric.digest, read.closed) == (
            "/x",
            FileStamp(1, 2, 3, 4),
            DARK.digest,
            True,
        )
        assert (read.cohort_reports.tolist(), read.bit_ones.tolist(), read.num_reports) == ([3, 4], [5], 7)
        store.withdraw({"dark"}, [value.key])
        assert store.withdrawn() == {"dark"}
        assert set(store.inputs_hashes()) == {whole.key}
        assert store.releases().keys() == {whole.key, value.key}
        assert store.last_run() is None  # something was written after it
        with pytest.raises(OutputError, match="is missing or damaged"):
            store.document(value.key, value.result_hash)


def test_a_result_and_its_release_are_written_together(tmp_path: Path) -> None:
    first, other = result(), result(seed=2, day="2026-03-03")
    with ResultsStore(tmp_path / "r.sqlite") as store:
        store.record([(first, release(first))])
        wrong = replace(other, key=first.key._replace(period="2026-03-04"))
        store.record([(replace(first, inputs_hash="new"), None)])
        with pytest.raises(ValueError, match="is no result of"):
            store.record(
                [(result(seed=3), release(first)), (replace(wrong, key=first.key._replace(group_value="a")), None)]
            )
        assert store.inputs_hashes() == {first.key: "new"}
        assert store.releases() == {first.key: (release(first),)}


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM releases",
        "UPDATE releases SET epsilon = 0",
        "DELETE FROM withdrawals",
        "UPDATE withdrawals SET name = ''",
    ],
)
def test_releases_and_withdrawals_are_only_added(tmp_path: Path, statement: str) -> None:
    stored = result()
    with ResultsStore(tmp_path / "r.sqlite") as store:
        store.record([(stored, release(stored))])
        store.withdraw({"dark"}, [])
    with (
        closing(sqlite3.connect(tmp_path / "r.sqlite", isolation_level=None)) as opened,
        pytest.raises(sqlite3.IntegrityError, match="append-only"),
    ):
        opened.execute(statement)


def test_columns_of_every_kind_are_those_of_the_decoding() -> None:
    """Views have a row for each estimate and each mean; what was not tested is null."""
    wanted, means = set(), set()
    with ResultsStore(None) as store:
        for metric in METRICS:
            try:
                decoding = decode(summary_of(metric, DAYS[0]), candidates_of(metric))
            except ValueError:  # of another command
                continue
            document = json.dumps(decoding.to_dict(), allow_nan=False)
            store.record([(StoredResult(PeriodKey.of(metric, DAYS[0]), "counts", "inputs", document), None)])
            wanted |= {
                (metric.name, e.candidate, *map(none, (e.share, e.low, e.high, e.q_value)), e.detected)
                for e in decoding
            }
            if decoding.numbers is not None:
                mean = decoding.numbers.mean
                means.add((metric.name, mean.value, mean.lowest, mean.highest))
            assert Decoding.from_dict(json.loads(document)).num_reports == decoding.num_reports
        connection = store._connection
        rows = connection.execute("SELECT metric, value, share, low, high, q_value, detected FROM shares").fetchall()
        assert {
            (name, value.split(" | ")[0], *numbers, None if d is None else bool(d)) for name, value, *numbers, d in rows
        } == wanted
        assert set(connection.execute("SELECT metric, value, low, high FROM means")) == means
    assert len({row[0] for row in wanted}) > 5
    assert means


def none(value: float) -> float | None:
    return None if np.isnan(value) else value


FOREIGN = (
    ["CREATE TABLE mine (a)"],
    ["CREATE TABLE mine (a)", "PRAGMA user_version = 1"],
    ["CREATE TABLE mine (a)", "PRAGMA application_id = 7"],
    ["PRAGMA user_version = 1"],
    ["PRAGMA application_id = 7"],
)
"""Statements that make a database of another program."""


def test_a_foreign_a_newer_and_a_damaged_file_are_refused(tmp_path: Path) -> None:
    newer, damaged, text = (tmp_path / name for name in ("newer", "damaged", "text"))
    for number, statements in enumerate(FOREIGN):
        foreign = tmp_path / f"foreign-{number}"
        with closing(sqlite3.connect(foreign, isolation_level=None)) as opened:
            for statement in statements:
                opened.execute(statement)
        before = foreign.read_bytes()
        with pytest.raises(OutputError, match="is the database of another program"):
            ResultsStore(foreign)
        assert foreign.read_bytes() == before
    stored = result()
    for path in (newer, damaged):
        with ResultsStore(path) as store:
            store.record([(stored, release(stored))])
    with closing(sqlite3.connect(newer, isolation_level=None)) as opened:
        opened.execute("PRAGMA user_version = 99")
    with pytest.raises(
        OutputError, match=r"has version 99 of the schema, but this version knows .*: install the newer hubbub"
    ):
        ResultsStore(newer)
    text.write_text("no database" * 99)
    data = bytearray(damaged.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    damaged.write_bytes(data)
    for path in (text, damaged):
        with pytest.raises(OutputError, match="Restore it from a backup"), ResultsStore(path) as store:
            store.releases()
    with pytest.raises(OutputError, match="Let this user write to the file"):
        ResultsStore(tmp_path / "none" / "r.sqlite")


def test_an_older_file_is_migrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later version adds a column; a file of this one, made by the statements of this one, has it and all its rows afterwards."""
    path, stored = tmp_path / "r.sqlite", result()
    with ResultsStore(path) as store:
        store.record([(stored, release(stored))])

    def add_column(connection: sqlite3.Connection) -> None:
        connection.execute("ALTER TABLE results ADD COLUMN note TEXT NOT NULL DEFAULT 'none'")

    def fail(connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM estimates")
        raise sqlite3.OperationalError("disk I/O error")

    with pytest.raises(OutputError, match="disk I/O error"):
        open_database(path, (*MIGRATIONS, add_column, fail))
    with ResultsStore(path) as store:  # a migration that fails changes nothing
        assert store.document(stored.key, stored.result_hash) == stored.document
        assert store._connection.execute("SELECT count(*) FROM estimates").fetchone() == (1,)
    with closing(open_database(path, (*MIGRATIONS, add_column))) as opened:
        assert opened.execute("SELECT note, counts_hash FROM results").fetchall() == [("none", "counts 1")]
        assert opened.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS) + 1,)
        assert opened.execute("SELECT metric, share IS NOT NULL FROM shares").fetchall() == [("dark", 1)]
    with pytest.raises(OutputError, match="install the newer hubbub"):  # by this release
        ResultsStore(path)
    with closing(open_database(None, (*MIGRATIONS, add_column))) as fresh:
        (statement,) = fresh.execute("SELECT sql FROM sqlite_master WHERE name = 'results'").fetchone()
    assert statement.count("note") == 1
    assert schema.MIGRATIONS is MIGRATIONS


def test_documented_schema_is_that_of_the_code() -> None:
    """Each table, view and column is on the page, and the page names no other."""
    page = (DOCS / "reference" / "results-schema.md").read_text(encoding="utf-8")
    sections = dict(part.partition("\n")[::2] for part in page.split("\n## ")[1:])
    documented = {
        name.strip("`"): {line.split("`")[1] for line in text.splitlines() if line.startswith("| `")}
        for name, text in sections.items()
        if name.startswith("`")
    }
    with closing(open_database(None)) as connection:
        rows = connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')").fetchall()
        columns = {name: {row[1] for row in connection.execute(f"PRAGMA table_info({name})")} for (name,) in rows}
    assert documented == columns
    assert f"user_version` {len(MIGRATIONS)}" in page
