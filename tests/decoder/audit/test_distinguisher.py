"""Likelihood ratios and their law, compared with the enumeration of all reports; learned ratios, compared with the exact ones."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from hubbub import Metric, Params, UnaryResponse
from hubbub.mechanisms.subset import SubsetSelection
from hubbub.metrics.kinds import CategoricalKind
from hubbub.privacy import epsilon
from hubbub_decoder.audit.bound import epsilon_lower_bounds
from hubbub_decoder.audit.clients import ClientReports
from hubbub_decoder.audit.distinguisher import (
    DeclaredRatio,
    LearnedRatio,
    Observations,
    count_histogram,
    learned_ratios,
)
from hubbub_decoder.audit.laws import ReportLaw, true_bits
from hubbub_decoder.audit.loss_law import declared_event, loss_law, trials_needed
from tests.support.enumerate_mechanism import report_distribution
from tests.support.enumerate_rows import row_distribution

NOISE = [(0.25, 0.75, 0.5), (0.0, 1.0, 0.5), (0.1, 0.5, 0.25), (0.3, 0.8, 0.0)]


def all_reports(k: int, reports: int) -> ClientReports:
    """Every output of t reports of k bits, in the order of `report_distribution`: the first report varies slowest."""
    rows = [
        [[pattern >> bit & 1 for bit in range(k)] for pattern in patterns]
        for patterns in itertools.product(range(1 << k), repeat=reports)
    ]
    return ClientReports(np.zeros(len(rows), np.int64), np.array(rows, np.uint8))


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("a", None)])
@pytest.mark.parametrize("reports", [1, 2])
def test_score_is_the_log_likelihood_ratio_of_all_reports(
    noise: tuple[float, float, float], first: str, second: str | None, reports: int
) -> None:
    p, q, f = noise
    metric = Metric.categorical("c", ("a", "b", "c"), UnaryResponse(prob_p=p, prob_q=q, prob_f=f))
    laws = [ReportLaw(metric, value) for value in (first, second)]
    bits = [int((law.truth[0] * 2 ** np.arange(3)).sum()) for law in laws]
    law = report_distribution(metric.params, bits, reports)
    made = all_reports(3, reports)
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = np.log(law[0]) - np.log(law[1])
        exact = [np.log(of_value) for of_value in law]
    for of_value, logs in zip(laws, exact, strict=True):
        assert of_value.log_probabilities(made.cohorts, made.bits) == pytest.approx(logs, abs=1e-9)
    possible = np.isfinite(expected)
    assert possible.any()
    scores = DeclaredRatio(laws[0], laws[1]).scores(made)
    assert np.abs(scores[possible] - expected[possible]).max() <= 1e-6  # the grid of scores


@pytest.mark.parametrize("noise", NOISE)
def test_law_of_the_score_is_that_of_all_reports(noise: tuple[float, float, float]) -> None:
    """Mixture over cohorts; the largest loss of disjoint bits is the declared epsilon."""
    p, q, f = noise
    params = Params(num_bits=8, num_hashes=2, num_cohorts=4, prob_p=p, prob_q=q, prob_f=f)
    metric = Metric.string("page", params)
    first, second = true_bits(metric, "v1"), true_bits(metric, "v3")
    law = loss_law(metric, first, second, 1, 1)
    expected: dict[float, float] = {}
    for bits, other in zip(first, second, strict=True):
        pair = [int((row * 2 ** np.arange(8)).sum()) for row in (bits, other)]
        one, two = report_distribution(params, pair, 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.clip(np.nan_to_num(np.log(one) - np.log(two)), -40, 40)
        for loss, chance in zip(ratio.round(6).tolist(), one.tolist(), strict=True):
            expected[loss] = expected.get(loss, 0.0) + chance / 4
    if p > 0:
        assert law.loss.round(6).tolist() == pytest.approx(sorted(expected))
        assert law.first.tolist() == pytest.approx([expected[loss] for loss in sorted(expected)], abs=1e-12)
    assert law.first.sum() == pytest.approx(1)
    assert law.second.sum() == pytest.approx(1)
    if ((first.sum(axis=1) == 2) & (second.sum(axis=1) == 2) & ((first & second).sum(axis=1) == 0)).any():
        assert law.loss.max() == pytest.approx(epsilon(params))


ROWS = [(4, 1, 0.6, 0.7), (4, 2, 0.75, 0.625), (5, 2, 0.7, 1.0)]


def rows_metric(num_values: int, num_ones: int, prob_q: float, permanent_q: float) -> Metric:
    mechanism = SubsetSelection(num_values=num_values, num_ones=num_ones, prob_q=prob_q, permanent_q=permanent_q)
    return Metric("theme", CategoricalKind.one_hot([f"v{i}" for i in range(num_values - 1)], None, mechanism))


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("reports", [1, 2])
def test_score_of_rows_is_the_log_likelihood_ratio_of_all_sequences(
    row: tuple[int, int, float, float], reports: int
) -> None:
    metric = rows_metric(*row)
    mechanism = metric.params.mechanism
    assert isinstance(mechanism, SubsetSelection)
    d, w = row[:2]
    of_report = [[int(v in ones) for v in range(d)] for ones in itertools.combinations(range(d), w)]
    sequences = np.array(list(itertools.product(of_report, repeat=reports)), np.uint8)
    made = ClientReports(np.zeros(len(sequences), np.int64), sequences)
    ratio = DeclaredRatio(ReportLaw(metric, "v1"), ReportLaw(metric, None))
    laws = np.array(row_distribution(mechanism, reports))
    assert ratio.first.log_probabilities(made.cohorts, made.bits) == pytest.approx(np.log(laws[1]), abs=1e-9)
    assert ratio.scores(made) == pytest.approx(np.log(laws[1] / laws[-1]), abs=1e-6)


@pytest.mark.parametrize("row", ROWS)
def test_simulated_law_of_rows_is_that_of_all_sequences(row: tuple[int, int, float, float]) -> None:
    """Two epochs of two reports: the probabilities of all losses, within 6 standard errors of 200,000 clients."""
    metric = rows_metric(*row)
    mechanism = metric.params.mechanism
    assert isinstance(mechanism, SubsetSelection)
    law = loss_law(metric, true_bits(metric, "v0"), true_bits(metric, "v2"), 2, 2)
    first, _, second, *_ = np.array(row_distribution(mechanism, 2))
    losses, chances = np.add.outer(*[np.log(first / second)] * 2).ravel(), np.multiply.outer(first, first).ravel()
    for threshold in np.quantile(losses, (0.1, 0.3, 0.5, 0.7, 0.9)) + 1e-4:
        assert law.first[law.loss > threshold].sum() == pytest.approx(chances[losses > threshold].sum(), abs=0.007)
    assert (law.first.sum(), law.second.sum()) == (pytest.approx(1), pytest.approx(1))
    assert law.loss.max() == pytest.approx(losses.max(), abs=0.01)


def test_law_of_epochs_is_the_convolution_of_one_epoch() -> None:
    metric = Metric.boolean("survey", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5))
    law = loss_law(metric, true_bits(metric, True), true_bits(metric, False), 1, 4)
    assert law.loss.max() == pytest.approx(math.log(81))
    assert law.first[-1] == pytest.approx(0.75**4)
    assert law.second[-1] == pytest.approx(0.25**4)


def test_needed_trials_of_a_coin_follow_the_delta_method() -> None:
    """Two coins: one event, P = .75 and .25, margin .05 ln 3."""
    metric = Metric.boolean("survey", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5))
    law = loss_law(metric, true_bits(metric, True), true_bits(metric, False), 1, 1)
    spread = 2.5758293 * (math.sqrt(1 / 3) + math.sqrt(3)) + 2.3263479 * math.sqrt(1 / 3 + 3)
    assert trials_needed(law, math.log(3), 0.01) == pytest.approx((spread / (0.05 * math.log(3))) ** 2, rel=1e-6)
    assert trials_needed(law, 2.0, 0.01) == math.inf


def test_declared_event_of_a_coin_is_its_likelier_side() -> None:
    metric = Metric.boolean("survey", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5))
    law = loss_law(metric, true_bits(metric, True), true_bits(metric, False), 1, 1)
    event = declared_event(law, 10_000, 0.01)
    assert event.sign == 1
    assert event.threshold == pytest.approx(math.log(3))


@pytest.mark.parametrize("noise", [(0.25, 0.75, 0.5), (0.1, 0.5, 0.25)])
def test_declared_event_reaches_95_percent_of_the_claim_with_power_99_percent(
    noise: tuple[float, float, float], unseen_seed: int
) -> None:
    """100,000 audits drawn from the law. 1 % miss, with a standard error of .03 %; the rest up to 2 % is the delta method's."""
    p, q, f = noise
    metric = Metric.string("page", Params(num_bits=16, num_hashes=2, num_cohorts=4, prob_p=p, prob_q=q, prob_f=f))
    law = loss_law(metric, true_bits(metric, "v1"), true_bits(metric, "v3"), 1, 1)
    claim = float(law.loss.max())
    trials = math.ceil(trials_needed(law, claim, 0.01))
    event = declared_event(law, trials, 0.01)
    chances = [probabilities[event.occurs(law.loss)].sum() for probabilities in (law.first, law.second)[:: event.sign]]
    rng = np.random.default_rng(unseen_seed)
    counts, other = (rng.binomial(trials, chance, 100_000).astype(float) for chance in chances)
    assert 0.002 < (epsilon_lower_bounds(counts, trials, other, trials, 0.01) < 0.95 * claim).mean() < 0.02


def test_scores_of_unknown_cohorts_are_zero() -> None:
    table = np.zeros((2, 1, 2))
    table[:, 0, 1] = 1.0
    made = ClientReports(np.array([0, 1, 2]), np.ones((3, 1, 1), np.uint8))
    assert LearnedRatio(table).scores(made).tolist() == [1, 1, 0]


def test_ones_are_counted_in_each_epoch() -> None:
    bits = np.array([[[1, 0], [1, 0], [0, 1], [0, 1], [1, 1], [1, 1]]], np.uint8)
    seen = Observations.of(ClientReports(np.zeros(1, np.int64), bits), 3)
    assert seen.ones.tolist() == [[[2, 1], [2, 3]]]
    assert count_histogram(seen, 1, 3)[0].tolist() == [[0, 0, 2, 0], [0, 1, 0, 1]]


def test_learned_cohorts_are_those_that_differ() -> None:
    """8 cohorts of 100 clients, in two epochs: the second value never has cohort 3, and its clients of cohort 5 are 20 fewer."""
    counts = np.full((8, 1, 2), 100)
    other = counts.copy()
    other[3], other[5] = 0, 80
    learned = learned_ratios(counts, other, 2).cohort_table
    assert np.flatnonzero(learned).tolist() == [3]
    assert learned[3] == pytest.approx(math.log(100.5 / 801) - math.log(0.5 / 681))


def test_score_of_a_cohort_is_added_to_the_score_of_its_bits() -> None:
    table = np.zeros((2, 1, 2))
    table[:, 0, 1] = 1.0
    made = ClientReports(np.array([0, 1, 2]), np.ones((3, 1, 1), np.uint8))
    assert LearnedRatio(table, np.array([5.0, -2.0])).scores(made).tolist() == [6, -1, 0]


def test_learned_bits_are_those_that_differ() -> None:
    """64 bits in 1 cohort: bit 5 differs strongly, bit 7 by one standard error, and the others are equal."""
    equal = np.tile([500, 500], (1, 64, 1))
    counts, other = equal.copy(), equal.copy()
    counts[0, 7] = (520, 480)
    counts[0, 5], other[0, 5] = (200, 800), (800, 200)
    table = learned_ratios(counts, other, 1).table
    assert np.flatnonzero(table.any(axis=(0, 2))).tolist() == [5]
    assert table[0, 5] == pytest.approx([math.log(200.5 / 800.5), math.log(800.5 / 200.5)])
