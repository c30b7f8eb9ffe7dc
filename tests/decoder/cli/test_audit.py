"""`hubbub audit`: output, exit codes and errors."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from hubbub.cli import main
from hubbub_decoder.audit.grey_box import encoder_client
from tests.support.paths import REPOSITORY

ADAPTER = REPOSITORY / "examples" / "conformance_adapter.py"

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
SECOND = SURVEY.replace("survey", "second")
JOINT = """
[[metric]]
name = "visit"
kind = "joint"
hold = 2
description = "d"
owner = "o"
expires = 2099-12-31

[[metric.part]]
name = "paid"
kind = "boolean"
prob_p = 0
prob_q = 1
prob_f = 0.5

[[metric.part]]
name = "os"
kind = "categorical"
categories = ["a", "b"]
prob_p = 0
prob_q = 1
prob_f = 0.5
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


def test_refuted_claim_has_exit_code_3(survey: str) -> None:
    done = audit(survey, *FAST, "--claim=0.3")
    assert done.exit_code == 3
    assert "which exceeds the claim 0.300" in done.output
    assert "the client is refuted" in done.output


def test_client_that_fails_has_exit_code_1(survey: str) -> None:
    done = audit(survey, *FAST, "--client=json:dumps")
    assert done.exit_code == 1
    assert "Error: survey could not be audited: json:dumps(" in done.output


def test_joint_metric_is_audited_at_the_sum_of_the_losses_of_its_parts(tmp_path: Path) -> None:
    file = tmp_path / "metrics.toml"
    file.write_text(JOINT)
    done = audit(str(file), *FAST)
    assert done.exit_code == 0, done.output
    assert "which is within the claim 3.296" in done.output  # 3 ln 3
    assert "noise of different epochs: independent in" in done.output
    assert "noise of the parts: independent in" in done.output


@pytest.mark.parametrize(("client", "code"), [("two_surveys", 0), ("two_surveys_of_one_coin", 3), ("broken_survey", 3)])
def test_several_metrics_of_a_client_are_tested_together(tmp_path: Path, client: str, code: int) -> None:
    """Each of two coins keeps ln 3. If both have the same noise, their equality is sure; a client of half of the metrics is refuted as well."""
    file = tmp_path / "metrics.toml"
    file.write_text(SURVEY + SECOND)
    done = audit(str(file), *FAST, f"--client={__name__}:{client}", "--json")
    first, second, both = json.loads(done.stdout)
    assert done.exit_code == code, done.output
    assert [first["metric"], second["metric"], both["metrics"]] == ["survey", "second", ["survey", "second"]]
    assert both["refuted"] == (client != "two_surveys")
    assert both["noise_tests"][0]["refuted"] == (client == "two_surveys_of_one_coin")
    assert first["refuted_by_bound"] is False
    assert second["refuted_by_bound"] == (client == "broken_survey")


def two_surveys(values: list[Any], seed: int, clients: int, streams: int = 2) -> Any:
    """Cohorts and bits of two surveys: a coin replaces an answer with probability 1/2, once for each answer. streams : 1 or 2, of the noise."""
    rng = np.random.default_rng(seed)
    noise = {value: rng.random((2, clients, streams)) < 0.5 for value in dict.fromkeys(values)}
    bits = [np.where(noise[value][0], noise[value][1], [answer is True for answer in value]) for value in values]
    return np.zeros((clients, 2), int), np.stack(bits, axis=1)


def two_surveys_of_one_coin(values: list[Any], seed: int, clients: int) -> Any:
    return two_surveys(values, seed, clients, streams=1)


def broken_survey(values: list[Any], seed: int, clients: int) -> Any:
    """The second survey has no noise."""
    cohorts, bits = two_surveys(values, seed, clients)
    bits[:, :, 1] = [value[1] is True for value in values]
    return cohorts, bits


def test_metric_for_which_the_arguments_are_wrong_does_not_hide_a_refutation(tmp_path: Path) -> None:
    """Three reports are no epochs of two reports. The survey with more than three times the claim is refuted before."""
    file = tmp_path / "metrics.toml"
    file.write_text(SURVEY + JOINT)
    done = audit(str(file), *FAST, "--claim=0.3", "--reports-per-client=3")
    assert done.exit_code == 3
    assert "visit could not be audited: num_reports must be at most hold = 2" in done.output


def test_refutation_is_reported_beside_a_metric_that_cannot_be_audited(tmp_path: Path) -> None:
    file = tmp_path / "metrics.toml"
    file.write_text(SURVEY + SECOND)
    done = audit(str(file), *FAST, f"--client={__name__}:fails_for_the_first", "--json")
    first, second = json.loads(done.stdout)
    assert done.exit_code == 3
    assert "no battery" in first["error"]
    assert second["refuted"] is True


def fails_for_the_first(values: list[Any], seed: int, clients: int) -> Any:
    if values[0][0] is not None:
        raise RuntimeError("no battery")
    return broken_survey(values, seed, clients)


def test_json_has_the_bound_and_the_tests_of_the_noise(survey: str) -> None:
    done = audit(survey, "survey", *FAST, "--json")
    (result,) = json.loads(done.stdout)
    assert result["metric"] == "survey"
    assert 0.3 < result["epsilon_lower_bound"] <= result["claim"] == pytest.approx(1.0986, abs=1e-4)
    assert result["refuted"] is False
    assert not any(test["refuted"] for test in result["noise_tests"])
    assert {"impossible reports", "lags", "grey box"} < {test["name"] for test in result["noise_tests"]}
    assert result["trials"] == 5998  # 666 of each of 3 values, and 2,000 of each of 2
    assert result["trials_of_bound"] == [2000, 2000]


def test_function_without_noise_is_refuted() -> None:
    code = f"{__name__}:without_noise"
    done = audit("--client", code, "--claim=1", "--value=true", "--value=false", *FAST)
    assert done.exit_code == 3
    assert "is refuted" in done.output


def without_noise(values: list[object], seed: int, clients: int) -> list[list[list[int]]]:
    return [[[int(value is True)] for value in values]] * clients


def test_adapter_keeps_its_claim(survey: str) -> None:
    """The bound exceeds ln 3 with probability at most 1e-6."""
    done = audit(survey, "--trials=4000", CONFIDENCE, "--command", shlex.join([sys.executable, str(ADAPTER)]))
    assert done.exit_code == 0, done.output
    assert "which is within the claim 1.099" in done.output
    assert "not run: the audit draws the secrets. Rule 114" in done.output


FAULTS = {
    "the second has no noise": 'noise = 0 if name == "second" else draw()',
    "both have the noise of the secret": "noise = Random(request['secret']).choice((0, 1, 2, 3))",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faulty_adapter_of_several_metrics_is_refuted(tmp_path: Path, fault: str) -> None:
    """A coin replaces an answer with probability 1/2. If two metrics have the coins of one stream, their equality is sure."""
    program, file = tmp_path / "adapter.py", tmp_path / "metrics.toml"
    file.write_text(SURVEY + SECOND)
    program.write_text(
        f"""
import json, sys
from random import Random, randrange
def draw(): return randrange(4)
for line in sys.stdin:
    request = json.loads(line)
    name = request["definition"]["name"]
    {FAULTS[fault]}
    bit = noise >> 1 if noise & 1 else request["value"] is True
    print(json.dumps({{"cohort": 0, "bits": "01" if bit else "00"}}))
"""
    )
    done = audit(str(file), *FAST, "--command", shlex.join([sys.executable, str(program)]), "--json")
    first, second, both = json.loads(done.stdout)
    assert done.exit_code == 3, done.output
    assert first["refuted_by_bound"] is False
    assert second["refuted_by_bound"] == (fault == "the second has no noise")
    assert both["noise_tests"][0]["refuted"] == (fault == "both have the noise of the secret")


def test_grey_box_client_with_a_rare_true_report_is_refuted(tmp_path: Path) -> None:
    """8,000 clients do not show a true report of two thousandths; one of 14,000 sets of coins does, but for a probability of 1e-12."""
    survey = tmp_path / "metrics.toml"
    survey.write_text(SURVEY.replace("prob_p = 0\nprob_q = 1", "prob_p = 0.25\nprob_q = 0.75"))
    for function, code in (("sound_report", 0), ("report_with_a_rare_truth", 3)):
        done = audit(str(survey), *FAST, f"--grey-box={__name__}:{function}", "--json")
        assert done.exit_code == code, done.output
        (result,) = json.loads(done.stdout)
        assert [test["name"] for test in result["noise_tests"] if test["refuted"]] == ["grey box"] * (code == 3)


def sound_report(metric: Any, value: Any, epoch: int | None, secret: Any, random_bytes: Any) -> tuple[int, int]:
    return encoder_client(metric, value, epoch, secret, random_bytes)


def report_with_a_rare_truth(
    metric: Any, value: Any, epoch: int | None, secret: Any, random_bytes: Any
) -> tuple[int, int]:
    bare = int.from_bytes(random_bytes(2), "little") < 128
    cohort, bits = sound_report(metric, value, epoch, secret, random_bytes)
    return cohort, int(value is True) if bare else bits


def test_plot_is_written(survey: str, tmp_path: Path) -> None:
    done = audit(survey, *FAST, "--plot", str(tmp_path / "curve.svg"))
    assert done.exit_code == 0, done.output
    assert "<svg" in (tmp_path / "curve.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Pass DEFINITIONS"),
        (("--claim=1",), "Pass DEFINITIONS"),
        (("--client=json:dumps", "--command=x"), "either --client, --grey-box or --command"),
        (("--command=x", "--claim=1", "--value=1", "--value=2"), "Pass DEFINITIONS"),
        (("--client=json:dumps", "--claim=1", "--value={}", "--value=2"), "--value must be JSON"),
        (("--client=json:dumps", "--claim=1", "--value=a", "--value=b"), "--value must be JSON"),
        (("--client=json:dumps", "--claim=1", "--value=true", "--value=false"), "json:dumps"),
        (("FILE", "--hold=2"), "Leave out --hold"),
        (("FILE", "nothing"), "has no metric 'nothing'"),
        (("FILE", "--plot=curve.gif"), "must end in .svg, .png or .pdf"),
        (("FILE", "--trials=10"), "trials must be an integer >= 4000"),
        (("FILE", "--confidence=2"), "'2' is no share in (0, 1). Pass 2%, if it is a percentage."),
        (("FILE", "--reports-per-client=0"), "0 is not in the range"),
        (("FILE", "--value=true", "--value=true"), "two or more different values"),
        (("FILE", "--value=true", '--value="a"'), "boolean metric accepts"),
    ],
)
def test_bad_arguments_are_rejected(arguments: tuple[str, ...], message: str, survey: str) -> None:
    done = audit(*(survey if argument == "FILE" else argument for argument in arguments))
    assert done.exit_code in (1, 2)
    assert message in done.output
    assert "Traceback" not in done.output
