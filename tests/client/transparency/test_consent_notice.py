"""Opt-in text: it has the metrics that are collected, and the figures of `privacy_figures` in words."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hubbub import Definitions, Metric, ParameterError, Params, Policy, UnaryResponse, consent_notice
from hubbub.cli import main
from hubbub.metrics.kinds import MeanKind, StringKind
from hubbub.metrics.kinds.sets import AskedItemKind
from hubbub.privacy import privacy_figures
from hubbub.privacy.plain_words import certainty_text
from tests.client.conftest import HOMEPAGE, Rig
from tests.support.every_kind import METRICS

THEME = Metric.boolean(
    "dark_mode",
    UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5),
    description="Whether the dark theme is on",
    purpose="choose the default theme",
    expires=date(2027, 11, 1),
)
WEEKLY = Metric.boolean("weekly", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5), period="week", hold=4)
FRESH = Metric.boolean("fresh", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0))
LOUD = Metric.string("loud", Params(num_bits=64, num_hashes=8, num_cohorts=4, prob_p=0.01, prob_q=0.99, prob_f=0.01))


def notice(*metrics: Metric, policy: Policy | None = None) -> str:
    return consent_notice(Definitions(list(metrics)), app="Example", recipient="Example Ltd", policy=policy)


def test_notice_has_the_figures_of_each_metric_in_words() -> None:
    text = notice(THEME, WEEKLY, FRESH, HOMEPAGE)
    for metric in (THEME, WEEKLY, FRESH, HOMEPAGE):
        figures = privacy_figures(metric, Policy())
        (line,) = [line for line in text.splitlines() if line.startswith(f"- {metric.name}: ")]
        assert f"from one report, {certainty_text(figures.epsilon_report)}" in line
        unchanged = "as long as your answer does not change"
        condition = unchanged if figures.unit == "value" else "whether or not your answer changes"
        assert f"any number of times, {condition}, {certainty_text(figures.epsilon_lifetime)}" in line
        of_enrollment = figures.epsilon_unit if figures.unit == "value" else figures.epsilon_enrollment
        assert f"until you withdraw your consent, {condition}, {certainty_text(of_enrollment)};" in line
        assert (f", {certainty_text(figures.epsilon_unit)};" in line) or metric is FRESH
    assert "- dark_mode: from one report, at most 75 % sure; from all reports until" in text
    assert text.count("if your answer changes, practically certain that it changed.") == 2
    assert "from the reports of 4 weeks" in text
    theme = "- Whether the dark theme is on (dark_mode). One report each day, until 2027-11-01. Purpose: choose the default theme."
    assert theme in text.splitlines()
    sentences = replace(THEME, description=f"{THEME.description}.", purpose=f"{THEME.purpose}.")
    assert theme in notice(sentences).splitlines()


QUESTIONS = {
    "Is my name in it?": "Name: reports contain no name, no account and no device number.",
    "Who sees my network address?": "Example Ltd sees the network address that sends them.",
    "Who sees when I use the app?": "Example Ltd and your network provider can see on which days you use Example.",
    "Can they be sure of an answer from one report?": "A guess between two answers is 50 % sure. One report makes it {one};",
    "Can they be sure of an answer in the end?": "all reports until you withdraw your consent, {condition}, {all}.",
    "How much do they learn from all questions together?": "one report about each makes a guess {sum_one}; all reports until you withdraw your consent, {condition}, {sum_all}; if you then agree again any number of times, {ever}.",
    "Is something sent as it is?": "Not changed at random: which question and which day, week or month a report is about",
    "Who can read it on my device?": "This device: somebody who can read its files can find out your answers.",
    "What happens if I say no?": "Choice: Example works the same if you say no.",
    "Can I take it back?": "Example then deletes the reports that it has not sent. Reports that were sent cannot be taken back.",
}
"""Questions of somebody who knows nothing, and the sentence of the short text that answers each."""
CHANGES = "Example Ltd can recognize the reports of this device, and can see that an answer changed, when, and whether it is an earlier answer again."


def short_lines(text: str) -> list[str]:
    return text.partition("In short:\n\n")[2].partition("\n\n")[0].splitlines()


def sets_of_metrics() -> list[tuple[Metric, ...]]:
    every = [
        metric for metric in (*METRICS, THEME, WEEKLY, FRESH) if privacy_figures(metric, Policy()).objection is None
    ]
    pairs = [(first, second) for first, second in pairwise(every) if first.name != second.name]
    return [
        *pairs,
        (WEEKLY, FRESH),
        (THEME, WEEKLY, FRESH, HOMEPAGE),
        tuple({metric.name: metric for metric in every}.values()),
    ]


@pytest.mark.parametrize("metrics", sets_of_metrics(), ids=lambda metrics: "-".join(metric.name for metric in metrics))
def test_short_text_answers_ten_questions(metrics: tuple[Metric, ...]) -> None:
    found = [privacy_figures(metric, Policy()) for metric in metrics]
    one = [figures.epsilon_report for figures in found]
    every = [figures.epsilon_unit if figures.unit == "value" else figures.epsilon_enrollment for figures in found]
    changing = any(figures.unit == "value" for figures in found)
    words = {
        "one": certainty_text(max(one)),
        "all": certainty_text(max(every)),
        "sum_one": certainty_text(math.fsum(one)),
        "sum_all": certainty_text(math.fsum(every)),
        "ever": certainty_text(min(math.fsum(figures.epsilon_lifetime for figures in found), Policy().epsilon_total)),
        "condition": "while your answers stay the same" if changing else "whether or not your answers change",
    }
    whole = notice(*metrics)
    lines = short_lines(whole)
    for question, answer in QUESTIONS.items():
        assert sum(answer.format(**words) in line for line in lines) == 1, question
    assert any(CHANGES in line for line in lines) is changing
    (clear,) = (line for line in lines if line.startswith("- Not changed at random"))
    for metric in metrics:
        named = f"{metric.description or metric.name}: "
        discovers = isinstance(metric.kind, StringKind) and metric.kind.discover is not None
        expected = bool(metric.group) or discovers or isinstance(metric.kind, AskedItemKind | MeanKind)
        assert (named in clear) is expected, metric
    short = consent_notice(Definitions(list(metrics)), app="Example", recipient="Example Ltd", details=False)
    assert whole.startswith(short.rstrip("\n"))
    assert "Details:" not in short
    assert sum(len(line.split()) for line in lines if line is not clear) <= 250


def test_one_question_has_no_sum() -> None:
    assert "All questions together" not in notice(THEME)


def test_sum_over_all_metrics_is_at_most_the_limit_of_the_policy() -> None:
    strict = Policy(epsilon_report=3, epsilon_enrollment=2, epsilon_metric=2, epsilon_total=2.5)
    (line,) = (
        line
        for line in short_lines(notice(THEME, FRESH, replace(THEME, name="light_mode"), policy=strict))
        if "All questions together" in line
    )
    assert line.endswith(f"any number of times, {certainty_text(2.5)}.")


def test_notice_says_when_a_limit_of_a_definition_does_not_hold() -> None:
    limited = replace(THEME, lifetime_epsilon=4.0)
    sentence = "counts what all your reports together reveal, and stops at a limit (dark_mode)."
    assert sentence in notice(limited, WEEKLY)
    assert "begins again if they are lost, and goes back if they are restored from a copy" in notice(limited)
    assert "stops at a limit" not in notice(THEME, WEEKLY)
    certainty = certainty_text(privacy_figures(limited, Policy()).epsilon_lifetime)
    assert privacy_figures(limited, Policy()).epsilon_lifetime <= 4
    assert f"as long as your answer does not change, {certainty}" in notice(limited)


def test_notice_depends_on_the_policy() -> None:
    strict = Policy(epsilon_enrollment=1.2, epsilon_metric=1.2, epsilon_total=1.2)
    assert "as long as your answer does not change, practically certain" in notice(THEME)
    assert "as long as your answer does not change, practically certain" not in notice(THEME, policy=strict)
    assert "(loud)" not in notice(THEME, LOUD)
    assert "(loud)" in notice(THEME, LOUD, policy=Policy(**dict.fromkeys(Policy.__slots__, math.inf)))
    with pytest.raises(ParameterError, match="no metric of these definitions is collected"):
        notice(LOUD)


@pytest.mark.parametrize("field", ["description", "purpose"])
def test_notice_refuses_placeholders(field: str) -> None:
    changed: dict[str, Any] = {field: "TODO: what the metric collects"}
    with pytest.raises(ParameterError, match=r"dark_mode: the description or the purpose is a placeholder"):
        notice(replace(THEME, **changed))


@pytest.mark.parametrize("name", ["", " "])
def test_notice_needs_names(name: str) -> None:
    with pytest.raises(ParameterError, match="recipient must be a name"):
        consent_notice(Definitions([THEME]), app="Example", recipient=name)


def test_notice_is_a_valid_text_of_a_consent(rig: Rig) -> None:
    client = rig.client()
    client.set_consent("on", notice(THEME))
    assert client.consent.text == notice(THEME)


def test_command_prints_the_notice(tmp_path: Path) -> None:
    file = Path(__file__).parents[3] / "examples" / "app_metrics.toml"
    done = CliRunner().invoke(
        main, ["metrics", "notice", str(file), "--app", "A", "--recipient", "B", "--contact", "you@example.org"]
    )
    assert done.exit_code == 0
    assert "Which command is used (command)" in done.stdout
    assert "\n\nQuestions: you@example.org\n\nDetails:\n\n" in done.stdout
    short = [
        "metrics",
        "notice",
        str(file),
        "--app",
        "A",
        "--recipient",
        "B",
        "--contact",
        "you@example.org",
        "--short",
    ]
    shown = CliRunner().invoke(main, short).stdout
    assert shown.endswith("Questions: you@example.org\n")
    assert done.stdout.startswith(shown)
    assert done.stderr == ""


def test_command_warns_of_metrics_that_the_text_does_not_name(tmp_path: Path) -> None:
    file = tmp_path / "metrics.toml"
    named = (Path(__file__).parents[3] / "examples" / "app_metrics.toml").read_text()
    fields = 'kind = "boolean"\ndescription = "Loud"\nowner = "a@b"\nexpires = 2099-01-01\nprob_p = 0\nprob_q = 1\nprob_f = 0.001'
    file.write_text(f'{named}\n[[metric]]\nname = "loud"\n{fields}\n')
    done = CliRunner().invoke(main, ["metrics", "notice", str(file), "--app", "A", "--recipient", "B"])
    assert (done.exit_code, "loud" in done.stdout) == (1, False)
    assert done.stderr.startswith("Error: loud: the default Policy blocks this metric, so the text does not name it. ")
    assert done.stderr.count("Error: ") == 1
    shown = CliRunner().invoke(main, ["metrics", "notice", str(file), "--app", "A", "--recipient", "B", "--json"])
    assert json.loads(shown.stdout) == {"text": done.stdout, "blocked": ["loud"]}
