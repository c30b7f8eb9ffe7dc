"""`plan` of whole sets: the number of ones, the choice between one question and a row, and what wishes exclude."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import date
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.set_mechanisms import Wheel
from benchmarks.sets import hashed_counts
from hubbub import KindWord, PrivSet, UnaryResponse, parse_definitions
from hubbub.cli import main
from hubbub.errors import ParameterError
from hubbub.metrics.kinds.sets import AskedItemKind, HashedSetKind, WholeSetKind
from hubbub.privacy import epsilon as epsilon_of
from hubbub_decoder import PlanError, Wishes, decode, describe, plan, simulate
from hubbub_decoder.array_types import Floats
from hubbub_decoder.estimators.items import fit_whole_sets
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.planning.privset import best_privset
from tests.support.paths import DOCS


def variance(mechanism: PrivSet, share: float) -> float:
    p, q = mechanism.prob_p, mechanism.prob_q
    return (share * q * (1 - q) + (1 - share) * p * (1 - p)) / (q - p) ** 2


def every_number_of_ones(items: int, own: int, epsilon: float, *shares: float) -> Floats:
    """Variances of the shares for all w, (w, shares), with e**epsilon exactly, as equation (24.2) has it."""
    k, e, rows = items + own, math.exp(epsilon), []
    for w in range(1, k // 2 + 1):
        rest = math.comb(k - own, w) / math.comb(k, w)
        q = e * (w / k) / (e - (e - 1) * rest)
        p = (w - own * q) / (k - own)
        rows.append([(share * q * (1 - q) + (1 - share) * p * (1 - p)) / (q - p) ** 2 for share in shares])
    return np.array(rows)


def test_number_of_ones_is_the_best_of_all(unseen_seed: int) -> None:
    """40 random sizes: least variance of a half where that of the share is within a twentieth of its least; rounded t loses a thousandth."""
    rng = np.random.default_rng(unseen_seed)
    for _ in range(40):
        items = int(np.exp(rng.uniform(np.log(4), np.log(400))))
        own, epsilon, share = (
            int(rng.integers(1, min(items, 20) + 1)),
            float(rng.uniform(0.5, 4)),
            float(rng.uniform(0, 0.3)),
        )
        best = best_privset(items, own, epsilon, share)
        assert best is not None
        assert epsilon - 1e-3 < best.epsilon(items + own, (), 1) <= epsilon
        of_share, of_half = every_number_of_ones(items, own, epsilon, share, 0.5).T
        assert variance(best, share) <= 1.051 * of_share.min()
        assert variance(best, 0.5) <= 1.001 * of_half[of_share <= 1.049 * of_share.min()].min()


def test_large_shares_have_no_larger_error_than_that_of_wheel() -> None:
    """500 items, 5 own, epsilon 4: w = 1 has the least variance of a small share, and 1.37 times that of Wheel from .2 to 1."""
    best, wheel = best_privset(500, 5, 4.0, 0.001), Wheel(items=500, own=5, epsilon=4.0)
    assert best is not None
    assert all(variance(best, share) < wheel.variance(share, 10**6) for share in (0, 0.01, 0.1, 0.5, 0.9))


@pytest.mark.parametrize(("items", "own"), [(1020, 5), (4, 5), (4, 0)])
def test_too_long_rows_have_no_mechanism(items: int, own: int) -> None:
    assert best_privset(items, own, 1.0, 0.01) is None


def wishes(**more: Any) -> Wishes:
    return Wishes(**{"kind": KindWord.SET, "num_candidates": 100, "epsilon": 1.0, "num_reports": 100_000, **more})


@pytest.mark.parametrize(
    ("items", "own", "epsilon", "whole"),
    [
        (100, 5, 1, True),
        (500, 5, 4, True),
        (30, 20, 1, False),
        (30, 3, 1, True),
        (2, 1, 1, True),
        (1000, 20, 0.5, True),
    ],
)
def test_mechanism_with_the_smaller_variance_is_chosen(items: int, own: int, epsilon: float, whole: bool) -> None:
    """n Var of a small share of one question is M e**eps / (e**eps - 1)**2, and that of rows is the least of all w."""
    planned = plan(wishes(num_candidates=items, own=own, epsilon=epsilon), expires=date(2099, 1, 1))
    question = items * math.exp(epsilon) / math.expm1(epsilon) ** 2
    assert whole == (every_number_of_ones(items, own, epsilon, 0.0).min() < question)
    assert isinstance(planned.metric.params.mechanism, PrivSet if whole else UnaryResponse)
    assert epsilon - 1e-3 < epsilon_of(planned.metric) <= epsilon
    assert parse_definitions(planned.toml().replace("TODO", "text"))["metric"].digest == planned.metric.digest
    if items <= 256:
        assert planned.other is not None
        assert planned.other > 1
        assert any("is chosen" in note for note in planned.notes)
    assert any("reports a random" in note for note in planned.notes) == whole


def test_planned_error_is_the_delivered_one(unseen_seed: int) -> None:
    """Mean squared error of 300 items over 8 runs within 6 standard errors, 17 %, of the law: of the mean of 2,400 squares."""
    planned = plan(wishes(num_candidates=300, own=5, num_reports=20_000, epsilon=2.0))
    mechanism, rng = planned.metric.params.mechanism, np.random.default_rng(unseen_seed)
    assert isinstance(mechanism, PrivSet)
    names = planned.metric.kind.named_values
    population = {",".join(names[start : start + 5]): 400 for start in range(0, 150, 5)} | {"": 8_000}
    truth = np.array([0.02] * 150 + [0.0] * 150)
    squares = []
    for _ in range(8):
        counts = simulate(planned.metric, population, rng)
        squares.append((fit_whole_sets(Evidence(counts), "reporters", mechanism).shares - truth) ** 2)
    law = planned.description.accuracy.variance(truth).mean()
    assert np.mean(squares) / law == pytest.approx(1, abs=6 * math.sqrt(2 / 2_400))


SIZES = {0: 0.1, 2: 0.3, 5: 0.4, 20: 0.2}
"""Parts of the clients by their number of items."""


@pytest.mark.parametrize("items", [400, 2000])
def test_sizes_decide_the_largest_set_and_the_mean_share(items: int) -> None:
    """m = 19: .6 + 2 + .2 m >= .95 x 6.6 = 6.27 from 18.35 on; and 6.4 items of the 6.6 are reported."""
    planned = plan(wishes(num_candidates=items, own=SIZES, epsilon=2.0))
    assert planned.metric.params.mechanism.fields["max_items"] == 19
    assert planned.description.accuracy.shares.total == pytest.approx(6.4)
    notes = " ".join(planned.notes)
    assert "max_items = 19 is chosen" in notes
    assert "0.2 of the clients have more than 19 items" in notes
    assert "is 1.03 times its estimate" in notes
    assert "1.05 times" in notes
    all_alike, number = (plan(wishes(num_candidates=items, own=own, epsilon=2.0)) for own in ({19: 1.0}, 19))
    assert all_alike.toml() == number.toml()
    assert number.description.accuracy.shares.total == pytest.approx(19)


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({2: 0.3, 5: 0.6}, "must have parts of the clients that add up to 100 %, got 90 %"),
        ({2: 1.3}, r"own must be a number in \[0, 1\], got 1.3: it is the part of the clients with 2 items"),
        ({-2: 1.0}, "own must be an integer >= 0, got -2"),
        ({0: 1.0}, "own must have a size above 0"),
        ({}, "add up to 100 %, got 0 %"),
        (0, "own must be an integer >= 1, got 0"),
    ],
)
def test_sizes_that_no_clients_have_are_refused(own: int | Mapping[int, float], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        wishes(own=own)


@pytest.mark.parametrize(
    ("items", "own", "cohorts"), [(1019, 5, 1), (1020, 5, 32), (2000, 8, 64), (5000, 20, 128), (10_000, 64, 256)]
)
def test_longer_lists_are_hashed_by_enough_cohorts(items: int, own: int, cohorts: int) -> None:
    """At least 22 M / (k - 1) of them, and no more than a power of two needs; the definition names no items."""
    planned = plan(wishes(num_candidates=items, own=own, epsilon=2.0), expires=date(2099, 1, 1))
    metric = planned.metric
    assert (metric.num_bits, metric.num_cohorts) == (1024, cohorts)
    assert isinstance(metric.kind, HashedSetKind if cohorts > 1 else WholeSetKind)
    assert 1.99 < epsilon_of(metric) <= 2
    assert parse_definitions(planned.toml().replace("TODO", "text"))["metric"].digest == metric.digest
    if cohorts > 1:
        assert cohorts / 2 < 22 * items / 1023 <= cohorts
        assert math.isinf(describe(metric, num_reports=10**6, num_candidates=10**6).accuracy.std_error(0.0))


def test_planned_error_of_hashed_items_is_the_delivered_one(unseen_seed: int) -> None:
    """Mean squared error of 1,100 items over 2 runs within 6 standard errors, 18 %, of the law: of the mean of 2,200 squares."""
    planned = plan(wishes(num_candidates=1_100, own={0: 0.4, 5: 0.6}, num_reports=20_000, epsilon=2.0))
    rng, names = np.random.default_rng(unseen_seed), [f"i{number}" for number in range(1_100)]
    population = {",".join(names[start : start + 5]): 400 for start in range(0, 150, 5)} | {"": 8_000}
    truth = np.array([0.02] * 150 + [0.0] * 950)
    squares = []
    for _ in range(2):
        decoding = decode(simulate(planned.metric, population, rng), names, target="reporters")
        squares.append(np.square([decoding[name].share for name in names] - truth))
    law = planned.description.accuracy.variance(truth).mean()
    assert np.mean(squares) / law == pytest.approx(1, abs=6 * math.sqrt(2 / 2_200))


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
def test_clients_with_few_items_are_planned_with_few_others_in_a_bucket(epsilon: float, unseen_seed: int) -> None:
    """2,000 independent items under Zipf's law, of mean size 10 of at most 20: within 6 standard errors, 19 %, of the law.

    With 20 others of every client, and the same weight of all cells, the law would be 1.4 times the error at epsilon 4.
    """
    clients, names = 10**6, [f"i{number}" for number in range(2_000)]
    planned = plan(wishes(num_candidates=2_000, own={0: 0.5, 20: 0.5}, num_reports=clients, epsilon=epsilon))
    law, ranks = planned.description.accuracy, np.arange(1, 2_001)
    shares = np.minimum(10 / (1 / ranks).sum() / ranks, 0.95)
    counts = hashed_counts(planned.metric, names, shares, clients, np.random.default_rng(unseen_seed))
    decoding = decode(counts, names, target="reporters")
    squares = np.square([decoding[name].share for name in names] - shares)
    assert squares.mean() / law.variance(shares).mean() == pytest.approx(1, abs=6 * math.sqrt(2 / 2_000))


def test_epochs_and_a_central_epsilon_lower_the_epsilon_of_a_row() -> None:
    held = plan(wishes(own=5, epsilon=2.0, longitudinal=3.0, hold=3, periods=3)).metric
    assert isinstance(held.params.mechanism, PrivSet)
    assert 0.99 < epsilon_of(held) <= 1.0
    hidden = plan(wishes(own=5, epsilon=4.0, num_reports=10_000, central=0.05)).metric
    assert 0 < epsilon_of(hidden) < 4.0


def test_table_of_the_guide_has_the_limits_of_the_plans() -> None:
    """Both designs, each on its own: without `own` a client answers one question."""
    table = (DOCS / "how-to" / "planning.md").read_text().partition("## Sets from long lists")[2]
    lines = re.findall(r"^\| (\d+) \| (\d) \| ([\d.]+) % \| ([\d.]+ %|-) \|$", table, re.MULTILINE)
    assert len(lines) == 9
    limits, shown = [], []
    for items, epsilon, whole, asked in lines:
        of = {"num_candidates": int(items), "epsilon": float(epsilon)}
        designs = [wishes(own=8, **of)] if asked == "-" else [wishes(own=8, **of), wishes(**of)]
        limits += [f"{plan(design).description.detection_limit:.1%}" for design in designs]
        shown += [f"{whole}%", asked.replace(" %", "%")][: len(designs)]
    assert limits == shown
    planned = plan(wishes(num_candidates=500, own=8, epsilon=2.0)).metric
    assert (planned.num_bits, planned.blocks[0].mechanism.fields["num_ones"]) == (508, 10)
    few = plan(wishes(num_candidates=30, own=20)).metric.kind
    assert isinstance(few, AskedItemKind)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"num_candidates": 300}, "`num_candidates` is 300: a set metric has 2 to 256 items, and with `own`"),
        (
            {"num_candidates": 10_001, "own": 5},
            "`num_candidates` is 10001: a set metric has 2 to 256 items, and with `own`",
        ),
        (
            {"num_candidates": 1020, "own": 65},
            "`own = 65` with `num_candidates = 1020`: items and max_items = 65 are above 1,024 together",
        ),
        ({"num_candidates": 4, "own": 5}, "`own = 5` of `num_candidates = 4`"),
        ({"num_candidates": 300, "own": 5, "longitudinal": 2.0}, "each report costs epsilon again"),
        ({"kind": KindWord.CATEGORICAL, "own": 5}, "`own = 5` with `kind = categorical`: only a set"),
        ({"kind": KindWord.STRING, "own": 5}, "`own = 5` with `kind = string`: only a set"),
    ],
)
def test_wishes_that_exclude_each_other_are_refused(more: Mapping[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        wishes(**more)


def test_command_plans_whole_sets() -> None:
    options = ["plan", "--kind", "set", "--num-candidates", "500", "--epsilon", "2", "--reports", "100000"]
    done = CliRunner().invoke(main, [*options, "--own", "8"])
    assert done.exit_code == 0
    metric = parse_definitions(done.stdout.replace("TODO", "text"))["metric"]
    assert (metric.num_bits, metric.params.mechanism.fields["max_items"]) == (508, 8)
    sized = CliRunner().invoke(main, [*options, "--own", "4=40%,8=55%,12=5%"])
    assert parse_definitions(sized.stdout.replace("TODO", "text"))["metric"].params.mechanism.fields["max_items"] == 8
    refused = CliRunner().invoke(main, [*options, "--own", "4=40%,4=60%"])
    assert refused.exit_code == 2
    assert "names the clients with 4 items twice, got '4=40%,4=60%'" in refused.stderr
    for text in ("eight", "4=40,8=60", "4=40%,", "-1"):
        refused = CliRunner().invoke(main, [*options, "--own", text])
        assert refused.exit_code == 2
        assert f"such as 2=30%,5=50%,20=20%, got {text!r}" in refused.stderr
    refused = CliRunner().invoke(main, [*options, "--own", "4=40%,8=50%"])
    assert "--own must have parts of the clients that add up to 100 %, got 90 %" in refused.stderr
    assert refused.exit_code == 1
    refused = CliRunner().invoke(main, options)
    assert refused.exit_code != 0
    assert "--own" in refused.stderr
