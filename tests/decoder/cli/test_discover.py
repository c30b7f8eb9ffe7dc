"""`hubbub discover`: table, JSON, saved estimates and errors."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hubbub.cli import main

DEFINITIONS = """
[[metric]]
name = "words"
kind = "string"
description = "d"
owner = "o"
expires = 2099-12-31
num_bits = 64
num_hashes = 1
num_cohorts = 64
prob_p = 0
prob_q = 1
permanent_p = 0.0025
permanent_q = 0.5
[metric.discover]
longest = 5
step = 2
alphabet = "abcdefgh"
held_out = 0.2
"""
POPULATION = "value,count\nabc,20000\nabcd,10000\nhead,9000\na,6000\nabcdefgh,7000\n,20000\n"


def run(*arguments: str | int | Path) -> Result:
    return CliRunner().invoke(main, list(map(str, arguments)))


@pytest.fixture
def summary(tmp_path: Path) -> Path:
    """Summary of shares that are above 12 standard errors of each group."""
    (tmp_path / "metrics.toml").write_text(DEFINITIONS)
    (tmp_path / "population.csv").write_text(POPULATION)
    out = tmp_path / "summary.parquet"
    made = run(
        "simulate", tmp_path / "metrics.toml", "words", "--population", tmp_path / "population.csv", "--out", out
    )
    assert made.exit_code == 0, made.output
    return out


def test_discover_prints_the_found_strings(summary: Path) -> None:
    done = run("discover", summary)
    assert done.exit_code == 0, done.output
    for word in ("abc", "abcd", "head", "a "):
        assert f"\n{word}" in done.stdout
    assert re.search("longer than `longest`, found in part and not tested: .*abcdef", done.stdout)
    assert "searched bit counts of 72,000 reports" in done.stderr
    said = " ".join(done.stdout.split())
    assert re.match(r"words: 72,000 reports, of which 1\d,\d{3} \(held out\) give these shares; ", said)
    assert "Detection limit: " in said
    assert "hubbub plan METRICS.toml NAME --reports N" in said
    assert " needs " not in said.partition("Detection limit: ")[2].partition("longer than")[0]


def test_discover_saves_and_prints_json(summary: Path, tmp_path: Path) -> None:
    out = tmp_path / "found.csv"
    done = run("discover", summary, "--json", "--out", out, "--beam", "50", "--target", "population")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert "abcdef" in document["truncated"]
    detected = {estimate["candidate"] for estimate in document["decoding"]["estimates"] if estimate["detected"]}
    assert detected >= {"abc", "abcd", "head", "a"}
    with out.open(newline="") as file:
        assert {row["candidate"] for row in csv.DictReader(file) if row["detected"].lower() == "true"} == detected


@pytest.mark.slow
def test_discover_says_what_a_smaller_beam_costs(summary: Path, tmp_path: Path) -> None:
    shares = []
    for beam in (10, 999):
        said = " ".join(run("discover", summary, "--beam", beam).stderr.split())
        assert f"--beam {beam}: the search kept fewer than the default 1,000 prefixes after each group" in said
        assert "Leave out --beam to find rarer strings." in said
        found = re.search(r"if its share is from ([\d.]+) %, with the default from ([\d.]+) %", said)
        assert found is not None
        shares.append(tuple(map(float, found.groups())))
    assert shares[0][0] > 1.5 * shares[0][1]
    assert shares[1][0] == pytest.approx(shares[1][1], rel=0.01)
    assert "--beam" not in run("discover", summary).stderr
    planned = json.loads(run("plan", tmp_path / "metrics.toml", "words", "--reports", "72000", "--json").stdout)[0]
    assert shares[0][1] == pytest.approx(100 * planned["detection_limit"], rel=0.01)
    assert planned["beam"] == 1000
    assert "1,000 (hubbub discover --beam)" in run("plan", tmp_path / "metrics.toml", "words", "--explain").stdout


def test_discover_rejects_a_metric_without_the_table(tmp_path: Path) -> None:
    (tmp_path / "metrics.toml").write_text(DEFINITIONS.split("[metric.discover]")[0])
    out = tmp_path / "summary.parquet"
    run("simulate", tmp_path / "metrics.toml", "words", "--distribution", "zipf1", "--reports", "100", "--out", out)
    done = run("discover", out)
    assert done.exit_code == 1
    assert "words: the definition has no discover table" in done.output


def test_decode_without_a_list_names_discover(summary: Path) -> None:
    refused = run("decode", summary)
    assert refused.exit_code != 0
    assert "Without a list, `hubbub discover` finds frequent strings." in str(refused.output) + str(refused.exception)
