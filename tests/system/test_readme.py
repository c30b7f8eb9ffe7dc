"""The README: its code, commands, options and files, run against a real aggregator."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
import urllib3

from hubbub.metrics.definitions import load_definitions
from hubbub.summary import read_summary
from tests.support.pages import PageRun
from tests.support.paths import REPOSITORY

README = (REPOSITORY / "README.md").read_text()
CONTRIBUTING = (REPOSITORY / "CONTRIBUTING.md").read_text()
BIN = Path(sys.executable).parent
MAX_LINES = 65


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_readme_fits_on_one_screen() -> None:
    assert README.count("\n") <= MAX_LINES


def test_code_equals_the_type_checked_example() -> None:
    (shown,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert (REPOSITORY / "examples" / "embed.py").read_text().endswith(shown)


def card_of(address: str) -> str:
    """Return the text of the first card of `hubbub explore`, which is computed at the first visit."""
    while True:
        page = urllib3.request("GET", address).data.decode()
        text = " ".join(re.sub(r"<[^>]+>", " ", page.partition("<h2")[2]).split())
        if "report" in text:
            return text
        time.sleep(0.5)


@pytest.mark.slow
def test_commands_run_in_an_empty_folder_from_the_plan_to_the_browser(tmp_path: Path) -> None:
    with PageRun(README, tmp_path) as readme:
        output = readme.run()
        card = card_of(readme.explored)
    assert "homepage" in card
    assert re.search(r"\b1 report, still arriving\b", card), card
    assert read_summary(tmp_path / "summaries" / "homepage.parquet").num_reports == 1
    assert not (tmp_path / "state").exists()
    estimate = next(line for line in output.splitlines() if line.startswith("v1 "))
    share, low, high = re.findall(r"([\d.]+)%", estimate)
    assert f"estimates {share} %, between {low} % and {high} %" in README
    assert f"true share of v1 is {1 / sum(1 / i for i in range(1, 101)):.2%}".replace("%", " %") in README


def test_planned_parameters_are_those_of_the_example(tmp_path: Path) -> None:
    wishes = re.search(r"^hubbub (plan --epsilon .+) > metrics.toml$", README, flags=re.MULTILINE)
    assert wishes
    (tmp_path / "planned.toml").write_text(run(BIN / "hubbub", *shlex.split(wishes[1]), cwd=tmp_path))
    paths = (tmp_path / "planned.toml", REPOSITORY / "examples" / "metrics.toml")
    of_command, of_example = (load_definitions(path)["homepage"] for path in paths)
    assert of_command.lifetime_epsilon == of_example.lifetime_epsilon
    planned, shown = of_command.params, of_example.params
    sizes = (shown.num_bits, shown.num_hashes, shown.num_cohorts)
    assert (planned.num_bits, planned.num_hashes, planned.num_cohorts) == sizes
    assert planned.mechanism.probabilities == pytest.approx(shown.mechanism.probabilities, rel=1e-3)


def test_named_commands_files_and_make_targets_exist() -> None:
    listed = run(BIN / "hubbub", "--help", cwd=REPOSITORY)
    commands = set(re.findall(r"(?:^|`)hubbub ([a-z]+)", README, flags=re.MULTILINE))
    assert len(commands) > 4
    assert {name for name in commands if f"\n  {name} " not in listed} == set()
    paths = re.findall(r"\]\(([^)#]+)\)", README) + re.findall(r"`([\w-]+/[\w./-]+\.\w+)`", CONTRIBUTING)
    paths += re.findall(r"^\| `([^`]+)`", CONTRIBUTING, flags=re.MULTILINE)
    assert len(paths) > 30
    assert {path for path in paths if not (REPOSITORY / path).exists()} == set()
    makefile = (REPOSITORY / "Makefile").read_text()
    targets = set(re.findall(r"`make ([a-z-]+)`", README + CONTRIBUTING))
    assert len(targets) > 5
    for target in targets:
        assert re.search(rf"^(?:[\w.-]+ )*{target}(?: [\w.-]+)*:", makefile, re.MULTILINE), target
