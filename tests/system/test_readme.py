"""The README: its code, commands, options and files, run against a real aggregator."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from hubbub.metrics.definitions import load_definitions
from hubbub.summary import read_summary
from tests.support.pages import PageRun
from tests.support.paths import REPOSITORY

README = (REPOSITORY / "README.md").read_text()
CONTRIBUTING = (REPOSITORY / "CONTRIBUTING.md").read_text()
BIN = Path(sys.executable).parent
MAX_LINES = 65

DELIVER = """
from hubbub.testing import deliver
print(deliver(client), "tried,", client.accounting().acknowledged, "acknowledged")
"""


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_readme_fits_on_one_screen() -> None:
    assert README.count("\n") <= MAX_LINES


def test_code_equals_the_type_checked_example() -> None:
    (shown,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert (REPOSITORY / "examples" / "embed.py").read_text().endswith(shown)


@pytest.mark.slow
def test_commands_and_client_run_from_the_plan_to_the_estimates(tmp_path: Path) -> None:
    with PageRun(README, tmp_path, after_python=DELIVER) as readme:
        output = readme.run()
    estimate = next(line for line in output.splitlines() if line.startswith("v1 "))
    share, low, high = re.findall(r"([\d.]+)%", estimate)
    assert f"estimates {share} %, between {low} % and {high} %" in README
    assert f"true share of v1 is {1 / sum(1 / i for i in range(1, 101)):.2%}".replace("%", " %") in README
    assert "1 tried, 1 acknowledged\n" in output
    assert (tmp_path / "state" / "secret").stat().st_size == 32
    shown = run(BIN / "hubbub", "inspect", "state", cwd=tmp_path)
    assert "homepage" in shown
    assert "4.000" in shown
    sent = run(BIN / "hubbub", "inspect", "state", "--json", cwd=tmp_path)
    assert json.loads(json.loads(sent)["last_sent"][0])["metric"] == "homepage"
    assert read_summary(tmp_path / "homepage.parquet").num_reports == 1
    assert (tmp_path / "homepage.csv").read_text().startswith("candidate,share")


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
