"""`describe` and `hubbub plan`: figures of a definition, surfaces, errors."""

from __future__ import annotations

import io
import itertools
import json
import math
import re
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from rich.console import Console
from scipy.stats import binom, norm

from hubbub import Metric, Params, Policy, UnaryResponse
from hubbub.cli import main
from hubbub.errors import ParameterError
from hubbub.metrics.definitions import load_definitions, parse_definitions
from hubbub.privacy import central_epsilon, epsilon, guarantee_of_days
from hubbub.privacy.loss import epsilon_of_periods
from hubbub_decoder import PlanError, describe
from hubbub_decoder.model.design_matrix import design_matrix
from hubbub_decoder.planning.definition import toml_lines
from hubbub_decoder.planning.description import permanent_entropy, recovery_probability
from hubbub_decoder.planning.page import render_page
from hubbub_decoder.planning.tables import DescriptionTables, figure_rows
from hubbub_decoder.simulation import simulate
from tests.support.every_kind import METRICS
from tests.support.forged_reports import Attacks

DEFINITION = """
[[metric]]
name = "homepage"
kind = "string"
description = "Where do people start?"
owner = "you@example.org"
num_bits = 64
num_hashes = 1
num_cohorts = 16
prob_p = 0.25
prob_q = 0.75
prob_f = {f}
expires = 2099-01-01
"""


@pytest.fixture
def definitions(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "a$b.toml", tmp_path / "b.toml"]
    for path, f in zip(paths, (0.25, 0.0), strict=True):
        path.write_text(DEFINITION.format(f=f))
    return paths


def hubbub(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": "250"}).invoke(main, [str(argument) for argument in arguments])


def string(k: int, f: float = 0.5) -> Metric:
    return Metric.string("s", Params(num_bits=k, num_hashes=1, num_cohorts=64, prob_p=0.25, prob_q=0.75, prob_f=f))


def test_permanent_bits_identify_less_with_asymmetric_noise() -> None:
    """k = 128, einf = 4: 67 bits symmetric, 17 asymmetric."""
    symmetric = string(128, 2 / (math.exp(2) + 1))
    sizes = {"num_bits": 128, "num_hashes": 1, "num_cohorts": 64}
    rare = Params(**sizes, prob_p=0.25, prob_q=0.75, permanent_p=1 / (math.exp(4) + 1), permanent_q=0.5)  # type: ignore[arg-type]
    assert permanent_entropy(symmetric) == pytest.approx(67.5, abs=0.5)
    assert permanent_entropy(Metric.string("s", rare)) == pytest.approx(17.5, abs=0.5)


def test_recovery_is_the_chance_of_the_likeliest_response() -> None:
    """Categories a, b of which a is the value; 3 reports, all 2**6 outcomes and 4 responses."""
    metric = Metric.categorical("c", ("a", "b"), UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5))
    joint = []
    for outcome in itertools.product((0, 1), repeat=6):
        chances = []
        for response in itertools.product((0, 1), repeat=2):
            prior = np.prod([p if bit else 1 - p for bit, p in zip(response, (0.75, 0.25), strict=True)])
            rates = [0.75 if response[i // 3] else 0.25 for i in range(6)]
            chances.append(prior * np.prod([r if bit else 1 - r for bit, r in zip(outcome, rates, strict=True)]))
        joint.append(max(chances))
    assert recovery_probability(metric, 3) == pytest.approx(sum(joint))


def test_hundred_reports_reveal_a_response_as_the_privacy_page_states() -> None:
    usual = Params(num_bits=128, num_hashes=2, num_cohorts=64, prob_p=0.5, prob_q=0.75, prob_f=0.5)
    assert recovery_probability(Metric.string("s", usual), 100) == pytest.approx(0.62, abs=0.01)


def test_describe_reports_the_privacy_of_one_cohort() -> None:
    bought = describe(string(64), num_reports=64_000, periods=7)
    assert bought.of_totals.num_clients == 1000
    assert bought.of_totals.epsilon == central_epsilon(string(64).params, 1000, 1e-9, periods=7)
    assert dict(bought.epsilons)[7.0] == epsilon(string(64).params, 7)


def test_epochs_add_up() -> None:
    metric = Metric.string("s", string(64).params, hold=3)
    assert epsilon_of_periods(metric, 7) == pytest.approx(2 * epsilon(metric.params, 3) + epsilon(metric.params, 1))


def test_detection_limit_shrinks_with_reports() -> None:
    few, many = (describe(string(64), num_reports=n).detection_limit for n in (100_000, 10_000_000))
    assert few / many == pytest.approx(10, rel=0.1)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_share_is_detected_by_as_many_reports_as_it_needs(metric: Metric) -> None:
    try:
        describe(metric, num_reports=1_000)
    except PlanError:  # joint metrics
        with pytest.raises(PlanError):
            describe(metric, share=0.02)
        return
    bought = describe(metric, share=0.02)
    assert bought.detection_limit == pytest.approx(0.02, rel=1e-3)
    assert describe(metric, num_reports=bought.num_reports).detection_limit == bought.detection_limit


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_power_of_a_number_of_reports_is_that_of_the_detection_limit(metric: Metric) -> None:
    """.9 at the limit, and increasing with the share. A search is simulated, so its limit is found up to a thousandth of its draws."""
    try:
        law = describe(metric, num_reports=100_000).accuracy
    except PlanError:  # joint metrics
        return
    limit = law.detection_limit()
    small, same, large = (law.power(share) for share in (limit / 2, limit, min(2 * limit, 1)))
    assert same == pytest.approx(0.9, abs=0.005)
    assert small < same < large or limit > 1 / 2


@pytest.mark.parametrize("num_reports", [100, 1_000])
def test_power_of_few_reports_is_as_skewed_as_the_detection_limit(num_reports: int) -> None:
    """The normal law would say .892 and .896."""
    metric = Metric.boolean("b", UnaryResponse(prob_p=0.02, prob_q=0.9, prob_f=0))
    law = describe(metric, num_reports=num_reports).accuracy
    assert law.power(law.detection_limit()) == pytest.approx(0.9, abs=1e-4)


@pytest.mark.parametrize("num_reports", [4, 6])
def test_an_item_that_nobody_answers_for_is_not_detected(num_reports: int) -> None:
    """Each client answers for one of three items, so nobody does for one with probability (2 / 3)^N."""
    metric = Metric.set("plugins", ("a", "b", "c"), UnaryResponse(prob_p=0.001, prob_q=0.999, prob_f=0))
    assert describe(metric, num_reports=num_reports).accuracy.power(1.0) <= 1 - (2 / 3) ** num_reports


@pytest.mark.parametrize("share", [0.01, 0.02, 0.03])
def test_power_of_one_bit_is_that_of_its_two_binomial_counts(share: float) -> None:
    """Between the probabilities of the counts at and above both counts next to the threshold, up to the error of the skewed law."""
    metric, n = Metric.boolean("b", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0)), 10_000
    description = describe(metric, num_reports=n, share=share)
    threshold = description.accuracy._threshold()
    yes = round(n * share)
    counts = np.convolve(binom.pmf(np.arange(yes + 1), yes, 0.75), binom.pmf(np.arange(n - yes + 1), n - yes, 0.25))
    first = n * (0.25 + 0.5 * threshold)
    low, high = counts[math.ceil(first) :].sum(), counts[math.floor(first) :].sum()
    assert description.power is not None
    assert low - 2e-3 <= description.power <= high + 2e-3


def test_plan_prints_the_power_of_a_number_of_reports_and_a_share(definitions: list[Path]) -> None:
    printed = hubbub("plan", definitions[0], "--share", "0.02", "--reports", "100000")
    assert re.search(r"power +a share of 2 % is detected with probability 0\.9\d *\n", printed.stdout), printed.output
    figures = json.loads(hubbub("plan", definitions[0], "--share", "0.02", "--reports", "100000", "--json").stdout)[0]
    assert (figures["num_reports"], figures["share"], 0.9 < figures["power"] < 1) == (100_000, 0.02, True)
    assert json.loads(hubbub("plan", definitions[0], "--json").stdout)[0]["power"] is None
    assert "power" not in hubbub("plan", definitions[0]).stdout
    chosen = hubbub("plan", "--epsilon", "2", "--num-candidates", "100", "--reports", "10000", "--share", "0.01")
    assert "a share of 1 % is detected with probability" in chosen.stderr


def test_reports_or_a_share_decide() -> None:
    with pytest.raises(ParameterError, match="num_reports or share must be given"):
        describe(string(64))
    with pytest.raises(PlanError, match="not detected with"):
        describe(string(64), share=1e-12)


def test_one_crowded_cohort_is_shown_without_an_accuracy() -> None:
    """More candidates than bits of the only cohort: the decoder determines no share."""
    params = Params(num_bits=16, num_hashes=1, num_cohorts=1, prob_p=0.25, prob_q=0.75, prob_f=0)
    bought = describe(Metric.string("s", params), num_reports=1000, num_candidates=100)
    assert bought.detection_limit == math.inf
    assert "none up to 100 %" in "".join(text for _, texts in figure_rows([bought]) for text in texts)
    Console(file=io.StringIO()).print(DescriptionTables([bought], explain=True))
    assert "<svg" in render_page([bought])


def test_describe_refuses_a_number_below_one() -> None:
    with pytest.raises(ParameterError, match="num_reports must be an integer >= 1, got 0"):
        describe(string(64), num_reports=0)


def test_command_prints_a_definition_that_the_check_accepts_with_description_and_owner(tmp_path: Path) -> None:
    wishes = (
        "plan",
        "--epsilon",
        2,
        "--longitudinal",
        4,
        "--num-candidates",
        100,
        "--reports",
        100_000,
        "--periods",
        7,
    )
    path = tmp_path / "planned.toml"
    path.write_text(hubbub(*wishes).stdout)
    refused = hubbub("metrics", "check", path)
    assert refused.exit_code == 1
    for field in ("description", "owner"):
        assert f"{field} is a placeholder, got 'TODO: " in refused.stderr
    result = hubbub(*wishes, "--description", "First page", "--owner", "ada@example.org")
    assert result.exit_code == 0, result.output
    path.write_text(result.stdout)
    assert hubbub("metrics", "check", path).exit_code == 0
    assert load_definitions(path)["metric"].description == "First page"
    assert load_definitions(path)["metric"].owner == "ada@example.org"
    assert list(parse_definitions(result.stdout)) == ["metric"]
    assert "detection limit" in result.stderr


def test_command_takes_categories_by_name() -> None:
    result = hubbub("plan", "--epsilon", 1, "--category", 'a "b"', "--category", "c", "--reports", 1000)
    assert parse_definitions(result.stdout)["metric"].kind.labels == ('a "b"', "c")


def test_command_describes_and_compares(definitions: list[Path], tmp_path: Path) -> None:
    page, before = tmp_path / "page.html", definitions[0].read_bytes()
    one = json.loads(hubbub("plan", definitions[0], "--reports", 10_000, "--json").stdout)
    assert one[0]["num_reports"] == 10_000
    assert one[0]["epsilon_by_reports_of_a_client"][-1]["num_reports"] == "inf"
    result = hubbub("plan", "--compare", *definitions, "--html", page, "--explain")
    assert result.exit_code == 0, result.output
    assert result.stdout.count("Epsilon of t reports of one value") == 2
    refused = hubbub("plan", "--compare", *definitions, "--html", definitions[0])
    assert (refused.exit_code, definitions[0].read_bytes()) == (1, before)
    assert "must end in .html" in refused.stderr
    text = page.read_text(encoding="utf-8")
    assert text.count("<svg") == 3
    assert "a$b.toml" in text
    assert "http://" not in text.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    )


def test_command_prints_figures_and_warnings_and_explains_on_request() -> None:
    wishes = (
        "plan",
        "--epsilon",
        2.9,
        "--longitudinal",
        3,
        "--reports",
        100_000,
        "--num-candidates",
        50,
        "--bits",
        128,
    )
    short, explained = hubbub(*wishes), hubbub(*wishes, "--explain")
    assert short.stdout == explained.stdout
    names = [
        "epsilon of days",
        "epsilon of a report",
        "epsilon of a value",
        "lifetime epsilon",
        "observer",
        "decoded",
        "detection limit",
    ]
    figures, separator, _ = short.stderr.partition("\n\nWarning: ")
    assert separator
    assert [line[:19].strip() for line in figures.splitlines() if line[:19].strip()] == names
    assert "Note: " not in short.stderr
    assert "Note: " in explained.stderr
    assert "Accuracy by reports of a period" in explained.stderr
    alike = hubbub("plan", "--epsilon", 1, "--longitudinal", 8, "--values-per-client", 4, "--reports", 100_000)
    assert "Warning: Each of 4 distinct values costs epsilon = 2.000" in " ".join(alike.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Pass --epsilon to choose parameters"),
        (("--epsilon", 1), "Neither --reports nor --share is given"),
        (("{path}", "--epsilon", 1), "--epsilon chooses parameters"),
        (("{path}", "--owner", "ada"), "--owner chooses parameters"),
        (("{path}", "--values-per-client", 2), "--values-per-client chooses parameters"),
        (("{path}", "--share", 1e-12), "Pass a larger --share"),
        (("{path}", "missing"), "has no metric 'missing'"),
        (("--epsilon", -1, "--reports", 10), "-1.0 is not in the range x>0"),
    ],
)
def test_command_names_the_remedy(definitions: list[Path], arguments: tuple[object, ...], message: str) -> None:
    result = hubbub("plan", *(definitions[0] if argument == "{path}" else argument for argument in arguments))
    assert result.exit_code != 0
    assert message in result.stderr
    assert result.stdout == ""


def test_forged_reports_of_one_bit_by_hand() -> None:
    """1,000 reports, p* = 1/4, q* = 3/4: s(0) = .0274, skewness .0365, so a share of .0552 is distinguished from 0 at .025, and a forged report stands for 1.5."""
    coin = Metric.boolean("coin", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0))
    quantile, half_a_count = 1.96 + (1.96**2 - 1) * 0.0365 / 6, 0.001
    cut = quantile * math.sqrt(3 / 16 / 1000) / 0.5 + half_a_count
    assert describe(coin, num_reports=1000).accuracy.forged_reports() == math.ceil(1000 * cut / (1.5 - cut))
    tools = Metric.set("tools", ("a", "b", "c", "d"), UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0))
    assert describe(tools, num_reports=4000).accuracy.forged_reports() < 1000 * 0.2


def test_forged_reports_of_strings_are_up_to_a_third_more_than_a_decoding_needs() -> None:
    """Share that a report stands for, of an absent candidate among 60, over that of the plan."""
    metric = string(64)
    counts = simulate(metric, {f"v{i}": 30_000 // (i + 1) for i in range(40)}, np.random.default_rng(1))
    candidates = [f"v{i}" for i in range(60)]
    attacks = Attacks(counts, design_matrix(candidates, metric.params), np.random.default_rng(1))
    mechanism = metric.params.mechanism
    assert 1 < float(attacks.influence(59).highest[0]) * (mechanism.q_star - mechanism.p_star) < 1.33


def test_forged_reports_are_on_every_surface(definitions: list[Path]) -> None:
    arguments = ("plan", definitions[0], "homepage", "--reports", "100000", "--num-candidates", "50")
    number = json.loads(hubbub(*arguments, "--json").stdout)[0]["forged_reports"]
    assert (
        number
        == describe(
            load_definitions(definitions[0])["homepage"], num_reports=100_000, num_candidates=50
        ).accuracy.forged_reports()
        > 0
    )
    assert "forged reports that show an absent value" in hubbub(*arguments, "--explain").stdout


@pytest.mark.parametrize(("clients", "items"), [(60, 10), (30, 3), (400, 40)])
def test_law_of_an_item_holds_for_a_random_number_of_answers(clients: int, items: int, unseen_seed: int) -> None:
    """100,000 estimates of items of 6 to 10 reports on average, of those with one report or more: within 4.9 standard errors (alpha = 1e-6).

    With M / N in place of E[1 / n] the variance would be 8 to 18 % smaller, 15 standard errors or more.
    """
    rng, share, runs = np.random.default_rng(unseen_seed), 0.4, 100_000
    metric = Metric.set("tools", tuple(f"i{i}" for i in range(items)), UnaryResponse(prob_p=0.1, prob_q=0.9, prob_f=0))
    asked = rng.binomial(clients, 1 / items, runs)
    asked = asked[asked > 0]
    with_item = rng.hypergeometric(round(share * clients), clients - round(share * clients), asked)
    estimates = ((rng.binomial(with_item, 0.9) + rng.binomial(asked - with_item, 0.1)) / asked - 0.1) / 0.8
    squares = (estimates - share) ** 2
    law = describe(metric, num_reports=clients).accuracy
    reach = norm.isf(5e-7) * squares.std() / math.sqrt(len(squares))
    assert abs(squares.mean() - law.variance(share)) < reach


def test_plan_of_a_set_says_that_items_may_have_no_report() -> None:
    """Of 30 reports of 10 items an item has none with probability .9**30 = .042, and of 10 reports with .35, so nothing is surely detected."""
    metric = Metric.set("tools", tuple(f"i{i}" for i in range(10)), UnaryResponse(prob_p=0.001, prob_q=0.999, prob_f=0))
    few, fewer = (describe(metric, num_reports=number).accuracy for number in (30, 10))
    assert "none with probability 0.042" in " ".join(few.notes())
    assert few.detection_limit() < 1
    assert math.isinf(fewer.detection_limit())


@pytest.mark.parametrize(
    ("hold", "unit", "shown"),
    [(7, 30, "6.592 of any 30 days in a row"), (7, 1, "1.099 of any 1 day"), (None, 30, "no bound of any 30 days")],
)
def test_first_figure_is_the_epsilon_of_days_whatever_is_recorded(
    hold: int | None, unit: int, shown: str, tmp_path: Path
) -> None:
    """ceil(29 / 7) + 1 = 6 epochs of ln 3."""
    metric = Metric.boolean(
        "dark",
        UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5),
        hold=hold,
        description="d",
        owner="o",
        expires=date(2099, 1, 1),
    )
    file = tmp_path / "metrics.toml"
    file.write_text("\n".join(toml_lines(metric)))
    first = hubbub("plan", file, "dark", "--unit", f"{unit}d").stdout.partition("epsilon of a report")[0]
    assert re.match(rf"epsilon of days +{shown}", first)
    assert "whatever is recorded" in " ".join(first.split())
    assert ("`hold` gives one" in " ".join(first.split())) is (hold is None)
    (document,) = json.loads(hubbub("plan", file, "dark", "--unit", f"{unit}d", "--json").stdout)
    assert document["of_days"] == guarantee_of_days(metric, Policy(), unit).to_dict()


@pytest.mark.parametrize("unit", ["30", "0d", "-1d", "1.5d", "d", "999999d", "30d ", "٣d"])
def test_unit_is_a_number_of_days(unit: str) -> None:
    refused = hubbub("plan", "--epsilon", 2, "--share", 0.1, "--unit", unit)
    assert refused.exit_code == 2
    assert "must be a number of days from 1d to 99999d" in refused.stderr
