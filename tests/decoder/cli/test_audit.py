"""`hubbub audit`: output, exit codes and errors."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hubbub.cli import main

SURVEY = """
[[metric]]
name = "survey"
kind = "boolean"
description = "d"
owner = "o"
prob_p = 0
prob_q = 1
prob_f = 0.5
expires = 2099-12-31
"""
CONFIDENCE = "--confidence=0.999999"
FAST = ("--trials=8000", CONFIDENCE)


@pytest.fixture
def survey(tmp_path: Path) -> str:
    file = tmp_path / "metrics.toml"
    file.write_text(SURVEY)
    return str(file)


def audit(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["audit", *arguments])


def test_audit_of_the_encoder_keeps_its_claim(survey: str) -> None:
    """The bound exceeds ln 3 with probability at most 1e-6."""
    done = audit(survey, *FAST)
    assert done.exit_code == 0, done.output
    assert "survey: epsilon of 1 report is at least" in done.output
    assert "which is within the claim 1.099" in done.output
    assert "the claim allows 3.00 to 1" in done.output
    assert "calls in quick succession: 8 batches of 55 new clients all differ" in done.output
    assert "the bound is valid, but loose; use --trials" in done.output


def test_refuted_claim_has_exit_code_1(survey: str) -> None:
    done = audit(survey, *FAST, "--claim=0.3")
    assert done.exit_code == 1
    assert "which exceeds the claim 0.300" in done.output
    assert "the claim is refuted" in done.output


def test_json_has_the_bound_and_the_replay_tests(survey: str) -> None:
    done = audit(survey, "survey", *FAST, "--json")
    (result,) = json.loads(done.stdout)
    assert result["metric"] == "survey"
    assert 0.3 < result["epsilon_lower_bound"] <= result["claim"] == pytest.approx(1.0986, abs=1e-4)
    assert result["refuted"] is False
    assert [test["refuted"] for test in result["replay_tests"]] == [False, False]
    assert result["trials"] in (8000, 12000)  # with a second candidate
    assert result["trials_of_bound"] == [2000, 2000]


def test_function_without_noise_is_refuted() -> None:
    code = f"{__name__}:without_noise"
    done = audit("--client", code, "--claim=1", "--value=true", "--value=false", *FAST)
    assert done.exit_code == 1
    assert "is refuted" in done.output


def without_noise(value: object, seed: int, clients: int, reports: int) -> list[list[list[int]]]:
    return [[[int(value is True)]] * reports] * clients


def test_command_without_noise_is_refuted(tmp_path: Path) -> None:
    program = tmp_path / "client.py"
    program.write_text(
        "import sys\nv, _, n, t = sys.argv[1:]\nprint((str(int(v == 'true')) + '\\n') * (int(n) * int(t)))\n"
    )
    done = audit("--command", f"{sys.executable} {program}", "--claim=1", "--value=true", "--value=false", *FAST)
    assert done.exit_code == 1
    assert "is refuted" in done.output


def test_plot_is_written(survey: str, tmp_path: Path) -> None:
    done = audit(survey, *FAST, "--plot", str(tmp_path / "curve.svg"))
    assert done.exit_code == 0, done.output
    assert "<svg" in (tmp_path / "curve.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Pass DEFINITIONS"),
        (("--claim=1",), "Pass DEFINITIONS"),
        (("--client=json:dumps", "--command=x"), "either --client or --command"),
        (("--client=json:dumps", "--claim=1", "--value=1", "--value=2"), "--value must be a JSON string"),
        (("--client=json:dumps", "--claim=1", "--value=a", "--value=b"), "--value must be a JSON string"),
        (("--client=json:dumps", "--claim=1", "--value=true", "--value=false"), "json:dumps"),
        (("FILE", "--hold=2"), "Leave out --hold"),
        (("FILE", "nothing"), "has no metric 'nothing'"),
        (("FILE", "--plot=curve.gif"), "must end in .svg, .png or .pdf"),
        (("FILE", "--trials=10"), "trials must be at least 4,000"),
        (("FILE", "--confidence=2"), "confidence must be in"),
        (("FILE", "--reports=0"), "0 is not in the range"),
        (("FILE", "--value=true", "--value=true"), "two or more different values"),
        (("FILE", "--value=true", '--value="a"'), "boolean metric accepts"),
    ],
)
def test_bad_arguments_are_rejected(arguments: tuple[str, ...], message: str, survey: str) -> None:
    done = audit(*(survey if each == "FILE" else each for each in arguments))
    assert done.exit_code in (1, 2)
    assert message in done.output
    assert "Traceback" not in done.output
