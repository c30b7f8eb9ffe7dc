"""A database of `decode-all`, in SQLite and in a real PostgreSQL: same rows, whole results after a kill, and what is refused."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import psycopg
import pytest
from click.testing import CliRunner, Result

from hubbub import Metric, UnaryResponse
from hubbub.cli import main
from hubbub.metrics.kinds import JointKind, NumberKind
from hubbub.summary import write_summary
from hubbub_decoder import decode, simulate
from hubbub_decoder.batch_decoding import run as batch_run
from hubbub_decoder.errors import OutputError
from hubbub_decoder.results_store.database import open_results_database
from hubbub_decoder.results_store.store import Look, PeriodKey, Release, ResultsStore, StoredResult
from tests.support.every_kind import DELAY, METRICS
from tests.support.every_result import DAYS, candidates_of, summary_of
from tests.support.paths import DEPLOY, DOCS
from tests.support.postgres import postgres

NOISE = {"prob_p": 0.25, "prob_q": 0.75, "prob_f": 0.5}
DARK = Metric.boolean("dark", UnaryResponse(**NOISE))
PAGE = (DOCS / "reference" / "results-schema.md").read_text(encoding="utf-8")
QUERIES = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
TABLES = {"definitions": "digest", "results": "digest, period", "estimates": "digest, period, position"} | {
    "looks": "digest, period"
}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres() as url:
        yield url


@pytest.fixture
def url(server: str, request: pytest.FixtureRequest) -> str:
    """A database of the test's own."""
    name = f"of_{abs(hash(request.node.name))}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return server.replace("/postgres?", f"/{name}?")


@pytest.fixture(params=["sqlite", "postgres"])
def database(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """Name of a new database of each of both programs."""
    found: str = request.getfixturevalue("url") if request.param == "postgres" else str(tmp_path / "results.sqlite")
    return found


def rows_of(database: str, query: str) -> list[tuple[Any, ...]]:
    if not database.startswith("postgresql:"):
        with closing(sqlite3.connect(database)) as connection:
            return connection.execute(query).fetchall()
    with psycopg.connect(database) as postgres_connection:
        return postgres_connection.execute(query.encode()).fetchall()


def execute(database: str, *statements: str) -> None:
    if not database.startswith("postgresql:"):
        with closing(sqlite3.connect(database, isolation_level=None)) as connection:
            for statement in statements:
                connection.execute(statement)
        return
    with psycopg.connect(database, autocommit=True) as postgres_connection:
        for statement in statements:
            postgres_connection.execute(statement.encode())


def result(metric: Metric = DARK, day: str = DAYS[0], seed: int = 1, people: int = 300) -> StoredResult:
    counts = simulate(metric, {metric.kind.labels[-1]: people}, np.random.default_rng(seed), periods=[day])
    document = json.dumps(decode(counts).to_dict(), allow_nan=False)
    return StoredResult(PeriodKey.of(metric, day), f"counts {seed}", f"inputs {seed}", document, counts.closed)


def is_of_another_command(metric: Metric) -> bool:
    """Whether `decode` makes no result of it: a joint metric, or a search of strings."""
    return isinstance(metric.kind, JointKind) or metric.name == "words"


@cache
def results_of_every_kind() -> Sequence[StoredResult]:
    """Results of two days of each metric, of which the first day is closed."""
    return [
        StoredResult(
            PeriodKey.of(metric, day),
            f"counts {day}",
            "inputs",
            json.dumps(decode(summary_of(metric, day), candidates_of(metric)).to_dict(), allow_nan=False),
            closed=day == DAYS[0],
        )
        for metric in METRICS
        for day in DAYS
        if not is_of_another_command(metric)
    ]


@pytest.fixture(scope="module")
def both(server: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A file and a database with the results of two days of a metric of each kind, of which the first day is closed."""
    databases = str(tmp_path_factory.mktemp("both") / "results.sqlite"), server
    for name in databases:
        with open_results_database(name) as opened:
            for stored in results_of_every_kind():
                opened.write_result(stored)
            for metric in METRICS:
                opened.write_looks(metric, [Look(day, 7, "[]") for day in DAYS])
    return databases


@pytest.mark.parametrize("table", TABLES)
def test_tables_have_the_same_rows(both: tuple[str, str], table: str) -> None:
    file, server = (rows_of(name, f"SELECT * FROM {table} ORDER BY {TABLES[table]}") for name in both)
    assert file == server
    assert len(file) >= 9


def test_tables_and_views_have_the_same_columns(both: tuple[str, str]) -> None:
    file, server = both
    columns: dict[str, list[str]] = {}
    for table, column in rows_of(
        server,
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public' ORDER BY ordinal_position",
    ):
        columns.setdefault(table, []).append(column)
    assert columns.pop("hubbub_results_version") == ["version"]
    assert columns.keys() == {*TABLES, "releases", "shares", "means", "epsilons"}
    for table, names in columns.items():
        assert [row[1] for row in rows_of(file, f"PRAGMA table_info({table})")] == names


@pytest.mark.parametrize("query", QUERIES)
def test_documented_queries_have_equal_rows_for_every_kind(both: tuple[str, str], query: str) -> None:
    found = set()
    for metric in METRICS:
        asked = re.sub("metric = '\\w+'", f"metric = '{metric.name}'", query)
        file, server = (rows_of(name, asked) for name in both)
        assert file == server
        assert all(None not in row for row in file)
        found |= {metric.name} if file else set()
    of_shares = {metric.name for metric in METRICS if metric.kind.has_shares and not is_of_another_command(metric)}
    of_means = {metric.name for metric in METRICS if isinstance(metric.kind, NumberKind)}
    assert found == {"shares": of_shares, "means": of_means, "epsilons": set()}[query.partition("FROM ")[2].split()[0]]


def test_epsilons_are_those_of_the_file(url: str, tmp_path: Path) -> None:
    """The view of PostgreSQL is the one of the file, also with releases, of which one replaced another."""
    file, stored = str(tmp_path / "r.sqlite"), [result(), result(day=DAYS[1], seed=2)]
    releases = [
        Release(stored[index].key, counts, "shown", 300, 300, epsilon, composed)
        for index, counts, epsilon, composed in ((0, "a", 0.25, 0.25), (1, "b", 0.5, 0.5), (1, "c", 0.5, 2.5))
    ]
    with ResultsStore(Path(file)) as store:
        store.record([*((written, None) for written in stored), *((None, release) for release in releases)])
    with open_results_database(url) as opened:
        for written in stored:
            opened.write_result(written)
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        rows = rows_of(file, "SELECT * FROM releases")
        cursor.executemany("INSERT INTO releases VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)", rows)
    assert rows_of(url, QUERIES[-1]) == rows_of(file, QUERIES[-1])
    assert [row[4] for row in rows_of(url, QUERIES[-1])] == [1, 2]


def test_pandas_and_duckdb_read_both(both: tuple[str, str]) -> None:
    """By the documented lines; DuckDB queries the frame."""
    file, server = both
    programs = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (duckdb_query,) = re.findall(r"`duckdb\.sql\(\"(.*?)\"\)`", PAGE)
    frames = []
    for program, shown, actual in (
        (programs[0], "site.files/private/results.sqlite", file),
        (programs[1], "postgresql+psycopg://user@host/results", server.replace("postgresql:", "postgresql+psycopg:")),
    ):
        assert shown in program
        variables: dict[str, Any] = {}
        exec(program.replace(shown, actual), variables)  # noqa: S102  (of our page)
        if "engine" in variables:
            variables["engine"].dispose()
        frames.append(variables["shares"].sort_values(["digest", "period", "value"], ignore_index=True))
    pd.testing.assert_frame_equal(*frames)
    found = []
    for frame in frames:
        with duckdb.connect() as connection:
            connection.register("shares", frame)
            found.append(sorted(connection.sql(duckdb_query).fetchall()))
            for query in (query for query in QUERIES if "FROM shares" in query):
                assert connection.sql(query).fetchall() == rows_of(file, query)
    assert found[0] == found[1]
    assert len(found[0]) >= 8


def test_dashboard_shows_every_kind(both: tuple[str, str]) -> None:
    """The choices of each metric, and each panel on the day that is closed; the shares or the means have every metric."""
    _, server = both
    dashboard = json.loads((DEPLOY / "grafana" / "results.json").read_text())
    choices = {one["name"]: one["query"] for one in dashboard["templating"]["list"] if one["type"] == "query"}
    names = [name for (name,) in rows_of(server, choices["metric"])]
    assert names == sorted(metric.name for metric in METRICS if not is_of_another_command(metric))
    for name in names:
        chosen, shown = {"metric": name}, {}
        for variable in ("version", "group"):
            ((chosen[variable],),) = rows_of(server, filled(choices[variable], chosen))
        for panel in dashboard["panels"]:
            (target,) = panel["targets"]
            shown[panel["title"]] = rows = rows_of(server, filled(target["rawSql"], chosen))
            assert {str(row[0])[:10] for row in rows} <= {DAYS[0]}
            assert all(None not in row for row in rows)
        assert len(shown.pop("Reports")) == 1
        assert any(shown.values()), name


def filled(query: str, chosen: Mapping[str, str]) -> str:
    """Query with the variables of the dashboard."""
    return re.sub(r"\$(\w+)", lambda found: chosen[found[1]], query)


def test_a_result_replaces_the_one_of_its_period(database: str) -> None:
    first, other = result(), result(day=DAYS[1], seed=2)
    again = replace(result(seed=3, people=200), closed=True)
    with open_results_database(database) as opened:
        for written in (first, other, first, again):
            opened.write_result(written)
    with open_results_database(database) as opened:
        known = opened.known_results()
    assert {key: (about.inputs_hash, about.num_reports) for key, about in known.items()} == {
        first.key: ("inputs 3", 200),
        other.key: ("inputs 2", 300),
    }
    assert rows_of(database, "SELECT period, num_reports, closed FROM shares ORDER BY period") == [
        (DAYS[0], 200, 1),
        (DAYS[1], 300, 0),
    ]


def test_what_is_known_is_that_of_the_decoding(both: tuple[str, str]) -> None:
    for name in both:
        with open_results_database(name) as opened:
            known = opened.known_results()
        for stored in results_of_every_kind():
            about = json.loads(stored.document)
            detected = [estimate["detected"] for estimate in about["estimates"]]
            tested = any(one is not None for one in detected)
            assert known[stored.key].num_detected == (sum(map(bool, detected)) if tested else None)
            assert known[stored.key].num_warnings == len(about["warnings"])
            assert (known[stored.key].counts_hash, known[stored.key].closed) == (stored.counts_hash, stored.closed)


def test_a_write_that_fails_leaves_the_result_before_it(database: str) -> None:
    stored = result()
    with open_results_database(database) as opened:
        opened.write_result(stored)
        with pytest.raises(ValueError, match="is no result of"):
            opened.write_result(replace(stored, key=stored.key._replace(group_value="a")))
    before = [rows_of(database, f"SELECT * FROM {table}") for table in TABLES]
    with open_results_database(database) as opened, pytest.raises(OutputError):
        opened.write_result(replace(result(seed=2), counts_hash=None))  # type: ignore[arg-type]
    assert [rows_of(database, f"SELECT * FROM {table}") for table in TABLES] == before


def test_odd_texts_are_escaped(database: str) -> None:
    """PostgreSQL refuses a NUL, and UTF-8 has no lone surrogates; all other texts stay."""
    labels = ("a\0b", "\u00e4\U0001f600 | %s ? \\", "c")
    metric = Metric.categorical("odd", labels, UnaryResponse(**NOISE), description="lone \ud800")
    with open_results_database(database) as opened:
        opened.write_result(result(metric))
    assert {value for (value,) in rows_of(database, "SELECT value FROM shares")} == {"a\\x00b", *labels[1:]}
    ((definition,),) = rows_of(database, "SELECT definition FROM definitions")
    assert Metric.from_dict(json.loads(definition)) == metric


def decode_all(*arguments: str | Path) -> Result:
    done = CliRunner().invoke(main, ["decode-all", *map(str, arguments), "--jobs", "1"])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


@pytest.fixture
def summaries(tmp_path: Path) -> Path:
    (tmp_path / "summaries").mkdir()
    write_summary(summary_of(DARK), tmp_path / "summaries" / "dark.parquet")
    return tmp_path / "summaries"


@pytest.mark.slow
def test_command_records_and_keeps_results(summaries: Path, database: str) -> None:
    """A sum over several periods has both days as its period; a second run decodes nothing, and new counts replace the result."""
    write_summary(simulate(DARK, {"true": 90}, np.random.default_rng(1), periods=DAYS), summaries / "sum.parquet")
    assert decode_all(summaries, "--database", database).stdout == "2 decoded\n"
    periods = {DAYS[0], "..".join(DAYS)}
    assert {row[0] for row in rows_of(database, "SELECT period FROM shares")} == periods
    before = rows_of(database, "SELECT * FROM results ORDER BY period")
    done = decode_all(summaries, "--database", database, "--json")
    assert json.loads(done.stdout)["counts"]["unchanged"] == 2
    assert {outcome["num_reports"] for outcome in json.loads(done.stdout)["outcomes"]} == {row[6] for row in before}
    assert rows_of(database, "SELECT * FROM results ORDER BY period") == before
    closed = replace(summary_of(DARK), closed=True)
    write_summary(closed, summaries / "dark.parquet")
    assert decode_all(summaries, "--database", database).stdout == "1 decoded, 1 unchanged\n"
    after = rows_of(database, "SELECT closed, counts_hash, decoding FROM results WHERE period NOT LIKE '%..%'")
    assert after == [(1, before[0][3], before[0][-1])]
    assert not list(summaries.parent.glob("*.json"))


@pytest.mark.parametrize("suffix", ["json", "csv", "parquet"])
def test_files_are_those_of_the_record(
    tmp_path: Path, database: str, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was in --out-dir before, and without decoding again: nothing, older results, other formats, or damage."""
    monkeypatch.setattr(
        batch_run, "map_in_processes", lambda function, items, _: [(item, function(item)) for item in items]
    )
    metrics = [DARK, next(metric for metric in METRICS if not metric.kind.has_shares)]
    place, out = tmp_path / "summaries", tmp_path / "out"
    place.mkdir()
    for metric in metrics:
        write_summary(summary_of(metric), place / f"{metric.name}.parquet")

    def files() -> dict[str, tuple[bytes, int]]:
        return {
            str(path.relative_to(out)): (path.read_bytes(), path.stat().st_ino)
            for path in out.rglob("*.*")
            if path.is_file()
        }

    def expected(confidence: float) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for metric in metrics:
            ending = f".{suffix}" if metric.kind.has_shares else ".json"
            content = decode(summary_of(metric), confidence=confidence).to_bytes(ending)
            found[f"{metric.name}@{metric.digest[:8]}/{DAYS[0]}{ending}"] = content
        return found

    given: list[str | Path] = [place, "--database", database]
    with_files: list[str | Path] = [*given, "--out-dir", out, "--format", suffix]
    assert decode_all(*with_files).stdout == "2 decoded\n"
    assert {name: content for name, (content, _) in files().items()} == expected(0.95)
    assert decode_all(*given, "--confidence", "0.5").stdout == "2 decoded\n"
    for change in ("older", "none", "lost", "damaged", "other format"):
        if change == "lost":
            next(out.rglob(f"*.{suffix}")).unlink()
        elif change == "damaged":
            next(out.rglob(f"*.{suffix}")).write_bytes(b"PAR1")
        elif change == "other format":
            other = "csv" if suffix == "json" else "json"
            assert (
                decode_all(*given, "--out-dir", out, "--format", other, "--confidence", "0.5").stdout == "2 unchanged\n"
            )
        before = files()
        assert decode_all(*with_files, "--confidence", "0.5").stdout == "2 unchanged\n", change
        after = files()
        assert {name: after[name][0] for name in expected(0.5)} == expected(0.5), change
        if change in ("none", "other format"):
            assert after == before, change


@pytest.mark.slow
def test_killed_run_leaves_whole_results(tmp_path: Path, database: str) -> None:
    """The process is killed as soon as a result is there, and those of its pool end; the next run decodes the others alone."""
    folder, number_of_results = tmp_path / "summaries", 30
    folder.mkdir()
    for number in range(number_of_results):
        metric = Metric.boolean(f"m{number}", UnaryResponse(**NOISE))
        write_summary(
            simulate(metric, {"true": 90}, np.random.default_rng(number), periods=[DAYS[0]]),
            folder / f"{number}.parquet",
        )
    command = [
        sys.executable,
        "-m",
        "hubbub",
        "decode-all",
        str(folder),
        "--database",
        database,
        "--jobs",
        "1",
        "--json",
    ]
    with open_results_database(database) as opened:
        running = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)
        until = time.monotonic() + 120
        while not opened.known_results() and time.monotonic() < until:
            time.sleep(0.002)
        running.send_signal(signal.SIGKILL)
        running.wait(30)
        while _is_alive(running.pid) and time.monotonic() < until:
            time.sleep(0.05)
        assert not _is_alive(running.pid)
        kept = len(opened.known_results())
    whole = "SELECT count(*) FROM results JOIN definitions USING (digest, group_value) JOIN estimates USING (digest, group_value, period)"
    assert rows_of(database, whole) == [(kept,)]
    assert rows_of(database, "SELECT count(*) FROM estimates") == [(kept,)]
    assert kept >= 1
    again = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
    counts = json.loads(again.stdout)["counts"]
    assert (counts["unchanged"], counts["decoded"]) == (kept, number_of_results - kept)


def _is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def refusal(database: str | Path, summaries: Path, exit_code: int = 1) -> str:
    done = decode_all(summaries, "--database", database)
    assert (done.exit_code, done.stdout) == (exit_code, "")
    assert "secret" not in done.stderr
    return " ".join(done.stderr.split())


def test_a_file_of_publish_is_refused(summaries: Path, tmp_path: Path) -> None:
    stored, path = result(), tmp_path / "results.sqlite"
    with ResultsStore(path) as store:
        store.record([(stored, Release(stored.key, "counts", "shown", 300, 300, 0.25, 0.5))])
    before = path.read_bytes()
    assert "is a file of `hubbub publish`, with 1 releases" in refusal(path, summaries)
    withdrawn = tmp_path / "withdrawn.sqlite"
    with ResultsStore(withdrawn) as store:
        store.withdraw({"dark"}, [])
    assert "with 1 withdrawals" in refusal(withdrawn, summaries)
    assert path.read_bytes() == before


def closed_port() -> int:
    with closing(socket.socket()) as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def test_a_database_that_cannot_be_used_is_refused(summaries: Path, tmp_path: Path) -> None:
    """Before anything is decoded, in a sentence with the remedy, and without the password."""
    text, foreign, newer = (tmp_path / name for name in ("text", "foreign.sqlite", "newer.sqlite"))
    text.write_text("no database" * 99)
    execute(str(foreign), "CREATE TABLE mine (a)")
    ResultsStore(newer).close()
    execute(str(newer), "PRAGMA user_version = 99")
    expected: dict[str | Path, str] = {
        text: "Restore it from a backup",
        foreign: "is the database of another program",
        newer: "has version 99 of the schema",
        tmp_path: "is a directory. Name a file in it",
        tmp_path / "none" / "r.sqlite": "Create it, or name another file",
        f"postgresql://u:secret@127.0.0.1:{closed_port()}/x": "Check the URL, that PostgreSQL runs",
    }
    for url in (
        "u:secret@host/x?nosuch=1",
        "u:%zzsecret@host/x",
        "host/x?password=%zzsecret",
        "u:a secret@h/x",
        "u:a@secret@h/x",
    ):
        expected[f"postgresql://{url}"] = "is no URL of PostgreSQL. Write the name"
    for database, sentence in expected.items():
        assert sentence in refusal(database, summaries), database
    for name in (
        "",
        " ",
        ":memory:",
        "host=h password=secret",
        "mysql://u:secret@host/x",
        "postgresql:x",
        "sqlite:///r.sqlite",
    ):
        assert "is neither a file nor a URL of PostgreSQL. Write the name" in refusal(name, summaries, 2)
    for options in ([], ["--database", str(tmp_path / "r.sqlite"), "--format", "csv"]):
        assert decode_all(summaries, *options).exit_code == 2


def test_a_postgres_schema_that_cannot_be_used_is_refused(summaries: Path, url: str) -> None:
    assert 'database "nosuch" does not exist' in refusal(re.sub("/of_\\d+", "/nosuch", url), summaries)
    execute(url, "CREATE TABLE mine (a int)")
    assert "schema public has tables of another program. Create a schema" in refusal(url, summaries)
    assert rows_of(url, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(1,)]
    execute(url, "CREATE SCHEMA results", "DROP ROLE IF EXISTS analyst", "CREATE ROLE analyst LOGIN")
    own = f"{url}&options=-csearch_path%3Dresults"
    analyst = own.replace("hubbub@", "analyst@")
    assert "permission denied" in (denied := refusal(analyst, summaries)) or "no schema has been selected" in denied
    execute(url, "GRANT USAGE ON SCHEMA results TO analyst")
    assert "permission denied for schema results. Let this user create tables" in refusal(analyst, summaries)
    with open_results_database(own) as opened:
        opened.write_result(result())
    execute(url, "GRANT SELECT ON ALL TABLES IN SCHEMA results TO analyst")
    assert "permission denied for table results. Let this user" in refusal(analyst, summaries)
    assert len(rows_of(analyst, "SELECT * FROM shares")) == 1
    execute(own, "UPDATE hubbub_results_version SET version = 99")
    assert "has version 99 of the schema" in refusal(own, summaries)


def test_a_database_of_version_1_gets_the_table_of_looks(tmp_path: Path, url: str) -> None:
    """Its results stay, and a look that is written again replaces the first one."""
    file = str(tmp_path / "results.sqlite")
    version_1 = {file: "PRAGMA user_version = 1", url: "UPDATE hubbub_results_version SET version = 1"}
    for name, statement in version_1.items():
        with open_results_database(name) as opened:
            opened.write_result(result())
        execute(name, "DROP TABLE looks", statement)
        with open_results_database(name) as opened:
            assert opened.looks(DARK) == {}
            assert len(opened.known_results()) == 1
            for look in (Look("2026-03-02", 0, "[]"), Look("2026-03-03", 5, "[]"), Look("2026-03-02", 6, "[1]")):
                opened.write_looks(DARK, [look])
            assert opened.looks(DARK) == {
                "2026-03-02": Look("2026-03-02", 6, "[1]"),
                "2026-03-03": Look("2026-03-03", 5, "[]"),
            }


def test_means_of_version_2_get_the_interval_wherever_the_numbers_are(tmp_path: Path, url: str) -> None:
    file = str(tmp_path / "results.sqlite")
    version_2 = {file: "PRAGMA user_version = 2", url: "UPDATE hubbub_results_version SET version = 2"}
    decoding = decode(summary_of(DELAY, DAYS[0]), None)
    assert decoding.numbers is not None
    mean = decoding.numbers.mean
    assert mean.lowest < mean.low < mean.high < mean.highest
    document = json.dumps(decoding.to_dict(), allow_nan=False)
    for name, statement in version_2.items():
        with open_results_database(name) as opened:
            opened.write_result(StoredResult(PeriodKey.of(DELAY, DAYS[0]), "counts", "inputs", document))
            opened.write_result(result())
        execute(
            name, f"UPDATE results SET mean_low = {mean.low}, mean_high = {mean.high} WHERE mean IS NOT NULL", statement
        )
        with open_results_database(name):
            pass
        assert rows_of(name, "SELECT value, low, high FROM means") == [(mean.value, mean.lowest, mean.highest)]


def test_other_encodings_are_refused(server: str, summaries: Path) -> None:
    execute(server, "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    assert "has the encoding LATIN1" in refusal(server.replace("/postgres?", "/latin?"), summaries)


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch, summaries: Path) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert "PostgreSQL needs psycopg: run pip install 'hubbub-telemetry[postgres]'" in refusal(
        "postgresql://user@host/x", summaries
    )


def test_a_lost_connection_ends_the_run_with_its_reason(url: str) -> None:
    with open_results_database(url) as opened:
        execute(
            url,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'hubbub decode-all'"
            " AND datname = current_database()",
        )
        with pytest.raises(OutputError, match="Run the command again, and it continues"):
            opened.write_result(result())
    with open_results_database(url) as opened:
        opened.write_result(result())
        assert len(opened.known_results()) == 1
