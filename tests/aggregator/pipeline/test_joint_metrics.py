"""Joint metrics in an aggregator: batches of all parts' bits, retained reports, pages, and the warning without retention."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hubbub import Batch, Definitions, Metric, UnaryResponse
from hubbub.metrics.periods import Period, PeriodKind
from hubbub.summary import Reports, read_reports
from hubbub.wire.batch import Report
from hubbub.wire.dates import parse_period
from hubbub_aggregator.store.sql_store import SqlStore
from hubbub_decoder import associate, simulate
from hubbub_decoder.data.pull import pull_reports
from tests.client.metrics.test_joint import TOML

if TYPE_CHECKING:
    from tests.aggregator.conftest import MakeBatch, StartAggregator

TODAY = "2024-06-15"
CHANCES = {"prob_p": 0.2, "prob_q": 0.8, "prob_f": 0.25}
DEVICE = Metric.joint(
    "device",
    (
        Metric.boolean("paid", UnaryResponse(**CHANCES)),
        Metric.categorical("os", ("linux", "macos", "windows"), UnaryResponse(**CHANCES)),
    ),
)


@pytest.fixture
def definitions() -> Definitions:
    return Definitions([DEVICE])


def test_retained_joint_reports_are_pulled_and_associated(
    start: StartAggregator, store: SqlStore, tmp_path: Path
) -> None:
    """2,000 reports go through HTTP, the database and a report file; the parts depend on each other."""
    aggregator = start(store, keep_reports={"device": 2}, fold_interval=0.02)
    clients = {("true", "macos"): 1000, ("false", "linux"): 1000}
    sent = simulate(DEVICE, clients, np.random.default_rng(1), form=Reports)
    period = Period(parse_period(PeriodKind.DAY, TODAY).start, PeriodKind.DAY)
    for rows in np.array_split(np.arange(2000), 4):
        reports = [Report.from_int(0, int(sent.rows[row, 0]), 4) for row in rows]
        assert aggregator.post(Batch.from_reports(DEVICE, period, reports)).status == 202
    deadline = time.monotonic() + 30
    while aggregator.stored() < 2000 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert aggregator.get("/v1/metrics").json["metrics"][0]["parts"][1]["name"] == "os"
    page = aggregator.get("/metric/device")
    assert page.status == 200
    assert b"Probabilities of os" in page.body
    pulled = pull_reports(aggregator.url, "device", tmp_path / "device.parquet", periods=[TODAY])
    assert pulled.num_reports == 2000
    kept = read_reports(tmp_path / "device.parquet")
    assert sorted(kept.rows[:, 0].tolist()) == sorted(sent.rows[:, 0].tolist())
    assert associate(kept).test.p_value < 1e-6


def test_batches_with_bits_beyond_the_parts_are_refused(
    start: StartAggregator, store: SqlStore, make_batch: MakeBatch
) -> None:
    aggregator = start(store)
    assert aggregator.post(make_batch(DEVICE, rows=b"\x1f\x00\x00")).status == 422  # five bits; the parts have four
    assert aggregator.post(make_batch(DEVICE)).status == 202


@pytest.mark.parametrize("kept", [False, True])
def test_serve_warns_if_joint_reports_are_not_kept(kept: bool, tmp_path: Path) -> None:
    (tmp_path / "metrics.toml").write_text(TOML)
    options = ["--keep-reports", "flight=30"] if kept else []
    command = [sys.executable, "-m", "hubbub", "serve", "metrics.toml", "--print-config", *options]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    warned = "flight: a joint metric without --keep-reports flight=N" in ran.stdout + ran.stderr
    assert warned is not kept
