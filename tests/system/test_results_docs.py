"""docs/how-to/nightly.md and exporting.md: the script runs against a real service, and its results fill the tables that the pages query."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import numpy as np
import pytest
import sqlalchemy
import urllib3

from hubbub import Metric, load_definitions
from hubbub.metrics.kinds import JointKind
from hubbub.summary import Reports, write_reports, write_summary
from hubbub.wire.batch import Batch
from hubbub_decoder import simulate
from tests.support.every_kind import METRICS
from tests.support.every_result import DAYS, candidates_of, summary_of
from tests.support.near_expiry import with_near_expiry
from tests.support.paths import DOCS, REPOSITORY
from tests.support.postgres import postgres

NIGHTLY, EXPORTING = ((DOCS / "how-to" / name).read_text(encoding="utf-8") for name in ("nightly.md", "exporting.md"))
EXAMPLES = REPOSITORY / "examples"
JSON = {"content-type": "application/json"}
SKIPPED = {"words", *(metric.name for metric in METRICS if isinstance(metric.kind, JointKind))}
WITH_SHARES = {metric.name for metric in METRICS if metric.kind.has_shares} - SKIPPED


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def random_batch(metric: Metric, period: str) -> bytes:
    """Return the JSON of a batch of 50 reports with random bits."""
    rng = np.random.default_rng(1)
    ones = np.packbits(rng.random((50, metric.num_bits)) < 0.3, axis=1, bitorder="little")
    cohorts = rng.integers(metric.num_cohorts, size=50).astype(np.uint8)
    return Batch(uuid.uuid4(), metric.name, metric.digest, period, cohorts.tobytes(), ones.tobytes()).to_json()


@contextmanager
def serving(definitions: Path) -> Iterator[tuple[str, str]]:
    """Run `hubbub serve`, and yield its public and its local address."""
    log = definitions.with_name("serve.log")
    command = ["hubbub", "serve", definitions.name, "--local-reads-without-token", "--port", "0", "--local-port", "0"]
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [Path(sys.executable).parent / command[0], *command[1:]], cwd=definitions.parent, stderr=errors
        )
    try:
        while not (found := re.search(r"listening on (\S+)\n.*without a token on (\S+)", log.read_text())):
            assert process.poll() is None, log.read_text()
        yield found[1], found[2]
    finally:
        process.terminate()
        process.wait(30)


def run(*command: str, folder: Path, exit_code: int = 0, **variables: str) -> str:
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": programs} | variables
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == exit_code, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the results of two days of a metric of each kind, by the command of the page."""
    folder = tmp_path_factory.mktemp("results")
    for name in ("summaries", "candidates"):
        (folder / name).mkdir()
    for metric in METRICS:
        for day in DAYS:
            path, collected = folder / "summaries" / f"{metric.name}-{day}.parquet", summary_of(metric, day)
            if isinstance(collected, Reports):
                write_reports(collected, path)
            else:
                write_summary(replace(collected, closed=day == DAYS[-1]), path)
        if (names := candidates_of(metric)) is not None:
            (folder / "candidates" / f"{metric.name}.txt").write_text("\n".join(names) + "\n")
    for command in blocks(EXPORTING, "sh"):  # joint metrics and searches are skipped
        assert set(skipped(run("sh", "-c", f"{command.strip()} --json", folder=folder))) == SKIPPED
    return folder


@pytest.fixture(params=["sqlite", "postgres"])
def database(results: Path, request: pytest.FixtureRequest) -> Iterator[sqlalchemy.Engine]:
    """Results in the database of the page, or in PostgreSQL by the same command; the last day is closed."""
    with ExitStack() as stack:
        url = f"sqlite:///{results}/results.sqlite"
        if request.param == "postgres":
            server = stack.enter_context(postgres())
            command = blocks(EXPORTING, "sh")[0].replace("--database results.sqlite", f"--database '{server}'")
            run("sh", "-c", command, folder=results)
            url = server.replace("postgresql://", "postgresql+psycopg://")
        engine = sqlalchemy.create_engine(url)
        stack.callback(engine.dispose)
        yield engine


def skipped(output: str) -> Iterator[str]:
    """Metrics that `decode-all` skipped; it did all others."""
    for outcome in json.loads(output)["outcomes"]:
        assert outcome["status"] in ("decoded", "skipped")
        if outcome["status"] == "skipped":
            assert outcome["reason"]
            yield outcome["name"].partition("@")[0]


@pytest.mark.slow
def test_query_of_files_shows_every_kind(results: Path) -> None:
    """Every metric with shares is there on both days; means have no shares."""
    *_, files = blocks(EXPORTING, "sql")
    with duckdb.connect() as connection:
        found = connection.sql(files.replace("'estimates", f"'{results}/estimates")).fetchall()
        ((average,),) = connection.sql(
            f"SELECT avg(q_value) FROM read_parquet('{results}/estimates/*/*.parquet')"
        ).fetchall()
    shown = {(Path(row[0]).parent.name.partition("@")[0], Path(row[0]).stem) for row in found}
    assert shown == {(name, day) for name in WITH_SHARES for day in DAYS}
    assert [row for row in found if row[2] is None] == []
    assert {row[1] for row in found} >= {"true", "dark", "linux", "start"}
    assert "absent" not in {row[1] for row in found}
    assert 0 < average < 1


@pytest.mark.slow
def test_queries_of_the_database_show_every_kind(database: sqlalchemy.Engine) -> None:
    """The first query has each metric with shares on both days, and the panel of each metric the day that is closed."""
    every, panel, _ = blocks(EXPORTING, "sql")
    with database.connect() as connection:
        rows = connection.execute(sqlalchemy.text(every)).all()
        assert {(row[0], row[1]) for row in rows} == {(name, day) for name in WITH_SHARES for day in DAYS}
        assert {row[2] for row in rows} >= {"true", "dark", "linux", "start"}
        assert "absent" not in {row[2] for row in rows}
        for name in WITH_SHARES:
            shown = connection.execute(sqlalchemy.text(panel.replace("homepage", name))).all()
            assert 1 <= len(shown) == len([row for row in rows if row[:2] == (name, DAYS[-1])])


@pytest.mark.slow
def test_nightly_script_publishes_closed_periods(tmp_path: Path) -> None:
    """Reports of three days ago reach the service; the script downloads them, and publishes the summary of a closed period that is there already."""
    definitions = load_definitions(EXAMPLES / "app_metrics.toml")
    homepage = load_definitions(EXAMPLES / "metrics.toml")["homepage"]
    today = datetime.now(UTC).date()
    (tmp_path / "metrics.toml").write_text(
        "\n".join(with_near_expiry((EXAMPLES / name).read_text()) for name in ("metrics.toml", "app_metrics.toml"))
    )
    for name in ("approved", "summaries"):
        (tmp_path / name).mkdir()
    (tmp_path / "approved" / "homepage.txt").write_text("a\nb\n")
    closed = str(today - timedelta(days=40))
    counts = simulate(homepage, {"a": 6_000, "b": 3_000}, np.random.default_rng(1), periods=[closed])
    write_summary(replace(counts, closed=True), tmp_path / "summaries" / "closed.parquet")
    script = blocks(NIGHTLY, "sh")[0].replace("/var/lib/hubbub-results", str(tmp_path))
    with serving(tmp_path / "metrics.toml") as (public, local):
        for metric in (homepage, definitions["command"]):
            bits = random_batch(metric, str(today - timedelta(days=3)))
            assert urllib3.request("POST", f"{public}/v1/reports", body=bits, headers=JSON).status == 202
        printed = run("sh", "-c", script, folder=tmp_path, HUBBUB_URL=local)
    assert printed.endswith("1 published, 2 waiting in site\n")
    pages = {path.relative_to(tmp_path / "site") for path in (tmp_path / "site").glob("*/????-??-??.html")}
    assert pages == {Path(f"homepage@{homepage.digest[:8]}/{closed}.html")}
