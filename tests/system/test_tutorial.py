"""The tutorial: its commands and programs run in order, and print what the page shows."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from hubbub import load_definitions
from hubbub.summary import read_summary
from tests.support.pages import PageRun
from tests.support.paths import DOCS, REPOSITORY

PAGE = (DOCS / "tutorial.md").read_text()


def test_programs_equal_the_type_checked_examples() -> None:
    programs = re.findall(r"as `([\w.]+\.py)`:\n\n```python\n(.*?)```", PAGE, flags=re.DOTALL)
    assert [name for name, _ in programs] == ["visitors.py", "decode.py"]
    for name, shown in programs:
        assert (REPOSITORY / "examples" / name).read_text().endswith(f'"""\n\n{shown}'), name


def test_chances_of_ones_are_those_of_the_metric() -> None:
    params = load_definitions(REPOSITORY / "examples" / "metrics.toml")["homepage"].params
    one, zero = (
        params.mechanism.prob_q * response + params.mechanism.prob_p * (1 - response)
        for response in (params.mechanism.permanent_q, params.mechanism.permanent_p)
    )
    assert f"sent as one with probability {one:.2f}" in PAGE
    assert f"About {zero * (params.num_bits - 1):.0f} of the other {params.num_bits - 1} bits" in PAGE


@pytest.mark.slow
def test_tutorial_runs_from_the_definition_to_the_estimates(tmp_path: Path) -> None:
    with PageRun(PAGE, tmp_path) as tutorial:
        tutorial.run()
    assert read_summary(tmp_path / "fifty.parquet").num_reports == 50
    assert (tmp_path / "homepage.svg").exists()
    with (tmp_path / "homepage.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["detected"] == "True"]
    absent = [row["candidate"] for row in rows if int(row["candidate"][1:]) > 100]
    assert len(rows) > 20
    assert len(absent) <= 0.2 * len(rows)
    assert min(float(row["high"]) for row in rows[:1]) > 1 / sum(1 / i for i in range(1, 101)) > float(rows[0]["low"])
