"""docs/how-to/nightly.md and exporting.md: the script runs against a real service, and its results fill the tables that the pages query."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import numpy as np
import pytest
import urllib3

from hubbub import Metric, Params, load_definitions
from hubbub.summary import write_summary
from hubbub.wire.batch import Batch
from hubbub_decoder import simulate
from tests.support.near_expiry import with_near_expiry
from tests.support.paths import DOCS, REPOSITORY

NIGHTLY, EXPORTING = ((DOCS / "how-to" / name).read_text(encoding="utf-8") for name in ("nightly.md", "exporting.md"))
EXAMPLES = REPOSITORY / "examples"
JSON = {"content-type": "application/json"}
HOMEPAGE = Metric.string(
    "homepage", Params(num_bits=64, num_hashes=1, num_cohorts=16, prob_p=0.1, prob_q=0.9, prob_f=0)
)


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


def run(*command: str, folder: Path, **variables: str) -> str:
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": programs} | variables
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_results_reach_the_tables_of_the_page(tmp_path: Path) -> None:
    """Two days of 60 % and 30 %; the queries of the page find both strings on both days."""
    (tmp_path / "summaries").mkdir()
    (tmp_path / "candidates").mkdir()
    (tmp_path / "candidates" / "homepage.txt").write_text("a\nb\nc\n")
    for seed, day in enumerate(("2026-03-02", "2026-03-03")):
        counts = simulate(HOMEPAGE, {"a": 6_000, "b": 3_000, "d": 1_000}, np.random.default_rng(seed), periods=[day])
        write_summary(counts, tmp_path / "summaries" / f"homepage-{day}.parquet")
    run("sh", "-c", blocks(EXPORTING, "sh")[0], folder=tmp_path)
    run(sys.executable, "-c", blocks(EXPORTING, "python")[0], folder=tmp_path)
    files, grafana = blocks(EXPORTING, "sql")
    with duckdb.connect() as database:
        found = database.sql(files.replace("'estimates", f"'{tmp_path}/estimates")).fetchall()
    assert sorted(row[1] for row in found) == ["a", "a", "b", "b"]
    with sqlite3.connect(tmp_path / "results.db") as database:
        shown = database.execute(grafana).fetchall()
    assert {(candidate, round(share, 1)) for _, candidate, share in shown} == {("a", 0.6), ("b", 0.3)}


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
    write_summary(counts, tmp_path / "summaries" / "closed.parquet")
    script = (
        blocks(NIGHTLY, "sh")[0].replace("/var/lib/hubbub-results", str(tmp_path)).replace("31 32 33 34 35 36 37", "3")
    )
    with serving(tmp_path / "metrics.toml") as (public, local):
        for metric in (homepage, definitions["command"]):
            bits = random_batch(metric, str(today - timedelta(days=3)))
            assert urllib3.request("POST", f"{public}/v1/reports", body=bits, headers=JSON).status == 202
        printed = run("sh", "-c", script, folder=tmp_path, HUBBUB_URL=local)
    assert printed.endswith("1 published, 2 withheld in site\n")
    pages = {path.relative_to(tmp_path / "site") for path in (tmp_path / "site").glob("*/????-??-??.html")}
    assert pages == {Path(f"homepage@{homepage.digest[:8]}/{closed}.html")}
