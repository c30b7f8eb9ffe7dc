"""Modes of the files that commands write, under the most and the least permissive umask: what holds data of persons is for its owner only."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

METRICS = """
[[metric]]
name = "page"
kind = "categorical"
description = "The page they start from."
owner = "owner@example.org"
categories = ["a", "b", "c"]
prob_p = 0.25
prob_q = 0.75
prob_f = 0.5
expires = 9000-01-01
"""
WRITE = """
import uuid
from contextlib import closing

import hubbub.cli
from hubbub import Batch, Client, load_definitions
from hubbub.summary import Reports, read_summary, write_reports, write_summary
from hubbub_aggregator.segments.object_store import ObjectStore
from hubbub_aggregator.segments.segment_store import open_segment_store

METRICS = "../metrics.toml"
metric = load_definitions(METRICS)["page"]


def run(command):
    hubbub.cli.main.main(command.split(), standalone_mode=False)


objects = ObjectStore.open("objects/store")
objects.probe()
with closing(open_segment_store("reports.db", objects, uuid.uuid4)) as store:
    for day in ("2024-06-01", "2024-06-02"):
        store.append([Batch(uuid.uuid4(), metric.name, metric.digest, day, bytes(2), bytes(2 * metric.row_bytes))])
    store.close_period(metric, "2024-06-01")
run(f"fold {METRICS} objects/store --out-dir folded/summaries --prometheus-textfile fold.prom")

run("db create --database created.db")
run("token create reader --scope read --database created.db")
run("db backup backup.db --database created.db")
run("db restore backup.db --database restored.db")

client = Client(METRICS, "app/state", "http://127.0.0.1:9")
client.set_consent("on")
client.record("page", "a")
client.close()
run("inspect app/state --html state.html")

run(f"simulate {METRICS} page --population ../population.csv --out simulated.parquet")
summary = read_summary("simulated.parquet")
write_summary(summary, "summary.parquet")
rows = bytes(summary.metric.row_bytes)
write_reports(Reports(summary.metric, [0], [list(rows)], []), "reports.parquet")
run(f"metrics catalogue {METRICS} --out-dir pages")
run("decode simulated.parquet --candidates ../candidates.txt --out results/decoded.csv")
"""
PUBLIC = ("results", "pages", "fold.prom")
"""What the umask decides: estimates and the catalogue of metrics, which are published, and figures for the node exporter, another user."""


def modes(place: Path) -> dict[str, int]:
    """Return the modes of all files and directories below a directory, by relative path."""
    return {str(path.relative_to(place)): stat.S_IMODE(path.lstat().st_mode) for path in place.rglob("*")}


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_files_with_data_of_persons_are_for_their_owner_only(tmp_path: Path, umask: int) -> None:
    place = tmp_path / "written"
    place.mkdir()
    for folder in ("results", "pages"):
        (place / folder).mkdir()
    (tmp_path / "metrics.toml").write_text(METRICS)
    (tmp_path / "candidates.txt").write_text("a\nb\nc\n")
    (tmp_path / "population.csv").write_text("value,count\na,500\nb,300\nc,200\n")
    environment = {
        name: value
        for name, value in os.environ.items()
        if name == "HUBBUB_CONSENT" or not name.startswith(("HUBBUB_", "DO_NOT"))
    }

    command = (sys.executable, "-c", WRITE)
    done = subprocess.run(command, cwd=place, umask=umask, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout, done.stderr)
    found = modes(place)
    expected = {path: 0o700 if (place / path).is_dir() else 0o600 for path in found if not path.startswith(PUBLIC)}
    assert len(expected) > 25
    assert {path: oct(found[path]) for path, mode in expected.items() if found[path] != mode} == {}
    assert {found[path] for path in ("results/decoded.csv", "pages/index.html", "fold.prom")} == {0o666 & ~umask}
