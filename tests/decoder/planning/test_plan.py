"""`plan`: definitions within the stated epsilons, sizes, errors."""

from __future__ import annotations

import math
import re
import time
import warnings
from dataclasses import fields, replace
from datetime import date
from itertools import chain
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner

from hubbub.cli import main
from hubbub.errors import ParameterError
from hubbub.metrics.definitions import parse_definitions
from hubbub.metrics.kinds import CategoricalKind, KindWord
from hubbub.metrics.metric import Metric
from hubbub.metrics.periods import PeriodKind
from hubbub.privacy import epsilon, epsilon_permanent
from hubbub.privacy.policy import Policy
from hubbub_decoder.cli.plan import command
from hubbub_decoder.errors import PlanError
from hubbub_decoder.planning.law.accuracy import StringAccuracy
from hubbub_decoder.planning.law.chain import Chain
from hubbub_decoder.planning.law.collisions import Shares
from hubbub_decoder.planning.plan import plan
from hubbub_decoder.planning.probabilities import chain_of, choose_hold, noise_of
from hubbub_decoder.planning.wishes import KindPlanner, Wishes, repetition_of

TOMORROW = date(2099, 1, 1)


def test_toml_is_the_planned_definition() -> None:
    planned = plan(Wishes(epsilon=2, num_reports=1_000_000, num_candidates=1000), name="homepage", expires=TOMORROW)
    assert parse_definitions(planned.toml())["homepage"] == planned.metric


def test_toml_without_expiry_has_a_comment_to_complete() -> None:
    text = plan(Wishes(epsilon=2, num_reports=1_000_000, num_candidates=1000), name="homepage").toml()
    assert "None" not in text
    completed = text.replace("# expires = YYYY-MM-DD", "expires = 2099-01-01")
    assert parse_definitions(completed)["homepage"].expires == TOMORROW


@pytest.mark.parametrize(("last", "other"), [("other", "other"), ("macos", None)])
def test_category_named_other_is_that_of_unlisted_values(last: str, other: str | None) -> None:
    wishes = Wishes(kind=KindWord.CATEGORICAL, num_candidates=2, epsilon=2, num_reports=10_000)
    kind = plan(wishes, categories=("linux", last)).metric.kind
    assert isinstance(kind, CategoricalKind)
    assert kind.other == other


@pytest.mark.parametrize("kind", [kind for kind in KindWord if kind is not KindWord.JOINT])
def test_rounded_probabilities_keep_the_epsilons(kind: KindWord, unseen_seed: int) -> None:
    rng = np.random.default_rng(unseen_seed)
    for _ in range(5):
        report = float(np.exp(rng.uniform(-2, 1.5)))
        lifetime = report * float(rng.uniform(1, 4))
        candidates = 1 if kind is KindWord.BOOLEAN else 20
        wishes = Wishes(
            kind=kind, epsilon=report, longitudinal=lifetime, num_reports=100_000, num_candidates=candidates, periods=7
        )
        params = plan(wishes, expires=TOMORROW).metric.params
        assert epsilon(params) <= report
        assert epsilon_permanent(params) <= lifetime


def test_rounded_probabilities_keep_the_epsilon_of_an_epoch() -> None:
    wishes = Wishes(
        epsilon=1, longitudinal=20, hold=7, longitudinal_periods=70, num_reports=100_000, num_candidates=50, periods=28
    )
    metric = plan(wishes, expires=TOMORROW).metric
    assert metric.hold == 7
    assert epsilon(metric.params) <= 1
    assert 1.99 < epsilon(metric.params, 7) <= 2


def test_distinct_values_share_the_lifetime() -> None:
    wishes = Wishes(epsilon=1, longitudinal=8, values=4, num_reports=100_000, num_candidates=50, periods=7)
    planned = plan(wishes, expires=TOMORROW)
    assert 1.99 < epsilon_permanent(planned.metric.params) <= 2
    assert any("Each of 4 distinct values costs epsilon = 2.000" in text for text in planned.warnings)


def held(**other: Any) -> Metric:
    """Metric of 4 values in a lifetime of 20 periods, which are decoded together."""
    stated = {
        "epsilon": 1,
        "longitudinal": 6,
        "values": 4,
        "longitudinal_periods": 20,
        "periods": 20,
        "num_reports": 100_000,
    }
    return plan(Wishes(**stated | other), expires=TOMORROW).metric


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KindWord if kind is not KindWord.JOINT])
def test_changing_values_choose_as_many_epochs_as_values(kind: KindWord) -> None:
    metric = held(kind=kind, num_candidates=1 if kind is KindWord.BOOLEAN else 20)
    assert metric.hold == 5
    assert epsilon(metric.params, 5) <= 6 / 4


@pytest.mark.slow
def test_epochs_are_short_where_the_lifetime_pays_for_every_report() -> None:
    assert held(longitudinal=20).hold == 1
    assert held(values=20).hold == 1
    assert held(values=1).hold is None


@pytest.mark.slow
def test_chosen_epoch_has_the_smallest_variance_of_all_lengths(unseen_seed: int) -> None:
    rng = np.random.default_rng(unseen_seed)
    for _ in range(4):
        last, report = int(rng.integers(2, 25)), float(np.exp(rng.uniform(-1, 1)))
        wishes = Wishes(
            epsilon=report,
            longitudinal=report * float(rng.uniform(1, 12)),
            values=int(rng.integers(2, last + 1)),
            longitudinal_periods=last,
            periods=int(rng.integers(1, last + 1)),
            num_reports=1,
        )
        share = float(10 ** rng.uniform(-3, -1))
        chosen, _ = choose_hold(wishes, share)
        lengths = [length for length in range(1, last + 1) if math.ceil(last / length) >= wishes.values]
        choices = [replace(wishes, values=1, hold=length) for length in lengths]
        noises = {choice.hold: noise_of(choice, share, chain_of(choice, share)) for choice in choices}
        assert noises[chosen.hold] <= 1.03 * min(noises.values()), (wishes, noises)


def test_boolean_stays_symmetric() -> None:
    params = plan(
        Wishes(kind=KindWord.BOOLEAN, epsilon=1, longitudinal=2, num_reports=1000, periods=30), expires=TOMORROW
    ).metric.params
    assert params.mechanism.prob_f is not None


def test_plan_says_when_a_symmetric_response_does_not_reach_unary_encoding() -> None:
    notes = plan(Wishes(epsilon=2.9, longitudinal=3, num_reports=100_000, num_candidates=50), expires=TOMORROW).notes
    assert any("is above tanh(einf/4) = 0.635" in note for note in notes)
    notes = plan(Wishes(epsilon=1, longitudinal=4, num_reports=100_000, num_candidates=50), expires=TOMORROW).notes
    assert not any("tanh" in note for note in notes)


@pytest.mark.parametrize(
    ("wishes", "units"),
    [
        (Wishes(epsilon=1.5, longitudinal=4, num_candidates=200, num_reports=10**6), 4),
        (Wishes(epsilon=1.5, longitudinal=2, num_candidates=200, num_reports=10**6, values=5), 10),
        (Wishes(epsilon=1.5, longitudinal=4, num_candidates=200, num_reports=10**6, values=8), 16),
        (Wishes(kind=KindWord.BOOLEAN, epsilon=1, longitudinal=2, num_reports=10**6), 4),
        (Wishes(epsilon=0.5, longitudinal=1, num_candidates=20, num_reports=10**7, hold=30), 13),
        (Wishes(epsilon=0.5, longitudinal=1, num_candidates=20, num_reports=10**7, hold=3), None),
        (Wishes(epsilon=0.5, num_candidates=20, num_reports=10**7, period=PeriodKind.MONTH), 12),
    ],
)
def test_proposed_lifetime_epsilon_has_the_room_that_it_says(wishes: Wishes, units: int | None) -> None:
    """units : None for as many as the default policy allows, which are fewer than a year has."""
    without = plan(wishes)
    (text,) = (text for text in without.warnings if "has no lifetime_epsilon" in text)
    (limit,) = map(float, re.findall(r"Pass lifetime_epsilon = ([\d.]+), which has room for", text))
    planned = plan(replace(wishes, lifetime_epsilon=limit))
    figures = planned.description.privacy
    assert figures.units_lifetime == (units or without.description.privacy.units_lifetime)
    assert figures.epsilon_lifetime <= limit <= Policy().epsilon_metric
    assert ("after which a client sends no more" in text) is (units is None)
    assert not any("has no lifetime_epsilon" in text for text in planned.warnings)


def test_central_epsilon_limits_the_cohorts() -> None:
    free = plan(Wishes(epsilon=2, num_reports=1_000_000, num_candidates=1000), expires=TOMORROW)
    kept = plan(Wishes(epsilon=2, num_reports=1_000_000, num_candidates=1000, central=0.07), expires=TOMORROW)
    assert free.description.of_totals.epsilon > 0.07 >= kept.description.of_totals.epsilon
    assert kept.metric.num_cohorts < free.metric.num_cohorts


def test_fewer_bits_are_kept() -> None:
    assert (
        plan(Wishes(epsilon=2, num_reports=1_000_000, num_candidates=1000, bits=100), expires=TOMORROW).metric.num_bits
        == 64
    )


def random_wishes(rng: np.random.Generator) -> Wishes:
    report = float(np.exp(rng.uniform(math.log(0.5), math.log(4))))
    return Wishes(
        epsilon=report,
        longitudinal=None if rng.random() < 0.3 else report * float(rng.uniform(1, 6)),
        num_reports=int(10 ** rng.uniform(4, 7)),
        num_candidates=int(10 ** rng.uniform(1, 4)),
        share=float(10 ** rng.uniform(-4, -1)),
        periods=int(rng.choice([1, 7, 30])),
    )


def brute_force(wishes: Wishes) -> float:
    """Smallest mean variance of 2 numbers of hashes, 5 of bits, 4 of cohorts and 6,400 pairs of both responses each.

    With h = 1 bit a value, log-odds of a and b differ by einf / h, those of q* and p* by e1 / h.
    """
    shares, repetition = Shares.zipf(wishes.num_candidates), repetition_of(wishes.periods, None)
    assert wishes.share is not None
    assert wishes.num_reports is not None
    mean_share = (wishes.share + 1 / wishes.num_candidates) / 2
    best = math.inf
    for h in (1, 2):
        a_odds, q_odds = np.meshgrid(np.linspace(-1, 14, 80), np.linspace(-3, 9, 80))
        a, b = 1 / (1 + np.exp(-a_odds)), 1 / (1 + np.exp((wishes.longitudinal or 0) / h - a_odds))
        if wishes.longitudinal is None:
            a, b = np.ones_like(a), np.zeros_like(a)
        q_star, p_star = 1 / (1 + np.exp(-q_odds)), 1 / (1 + np.exp(wishes.epsilon / h - q_odds))
        spread = (q_star - p_star) / (a - b)
        p = p_star - b * spread
        q = p + spread
        valid = (p >= 0) & (q <= 1)
        noise = np.where(valid, Chain(a, b, p, q).noise(mean_share, repetition), np.inf)
        cell = np.unravel_index(np.argmin(noise), noise.shape)
        chain = Chain(*(np.asarray(grid[cell]) for grid in (a, b, p, q)))
        for k in (64, 128, wishes.bits):
            for m in (32, 64, 128, 256):
                law = StringAccuracy(
                    size=(k, h, m), chain=chain, clients=wishes.num_reports, repetition=repetition, shares=shares
                )
                best = min(best, law.mean_variance(wishes.share))
    return best


@pytest.mark.slow
def test_plan_is_within_two_percent_of_brute_force(unseen_seed: int) -> None:
    """20 plans take 6 to 7 times as long as the brute force, which takes about .05 s each. 20 times is a second."""
    rng, of_plan, of_brute_force = np.random.default_rng(unseen_seed), 0.0, 0.0
    for _ in range(20):
        wishes = random_wishes(rng)
        started = time.process_time()
        planned = plan(wishes, expires=TOMORROW)
        planned_at = time.process_time()
        best = brute_force(wishes)
        of_plan += planned_at - started
        of_brute_force += time.process_time() - planned_at
        assert wishes.share is not None
        assert planned.description.accuracy.mean_variance(wishes.share) <= 1.02 * best, wishes
        assert planned.metric.params.num_hashes == 1
    assert of_plan <= 20 * of_brute_force


def test_one_report_needs_no_permanent_response() -> None:
    params = plan(Wishes(epsilon=2, num_reports=1_000_000, num_candidates=1000), expires=TOMORROW).metric.params
    assert (params.num_hashes, params.mechanism.prob_f) == (1, 0)
    assert params.mechanism.prob_q == pytest.approx(0.5, abs=0.005)
    assert params.mechanism.prob_p == pytest.approx(1 / (math.exp(2) + 1), abs=0.002)


def test_plan_states_the_reports_that_a_share_needs() -> None:
    planned = plan(Wishes(epsilon=1, share=0.01, num_candidates=100), expires=TOMORROW)
    assert planned.description.accuracy.clients == planned.reports_needed
    assert planned.description.accuracy.detection_limit() == pytest.approx(0.01, rel=0.01)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"epsilon": 0, "num_reports": 10}, r"epsilon must be a number in \(0, inf\), got 0"),
    ({"epsilon": 1}, "Neither `num_reports` nor `share` is given"),
    ({"epsilon": 1, "num_reports": 10, "share": 1.0}, "share must be a number in"),
    ({"epsilon": 1, "num_reports": 10, "kind": "boolean", "num_candidates": 3}, "a boolean metric has one bit"),
    ({"epsilon": 1, "num_reports": 10, "kind": "categorical", "num_candidates": 2000}, "2 to 1024 categories"),
    ({"epsilon": 1, "num_reports": 10, "kind": "categorical"}, "`num_candidates` is missing: a categorical metric"),
    ({"epsilon": 1, "num_reports": 10, "kind": "ordinal"}, "`num_candidates` is missing: an ordinal metric"),
    ({"epsilon": 1, "num_reports": 10, "kind": "set"}, "`num_candidates` is missing: a set metric"),
    ({"epsilon": 1, "num_reports": 10, "hold": 7}, "without a longitudinal epsilon"),
    ({"epsilon": 1, "num_reports": 10, "hold": 7, "longitudinal": 4, "values": 2}, "exclude each other"),
    (
        {"epsilon": 1, "num_reports": 10, "longitudinal": 4, "values": 9, "longitudinal_periods": 8},
        "at most one value in a period",
    ),
    ({"epsilon": 1, "share": 0.1, "central": 0.1}, "`central` without `num_reports`"),
    ({"epsilon": 2, "num_reports": 1000, "central": 0.1}, "It needs .* reports"),
    ({"epsilon": 1, "num_reports": 10, "kind": "text"}, "`kind` must be one of"),
    ({"epsilon": 1, "num_reports": 10, "kind": "joint"}, "a joint metric has no accuracy of its own"),
    ({"epsilon": 1, "num_reports": 10, "kind": "boolean", "estimate": "mean"}, "a boolean metric has none"),
    ({"epsilon": 1, "num_reports": 10, "kind": "boolean", "longest": 8}, "only strings are found without a list"),
    ({"epsilon": 1, "num_reports": 10, "alphabet": "ab"}, "`alphabet` without `longest`"),
    ({"epsilon": 1, "num_reports": 10, "longest": 8, "num_candidates": 5}, "are found without a list"),
    ({"epsilon": 1, "num_reports": 10, "central": 1, "retained": True}, "exclude each other"),
    ({"epsilon": 1, "num_reports": 10, "num_candidates": 10**8}, "at most 10,000,000 can be planned"),
    ({"epsilon": 1, "num_reports": 100, "longest": 5}, "No string is found with probability 0.9"),
    ({"epsilon": 1, "share": 1e-9, "num_candidates": 1000}, "is not detected with"),
    ({"epsilon": 1, "share": 0.1, "longest": 5}, "needs `num_reports` and bit counts"),
    ({"epsilon": math.nan, "num_reports": 10}, "epsilon must be a number"),
]
FIELDS = {field.name for field in fields(Wishes)}
OPTIONS = {parameter.name: parameter.opts[0] for parameter in command.params if parameter.name in FIELDS}


@pytest.mark.parametrize(("wishes", "message"), REFUSED)
def test_impossible_wish_names_the_remedy(wishes: dict[str, Any], message: str) -> None:
    with pytest.raises((PlanError, ParameterError), match=message) as refused:
        plan(Wishes(**wishes), expires=TOMORROW)
    assert {field for field, _ in re.findall(r"`(\w+)( = [^`]+)?`", str(refused.value))} <= FIELDS
    assert not re.findall(rf"(?<!`)\b({'|'.join(FIELDS)})\b = ", str(refused.value))


@pytest.mark.parametrize(("wishes", "message"), REFUSED)
def test_impossible_option_is_named_as_it_was_passed(wishes: dict[str, Any], message: str) -> None:
    words = [[OPTIONS[field]] if value is True else [OPTIONS[field], str(value)] for field, value in wishes.items()]
    refused = CliRunner().invoke(main, ["plan", *chain.from_iterable(words)])
    assert refused.exit_code in (1, 2)
    assert not {
        field for field in FIELDS if re.search(rf"`{field}|(?<!-)\b{field}\b( = | must be )", refused.stderr)
    }, message
    assert "--" in refused.stderr.partition("Error: ")[2]


def test_every_wish_is_an_option() -> None:
    assert OPTIONS.keys() == FIELDS


def test_option_kind_offers_the_kinds_that_have_a_planner() -> None:
    (kind,) = (parameter for parameter in command.params if parameter.name == "kind")
    assert isinstance(kind.type, click.Choice)
    assert set(kind.type.choices) == {word for word, _ in KindPlanner.planners}


def test_plan_promises_a_lifetime_epsilon_or_warns() -> None:
    wishes = Wishes(epsilon=1, longitudinal=2, num_reports=100_000, num_candidates=10)
    open_ended, promised = (
        plan(variant, expires=TOMORROW) for variant in (wishes, replace(wishes, lifetime_epsilon=7.0))
    )
    lifetime = open_ended.description.privacy.epsilon_lifetime
    assert any(f"may spend epsilon = {lifetime:.3f} over all its secrets" in warning for warning in open_ended.warnings)
    assert "lifetime_epsilon = 7\n" in promised.toml()
    assert promised.description.privacy.epsilon_lifetime <= 7 < lifetime
    assert not any("lifetime_epsilon" in warning for warning in promised.warnings)


def test_random_wishes_of_every_kind_are_kept_or_refused(unseen_seed: int) -> None:
    """15 wishes, from hopeless to lavish: epsilons are kept, no figure in the notes is infinite, and no mechanism is better."""
    rng = np.random.default_rng(unseen_seed)

    def pick(choices: list[Any]) -> Any:
        return choices[int(rng.integers(len(choices)))]

    for _ in range(15):
        kind = pick([word for word in KindWord if word is not KindWord.JOINT])
        local, central = pick([0.1, 0.5, 1, 2, 4, 12]), pick([None, 0.001, 0.05, 0.5, 3])
        wishes: dict[str, Any] = {"kind": kind, "epsilon": local, "central": central}
        wishes["num_reports"] = pick([1, 10, 1_000, 10**5, 10**10])
        wishes["num_candidates"] = 1 if kind is KindWord.BOOLEAN else pick([2, 3, 10, 40])
        wishes |= pick([{}, {"longitudinal": local * 2, "periods": 7}, {"share": 1e-6}, {"share": 0.3}])
        try:
            planned = plan(Wishes(**wishes), expires=TOMORROW)
        except PlanError:
            continue
        assert epsilon(planned.metric) <= local + 1e-9, wishes
        assert central is None or planned.description.of_totals.epsilon <= central * (1 + 1e-9), wishes
        assert " inf" not in " ".join(planned.notes), wishes
        assert planned.other is None or planned.other >= 1, wishes


@pytest.mark.parametrize("reports", [1, 2, 3, 4, 10])
def test_number_of_reports_for_a_central_epsilon_is_found(reports: int) -> None:
    """A search between one and three reports did not end."""
    wishes = Wishes(epsilon=0.1, num_reports=reports, num_candidates=3, central=0.05)
    with pytest.raises(PlanError, match=r"It needs [\d,]+ reports"):
        plan(wishes, expires=TOMORROW)


@pytest.mark.parametrize("kind", [kind for kind in KindWord if kind is not KindWord.JOINT])
@pytest.mark.parametrize("largest", [20.0, 50.0, 100.0, 700.0])
def test_almost_no_noise_is_planned_without_a_warning(kind: KindWord, largest: float) -> None:
    """At 100, numpy warned of an overflow."""
    candidates = 1 if kind is KindWord.BOOLEAN else 100
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        planned = plan(Wishes(kind=kind, epsilon=largest, num_reports=100_000, num_candidates=candidates))
    assert epsilon(planned.metric.params) <= largest


@pytest.mark.parametrize("kind", ["categorical", "set"])
def test_names_are_read_from_a_file(kind: str, tmp_path: Path) -> None:
    """And a share of categories, which are not tested, is detected in another sense."""
    (tmp_path / "names.txt").write_text("linux\nmacos\nbeos\n")
    arguments = ["plan", "--kind", kind, "--candidates", str(tmp_path / "names.txt"), "--epsilon", "2"]
    for options in (["--share", "0.02"], []):
        planned = CliRunner().invoke(main, [*arguments, "--reports", "20000", *options])
        assert planned.exit_code == 0, planned.output
        assert '["linux", "macos", "beos"]' in planned.stdout
        assert " ".join(planned.output.split()).count("tests no categories") == (kind == "categorical")
