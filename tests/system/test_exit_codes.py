"""A command that did less than it was asked for exits with 1 and names on stderr what was missing (docs/reference/cli.md)."""

from __future__ import annotations

import random
import shlex
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import copytree, rmtree

import click
import pytest
from click.testing import CliRunner

from hubbub import Batch, Client, Metric, load_definitions
from hubbub.cli import main
from hubbub.sdk.storage.events import JOURNAL
from hubbub.summary import read_summary, summary_to_bytes, write_summary
from hubbub_aggregator.pipeline.folding import summary_type
from hubbub_aggregator.segments.object_store import ObjectStore
from hubbub_aggregator.segments.segment_file import SegmentFolder, segment_to_bytes
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.sql_store import SqlStore
from tests.aggregator.conftest import TODAY, running
from tests.support.paths import DATA

DONE, LESS, USAGE = 0, 1, 2

DEFINITIONS = """
[[metric]]
name = "page"
kind = "string"
description = "The page."
owner = "owner@example.org"
num_bits = 32
num_hashes = 2
num_cohorts = 8
prob_p = 0.25
prob_q = 0.75
prob_f = 0.5
expires = 2099-01-01

[[metric]]
name = "dark"
kind = "boolean"
description = "Whether it is dark."
owner = "owner@example.org"
prob_p = 0.25
prob_q = 0.75
prob_f = 0.5
expires = 2099-01-01
"""
LOUD = """
[[metric]]                  # blocked by the default policy
name = "loud"
kind = "boolean"
description = "Whether it is loud."
owner = "owner@example.org"
prob_p = 0
prob_q = 1
prob_f = 0.001
expires = 2099-01-01
"""


@dataclass(frozen=True)
class Row:
    """A command line, with {url} of an aggregator, and what it ends with. `missing` says what it could not do; "" if nothing."""

    command: str
    missing: str
    code: int
    stderr: str

    def __str__(self) -> str:
        return f"{self.command.split()[0]}-{self.missing or 'nothing'}".replace(" ", "-")


ADAPTER = f"{sys.executable} unknown.py"
TABLE = [
    Row("associate dark.parquet", "individual reports", LESS, "counts of bits do not show which values came together"),
    Row("associate page.parquet none.parquet", "a second file is no argument", USAGE, "unexpected extra argument"),
    Row("audit metrics.toml dark nosuch", "a metric", LESS, "has no metric 'nosuch'"),
    Row("audit metrics.toml dark --trials 100 --command false", "reports of the client", LESS, "dark could not be audited: "),
    Row("compare page.parquet none.parquet --candidates names.txt", "a file", LESS, "none.parquet: cannot be read"),
    Row("compare page.parquet damaged.parquet --candidates names.txt", "a damaged file", LESS, "damaged.parquet: "),
    Row("compare page.parquet other.parquet", "candidates", LESS, "candidates"),
    Row("compare page.parquet other.parquet --candidates names.txt --plot none/x.svg", "a plot", LESS, "none"),
    Row("conformance --rule 101 --command '{adapter}'", "a rule that is named", LESS, "the adapter does not claim them: 101"),
    Row("conformance --rule 9999 --command '{adapter}'", "a rule that does not exist", USAGE, "--rule 9999"),
    Row("db check --database damaged.db", "a readable database", LESS, "damaged.db"),
    Row("db check --database none.db", "a database", LESS, "none.db: the file does not exist"),
    Row("db backup kept.db --database reports.db", "a place for the backup", LESS, "exists already"),
    Row("db restore damaged.db --database new.db", "a whole backup", LESS, "damaged.db"),
    Row("decode page.parquet none.parquet --candidates names.txt", "a file of several", LESS, "none.parquet: cannot be read"),
    Row("decode page.parquet damaged.parquet --candidates names.txt", "a damaged file of several", LESS, "damaged.parquet: "),
    Row("decode page.parquet", "candidates", LESS, "candidates"),
    Row("decode empty.parquet --candidates names.txt", "reports", LESS, "report"),
    Row("decode dark.parquet --method lasso", "an effect of --method", LESS, "Leave out method (--method)"),
    Row("decode dark.parquet --candidates names.txt", "an effect of --candidates", LESS, "leave candidates out"),
    Row("decode dark.parquet --more-candidates names.txt", "an effect of --more-candidates", USAGE, "Leave out --more-candidates"),
    Row("decode page.parquet --candidates names.txt --out none/x.csv", "a directory for the result", LESS, "none"),
    Row("decode-all summaries --candidates lists --out-dir all", "", DONE, ""),
    Row("decode-all summaries --out-dir o1", "candidates of one metric", LESS, "skipped: page@"),
    Row("decode-all with_empty --candidates lists --out-dir o2", "reports of one summary", LESS, "no report has arrived"),
    Row("decode-all with_damaged --candidates lists --out-dir o3", "a damaged summary", LESS, "failed: with_damaged/damaged.parquet"),
    Row("decode-all none --out-dir o4", "summaries", LESS, "none is not a directory"),
    Row("decode-all summaries --candidates lists --database all.sqlite", "", DONE, ""),
    Row("decode-all summaries --candidates lists --database none/x.sqlite", "a directory of the database", LESS, "there is no directory none"),
    Row("decode-all summaries --candidates lists", "a place for the results", USAGE, "--database"),
    Row("demo --out-dir names.txt", "a directory for the pages", USAGE, "names.txt"),
    Row("discover page.parquet", "a discover table", LESS, "the definition has no discover table"),
    Row("discover none.parquet", "a file", LESS, "none.parquet: cannot be read"),
    Row("doctor metrics.toml --database none.db --port 0 --refusal-window 0", "a database", LESS, "Error: none.db does not exist"),
    Row("encode metrics.toml dark maybe", "a value of the metric", LESS, "dark: "),
    Row("encode metrics.toml nosuch a", "a metric", LESS, "has no metric 'nosuch'"),
    Row("explore none --port 0", "a directory of summaries", LESS, "none is not a directory"),
    Row("fold metrics.toml segments --keep-segments", "", DONE, ""),
    Row("fold metrics.toml void", "segments", LESS, "void has no segments, so nothing was counted"),
    Row("fold metrics.toml none", "a directory of segments", LESS, "none is not a directory"),
    Row("fold dark.toml segments", "a definition", LESS, "1 of 2 folders failed: page 2024-06-15: dark.toml has no definition"),
    Row("fold metrics.toml damaged_segments", "a damaged segment", LESS, "1 of 2 folders failed: page 2024-06-15: "),
    Row("import google-rappor --params none.csv --counts-file none.csv --out i.parquet", "a file", LESS, "none.csv cannot be read"),
    Row("import google-rappor --params {google}/params.csv --counts-file short.csv --out i.parquet", "rows", LESS, "short.csv"),
    Row("import google-rappor --params p.csv --reports-file bad.csv --out i.parquet", "a row", LESS, "Pass --drop-invalid-rows"),
    Row("import google-rappor --params p.csv --reports-file bad.csv --out i.parquet --drop-invalid-rows", "", DONE, "left out of bad.csv: 1 row with invalid bits"),
    Row("inspect state", "", DONE, ""),
    Row("inspect damaged_state", "damaged records", LESS, "damaged: the epsilon, reports and uploads in them are lost"),
    Row("inspect damaged_state --json", "damaged records in JSON", LESS, "damaged: the epsilon, reports and uploads in them are lost"),
    Row("inspect damaged_state --html page.html", "damaged records on a page", LESS, "damaged: the epsilon, reports and uploads in them are lost"),
    Row("inspect state --html none/page.html", "a page", LESS, "none/page.html"),
    Row("inspect none --identity new", "a state directory", LESS, "none holds no client's state"),
    Row("inspect none --identity keep", "a state directory", LESS, "none holds no client's state"),
    Row("metrics show metrics.toml dark nosuch", "a metric of several", LESS, "has no metric 'nosuch'"),
    Row("metrics catalogue metrics.toml --out-dir names.txt", "a directory for the pages", LESS, "cannot make names.txt/metric"),
    Row("metrics notice metrics.toml --app A --recipient R", "", DONE, ""),
    Row("metrics notice loud.toml --app A --recipient R", "a metric in the text", LESS, "loud: the default Policy blocks this metric"),
    Row("metrics check loud.toml", "a metric that clients report", LESS, "loud: "),
    Row("plan metrics.toml nosuch", "a metric", LESS, "has no metric 'nosuch'"),
    Row("plan --epsilon 1 --reports 1000 --html none/page.html", "a page", LESS, "none/page.html"),
    Row("publish with_damaged --candidates lists --out-dir site", "a damaged summary", LESS, "failed: with_damaged/damaged.parquet"),
    Row("publish closed --out-dir site1", "candidates of a closed period", LESS, "no candidates: add page.txt to the directory of --candidates, or pass --withhold page"),
    Row("publish closed --candidates lists --out-dir site3", "", DONE, "waiting: dark@"),
    Row("publish summaries --candidates lists --out-dir site4", "a period of each summary", LESS, "the file names no period"),
    Row("publish summaries --candidates lists --out-dir site2 --withhold page --withhold dark", "", DONE, "withheld: dark@"),
    Row("pull {url} dark --out p0.parquet --period 2024-06-15", "", DONE, ""),
    Row("pull {url} dark --out p1.parquet --period 2024-06-15 --period 2024-06-14", "a period of several", LESS, "the aggregator has no reports of 2024-06-14"),
    Row("pull {url} dark --out p2.parquet --period 2024-06-15 --period 2024-06-14 --allow-missing", "", DONE, "no reports of 2024-06-14"),
    Row("pull {url} page --out p3.parquet", "reports of the metric", LESS, "the aggregator has no reports of page"),
    Row("pull {url} page --out p4.parquet --json", "reports of the metric in JSON", LESS, "the aggregator has no reports of page"),
    Row("pull {url} dark --content reports --out p5.parquet", "retained reports", LESS, "answered 404"),
    Row("pull http://127.0.0.1:9 dark --out p6.parquet", "an aggregator", LESS, "no response from http://127.0.0.1:9"),
    Row("serve none.toml", "definitions", LESS, "none.toml: cannot be read"),
    Row("serve metrics.toml --port 0 --database none.db", "a database", LESS, "none.db: the file does not exist"),
    Row("simulate metrics.toml dark --population none.csv --out d.parquet", "a population", LESS, "none.csv"),
    Row("simulate metrics.toml dark --reports 9 --distribution uniform --values 7 --out d.parquet", "an effect of --values", LESS, "--values"),
    Row("simulate metrics.toml dark --reports 9 --distribution uniform --out d.parquet --truth-out none/t.csv", "a second file", LESS, "none"),
    Row("watch dark.parquet none.parquet --database watch.sqlite", "a file", LESS, "none.parquet: cannot be read"),
    Row("watch dark.parquet dark.parquet --database none/x.sqlite", "a directory of the database", LESS, "there is no directory none"),
    Row("survey none.csv --design warner=.7", "a file", LESS, "none.csv cannot be read"),
    Row("survey short.csv --design warner=.7", "columns", LESS, "short.csv: line 1 must name the columns"),
    Row("token revoke nosuch --database reports.db", "a token", LESS, "nosuch"),
    Row("token rotate nosuch --database reports.db", "a token", LESS, "nosuch"),
    Row("token create old --scope read --database reports.db", "a free name", LESS, "exists already"),
]  # fmt: skip


def batch_of(metric: Metric, number: int) -> Batch:
    rows = random.Random(number).randbytes(metric.row_bytes)  # noqa: S311  (any bits will do)
    rows = (int.from_bytes(rows, "little") % (1 << metric.num_bits)).to_bytes(metric.row_bytes, "little")
    return Batch(uuid.UUID(int=number, version=4), metric.name, metric.digest, TODAY, b"\0", rows)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with definitions, summaries, states, a database and segments: whole, empty and damaged ones."""
    root = tmp_path_factory.mktemp("place")

    def run(line: str) -> None:
        done = CliRunner().invoke(main, shlex.split(line), catch_exceptions=False)
        assert done.exit_code == 0, done.output

    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(root)
        write_files(root)
        simulate = "--distribution uniform --seed"
        run(f"simulate metrics.toml page --reports 2000 --values 3 {simulate} 1 --out page.parquet")
        run(f"simulate metrics.toml page --reports 2000 --values 3 {simulate} 2 --out other.parquet")
        run(f"simulate metrics.toml dark --reports 2000 {simulate} 1 --out dark.parquet")
        run("token create old --scope read")
        Path("hubbub.db").rename("reports.db")
    metrics = load_definitions(root / "metrics.toml")
    (root / "closed").mkdir()
    for metric in ("page", "dark"):
        counts = replace(read_summary(root / f"{metric}.parquet").bit_counts(), periods=("2026-03-02",))
        write_summary(replace(counts, closed=metric == "page"), root / "closed" / f"{metric}.parquet")
    empty = summary_to_bytes(summary_type(metrics["page"]).empty(metrics["page"]))
    (root / "empty.parquet").write_bytes(empty)
    for name in ("summaries", "with_empty", "with_damaged"):
        (root / name).mkdir()
        for metric in ("page", "dark"):
            (root / name / f"{metric}.parquet").write_bytes((root / f"{metric}.parquet").read_bytes())
    (root / "with_empty" / "page.parquet").write_bytes(empty)
    (root / "with_damaged" / "damaged.parquet").write_text("damaged")
    write_state(root)
    objects = ObjectStore.open(str(root / "segments"))
    for number, version in enumerate(metrics.values()):
        folder = SegmentFolder(version.name, version.digest, TODAY).path
        objects.create(f"{folder}/segments/1.parquet", segment_to_bytes([batch_of(version, number)]))
    copytree(root / "segments", root / "damaged_segments")
    next((root / "damaged_segments").glob("metric=page/**/1.parquet")).write_text("damaged")
    return root


def write_files(root: Path) -> None:
    (root / "metrics.toml").write_text(DEFINITIONS)
    (root / "dark.toml").write_text("[[metric]]" + DEFINITIONS.split("[[metric]]")[2])
    (root / "loud.toml").write_text(DEFINITIONS + LOUD)
    for folder in ("lists", "void"):
        (root / folder).mkdir()
    for file in ("names.txt", "lists/page.txt"):
        (root / file).write_text("v1\nv2\n")
    for file in ("damaged.parquet", "damaged.db", "kept.db", "short.csv"):
        (root / file).write_text("damaged")
    (root / "p.csv").write_text("k,h,m,p,q,f\n8,2,4,.25,.75,.5\n")
    (root / "bad.csv").write_text("client,cohort,bloom,irr\nc1,0,,00000011\nc0,0,,0\n")
    (root / "unknown.py").write_text("import sys\nfor _ in sys.stdin:\n    print('{\"unknown\": true}', flush=True)\n")


def write_state(root: Path) -> None:
    with Client(DATA / "metrics.toml", root / "state", "http://127.0.0.1:9") as client:
        client.set_consent("on")
        client.record("homepage", "https://example.org/")
    copytree(root / "state", root / "damaged_state")
    journal = root / "damaged_state" / JOURNAL
    data = bytearray(journal.read_bytes())
    data[len(data) // 2] ^= 1
    journal.write_bytes(data)


@pytest.fixture(scope="module")
def url(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of an aggregator that has a report of `dark`, of one day."""
    metrics = load_definitions(place / "metrics.toml")
    store = SqlStore.open(tmp_path_factory.mktemp("served") / "reports.db")
    with running(metrics, store, Settings(local_reads_without_token=True)) as aggregator:
        assert aggregator.post(batch_of(metrics["dark"], 1)).status == 202
        yield aggregator.url
    store.close()


@pytest.mark.parametrize("row", TABLE, ids=str)
def test_command_that_did_less_exits_with_1_and_names_it(
    row: Row, place: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("NO_COLOR", "1")
    line = row.command.format(url=url, adapter=ADAPTER, google=DATA / "google_rappor")
    done = CliRunner().invoke(main, shlex.split(line), prog_name="hubbub")
    if (place / "none").exists():
        rmtree(place / "none")
        pytest.fail("a path that is missing was made")
    assert done.exit_code == row.code, f"{done.output}\n{done.exception!r}"
    assert row.stderr in done.stderr, done.output
    assert "Traceback" not in done.stderr
    assert ("Error: " in done.stderr) <= (row.code != DONE)


def test_each_command_has_a_row() -> None:
    rows = [replace(row, command=row.command.split()[0]) for row in TABLE]
    assert {row.command for row in rows if row.code != DONE} == set(main.list_commands(click.Context(main)))
    assert all((row.code == DONE) == (not row.missing) for row in rows)
