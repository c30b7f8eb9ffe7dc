"""`hubbub survey`: estimates of randomized response surveys against their closed forms, their coverage, and refusals."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from scipy.stats import beta

from hubbub.cli import main
from hubbub_decoder.surveys import Answers, Design, decode_survey


def survey(folder: Path, text: str, *arguments: str) -> Result:
    (folder / "answers.csv").write_text(text)
    return CliRunner().invoke(main, ["survey", str(folder / "answers.csv"), *arguments])


def test_forced_response_of_published_data(tmp_path: Path) -> None:
    """Blair 2014, contact of civilians in Nigeria with armed groups: 831 of 2,457 answers are "yes", of men 497 of 1,321.

    Counts of the data set `nigeria` of the R package rr (SensitiveQuestions/rr), whose respondents said the truth with 2/3, and "yes" and "no" with
    1/6 each. By hand: (831/2457 - 1/6) / (2/3) = .25733, and sqrt(.33822 x .66178 / 2457) / (2/3) = .01432.
    """
    text = "group,respondents,ones\nall,2457,831\nmen,1321,497\n"
    found = json.loads(survey(tmp_path, text, "--design", "forced=1/6,1/6", "--json").stdout)
    everyone, men = found["groups"]
    assert (round(everyone["share"], 5), round(everyone["std_error"], 5)) == (0.25733, 0.01432)
    assert (round(men["share"], 5), round(men["std_error"], 5)) == (0.31435, 0.01999)
    shown = " ".join(survey(tmp_path, text, "--design", "forced=1/6,1/6").stdout.split())
    assert "with probability 0.8333 with the attribute and 0.1667 without it; epsilon 1.609 per answer" in shown
    assert "25.73%" in shown


def random_design(rng: np.random.Generator) -> tuple[str, float, float]:
    """Draw a design, as text, with its p and q written once more."""
    of = int(rng.integers(2, 40))
    match rng.choice(["warner", "crosswise", "forced"]):
        case "forced":
            of += 1
            yes = int(rng.integers(0, of - 1))
            no = int(rng.integers(0, of - yes))
            return f"forced={yes}/{of},{no}/{of}", yes / of, 1 - no / of
        case name:
            have = int(rng.choice([n for n in range(of + 1) if 2 * n != of]))
            return f"{name}={have}/{of}", 1 - have / of, have / of


def test_estimates_are_the_closed_forms(unseen_seed: int) -> None:
    """Shares, errors and intervals of random designs, against Warner's formulas and the beta quantiles of Clopper and Pearson.

    Probabilities are rounded to 2**-24.
    """
    rng = np.random.default_rng(unseen_seed)
    for _ in range(40):
        text, p, q = random_design(rng)
        n = int(rng.integers(1, 3000))
        ones = int(rng.integers(0, n + 1))
        (group,) = decode_survey([Answers("all", n, ones)], Design.parse(text)).groups
        scale = abs(q - p)
        assert math.isclose(group.share, (ones / n - p) / (q - p), abs_tol=1e-6 / scale**2)
        assert math.isclose(group.std_error, math.sqrt(ones / n * (1 - ones / n) / n) / scale, abs_tol=1e-6 / scale**2)
        low = float(beta.ppf(0.025, ones, n - ones + 1)) if ones else 0.0
        high = float(beta.ppf(0.975, ones + 1, n - ones)) if ones < n else 1.0
        ends = sorted(min(max((end - p) / (q - p), 0.0), 1.0) for end in (low, high))
        inside = [min(max(end, 0.0), 1.0) for end in (group.low, group.high)]
        assert inside == pytest.approx(ends, abs=2e-3 + 1e-6 / scale**2), (text, n, ones)


@pytest.mark.parametrize(
    ("design", "message"),
    [
        ("warner=1/2", "P must differ from 1/2"),
        ("forced=1/2,1/2", "YES and NO must add up to less than 1"),
        ("forced=2/3,1/2", "YES and NO must add up to less than 1"),
        ("forced=1/6", "design must be one of warner=P, forced=YES,NO, crosswise=P"),
        ("crosswise=1/4,1/4", "design must be one of"),
        ("unrelated=1/4", "design must be one of"),
        ("warner=1.5", "write each probability as 1/6, .25 or 25%"),
        ("warner=1/0", "write each probability as"),
        ("warner", "write each probability as"),
    ],
)
def test_other_designs_are_refused(design: str, message: str, tmp_path: Path) -> None:
    refused = survey(tmp_path, "respondents,ones\n10,4\n", "--design", design)
    assert refused.exit_code == 2
    assert message in " ".join(refused.output.split())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("respondents,yes\n10,4\n", "line 1 must name the columns respondents, ones and, for several groups, group"),
        ("respondents,ones\n", "has no answers"),
        ("respondents,ones\n10\n", "line 2 must have 2 columns"),
        ("respondents,ones\n10,x\n", "line 2: ones must be a number"),
        ("respondents,ones\n10,11\n", "line 2 has 11 ones of 10 respondents"),
        ("respondents,ones\n0,0\n", "line 2 has 0 ones of 0 respondents"),
        ("respondents,ones\n10,4\n10,4\n", "the group 'all' has several lines"),
    ],
)
def test_other_tables_are_refused(text: str, message: str, tmp_path: Path) -> None:
    refused = survey(tmp_path, text, "--design", "warner=.7")
    assert refused.exit_code == 1
    assert message in " ".join(refused.output.split())


def test_few_answers_are_a_warning_that_names_the_group(tmp_path: Path) -> None:
    shown = survey(tmp_path, "group;respondents;ones\n[b]x;10;4\n", "--design", "crosswise=25%")
    assert shown.exit_code == 0
    assert "[b]x: Only 10 reports." in " ".join(shown.output.split())
