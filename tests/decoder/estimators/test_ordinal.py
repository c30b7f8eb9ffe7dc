"""Mean, quantiles and distribution function of ordinal metrics: against exact answers, another method and simulation."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import binom, norm

from hubbub import Buckets, Metric, UnaryResponse
from hubbub.summary import BitCounts
from hubbub_decoder import compare, decode
from hubbub_decoder.array_types import Floats
from hubbub_decoder.estimators.ordinal import BucketShares, fit_buckets
from hubbub_decoder.inference.shrinkage import project_to_total
from hubbub_decoder.inference.smoothing import smooth_shares
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.options import Target
from hubbub_decoder.results.ordinal import QUANTILES, Numbers, build_numbers
from hubbub_decoder.simulation import simulate
from tests.support.every_kind import buckets_of

ALPHA = 1e-6
EDGES = (0, 1, 3, 10, 20)


def exact_metric(default: float | None = None) -> Metric:
    """Without noise."""
    return Metric.ordinal("v", Buckets(EDGES, default=default), UnaryResponse(prob_p=0, prob_q=1, prob_f=0))


def noisy_metric(default: float | None = None, edges: tuple[float, ...] = EDGES) -> Metric:
    return Metric.ordinal("v", Buckets(edges, default=default), UnaryResponse(prob_p=0.2, prob_q=0.5, prob_f=0))


def numbers_of(counts: BitCounts) -> Numbers:
    numbers = decode(counts).numbers
    assert numbers is not None
    return numbers


def test_numbers_without_noise_are_exact() -> None:
    """Of 1,000 reports 100 have no value, and 90, 360, 360 and 90 are in the buckets: shares .1, .4, .4, .1 of those with a value."""
    numbers = numbers_of(BitCounts(exact_metric(), [1000], [[90, 360, 360, 90]]))
    assert numbers.mean.value == pytest.approx(0.1 * 0.5 + 0.4 * 2 + 0.4 * 6.5 + 0.1 * 15)
    assert [point.share for point in numbers.distribution] == pytest.approx([0.1, 0.5, 0.9])
    assert [point.edge for point in numbers.distribution] == [1, 3, 10]
    low, high = 0.4 * 1 + 0.4 * 3 + 0.1 * 10, 0.1 * 1 + 0.4 * 3 + 0.4 * 10 + 0.1 * 20
    assert (numbers.mean.lowest, numbers.mean.highest) == pytest.approx((low, high))
    at = {quantile.probability: quantile for quantile in numbers.quantiles}
    assert at[0.5].value == pytest.approx(3)
    assert at[0.75].value == pytest.approx(3 + 7 * 0.25 / 0.4)
    assert (at[0.75].low, at[0.75].high) == pytest.approx((at[0.75].value,) * 2, abs=1e-6)
    assert (at[0.75].lowest, at[0.75].highest) == (3, 10)


@pytest.mark.parametrize(("t", "expected"), [(0.2, 2.5), (0.4, 5), (0.8, 10), (0.9, 20)])
def test_quantile_is_interpolated_within_its_bucket(t: float, expected: float) -> None:
    """80 % of the numbers below 10 and the others between 10 and 30, evenly in each bucket."""
    shares = np.array([0.8, 0.2])
    found = BucketShares(Buckets((0, 10, 30)), shares, np.eye(2) * 1e-12, shares)
    value, low, high = found.quantile(t, 0.95)
    assert value == pytest.approx(expected)
    assert low == pytest.approx(expected, abs=1e-3)
    assert high == pytest.approx(expected, abs=1e-3)


def test_representatives_stand_for_buckets_in_the_mean() -> None:
    metric = Metric.ordinal(
        "v", Buckets((0, 1, 2, 5), representatives=(0, 1, 3)), UnaryResponse(prob_p=0, prob_q=1, prob_f=0)
    )
    numbers = numbers_of(BitCounts(metric, [100], [[50, 30, 20]]))
    assert numbers.mean.value == pytest.approx(0.3 + 0.6)


def test_reports_without_any_value_determine_nothing() -> None:
    """p = .2, q = .5, every true bit 0."""
    numbers = numbers_of(BitCounts(noisy_metric(), [1000], [[200, 200, 200, 200]]))
    assert math.isnan(numbers.mean.value)
    assert (numbers.mean.low, numbers.mean.high) == (0.5, 15)
    assert all((point.low, point.high) == (0, 1) for point in numbers.distribution)
    assert all((quantile.low, quantile.high) == (0, 20) for quantile in numbers.quantiles)


def test_known_total_gives_least_squares_shares_and_smaller_errors() -> None:
    """Against ordinary least squares on the shares with one eliminated."""
    ones = [[250, 330, 300, 240]]
    with_default = fit_buckets(
        Evidence(BitCounts(noisy_metric(0), [1000], ones)), Buckets(EDGES, default=0), "reporters"
    )
    free = fit_buckets(Evidence(BitCounts(noisy_metric(), [1000], ones)), Buckets(EDGES), "reporters")
    weights = np.linalg.inv(free.covariance)
    design = np.vstack([np.eye(3), -np.ones(3)])
    offset = np.array([0, 0, 0, 1.0])
    covariance = np.linalg.inv(design.T @ weights @ design)
    solution = design @ (covariance @ design.T @ weights @ (free.shares - offset)) + offset
    assert with_default.shares == pytest.approx(solution)
    assert with_default.covariance == pytest.approx(design @ covariance @ design.T)
    assert with_default.shares.sum() == pytest.approx(1)
    assert (np.diag(with_default.covariance) < np.diag(free.covariance)).all()


def test_buckets_of_two_groups_are_compared() -> None:
    first, second = (
        BitCounts(noisy_metric(), [10_000], [ones]) for ones in ([3500, 2500, 2600, 2400], [2500, 3500, 2600, 2400])
    )
    changes = {change.candidate: change.change for change in compare(first, second, same_clients=False)}
    assert changes["below 1"] == pytest.approx(-1 / 3)
    assert changes["1 to 3"] == pytest.approx(1 / 3)
    assert changes["3 to 10"] == pytest.approx(0, abs=1e-12)


def random_fit(chance: np.random.Generator) -> BucketShares:
    size = int(chance.integers(2, 9))
    edges = tuple(np.cumsum(chance.uniform(0.2, 3, size + 1)).tolist())
    shares = chance.dirichlet(np.ones(size)) * chance.uniform(0.5, 1) + chance.normal(0, 0.02, size)
    root = chance.normal(0, 0.02, (size, size))
    return BucketShares(Buckets(edges), shares, root @ root.T, np.maximum(shares, 0))


def contrast(fit: BucketShares, y: float, t: float) -> tuple[float, float]:
    """Estimate of F(y) - t times the share with a value, and its standard error."""
    below = np.array([min(max((y - left) / (right - left), 0), 1) for left, right in pairwise(fit.buckets.edges)])
    weights = below - t
    return float(weights @ fit.shares), math.sqrt(float(weights @ fit.covariance @ weights))


def is_limit(fit: BucketShares, t: float, z: float, y: float, beyond: Floats) -> bool:
    """Whether y is the first point that is not below the quantile, or for z < 0 the last that is not above, and none beyond is such a point."""

    def excess(point: float) -> float:
        estimate, error = contrast(fit, point, t)
        return math.copysign(1, z) * (estimate + z * error)

    ends = fit.buckets.edges[0], fit.buckets.edges[-1]
    return all(excess(point) < 0 for point in beyond) and (
        abs(excess(y)) < 1e-9 or (y in ends and (len(beyond) > 0 or excess(y) >= 0))
    )


def test_quantile_interval_inverts_the_test_at_every_point(unseen_seed: int) -> None:
    """Against a scan over 1,001 points. Between two of them, others may be accepted."""
    chance = np.random.default_rng(unseen_seed)
    z = float(norm.isf(0.025))
    for _ in range(30):
        fit, t = random_fit(chance), float(chance.uniform(0.02, 0.98))
        _, *ends = fit.quantile(t, 0.95)
        points = np.linspace(fit.buckets.edges[0], fit.buckets.edges[-1], 1001)
        assert any(
            is_limit(fit, t, z, first, points[points < first]) and is_limit(fit, t, -z, last, points[points > last])
            for first, last in (ends, reversed(ends))
        )


def test_ratio_interval_ends_are_limits_of_the_test(unseen_seed: int) -> None:
    """At each end that the range of the weights does not cut, |w'x - theta d| is z standard errors (Fieller)."""
    chance = np.random.default_rng(unseen_seed)
    z = float(norm.isf(0.025))
    for _ in range(40):
        fit = random_fit(chance)
        weights = chance.normal(size=len(fit.shares))
        ratio = fit.ratio(weights, 0.95)
        for end in (ratio.low, ratio.high):
            if weights.min() < end < weights.max():
                moved = weights - end
                assert abs(moved @ fit.shares) == pytest.approx(z * math.sqrt(moved @ fit.covariance @ moved), rel=1e-6)


@pytest.mark.parametrize("target", ["reporters", "population"])
def test_smoothed_shares_have_each_variance_once(target: Target) -> None:
    """60 reports with little noise: the choice of the clients has nearly all of the variance of a population's shares."""
    metric = Metric.ordinal("delay", range(6), UnaryResponse(prob_p=0.01, prob_q=0.99, prob_f=0.1))
    counts = BitCounts(metric, [60], [[25, 6, 20, 7, 14]])
    fit = fit_buckets(Evidence(counts), buckets_of(metric), target)
    present = project_to_total(fit.shares, min(fit.shares.sum(), 1.0))
    mechanism = metric.params.mechanism
    noise = present * mechanism.q_star * (1 - mechanism.q_star) + (1 - present) * mechanism.p_star * (
        1 - mechanism.p_star
    )
    variances = noise / 60 / (mechanism.q_star - mechanism.p_star) ** 2 + (
        present / 60 if target == "population" else 0
    )
    expected = smooth_shares(fit.shares, variances, min(fit.shares.sum(), 1.0), known=False)
    assert fit.guess == pytest.approx(expected, abs=1e-12)


def test_smoothed_shares_are_a_distribution_and_closer_where_it_is_smooth(unseen_seed: int) -> None:
    """32 buckets, 20,000 reports: their squared error is below that of the unbiased shares, on average over 20 decodings."""
    chance = np.random.default_rng(unseen_seed)
    edges = tuple(range(33))
    metric = noisy_metric(edges=edges)
    weights = np.exp(-(((np.arange(32) - 12) / 5) ** 2))
    true = weights / weights.sum()
    raw = smoothed = 0.0
    for _ in range(20):
        drawn = chance.multinomial(20_000, true)
        counts = simulate(metric, dict(zip(metric.kind.labels, drawn.tolist(), strict=True)), chance)
        fit = fit_buckets(Evidence(counts), buckets_of(metric), "reporters")
        assert fit.guess.min() >= 0
        assert fit.guess.sum() == pytest.approx(min(max(fit.shares.sum(), 0), 1))
        raw += float(((fit.shares - drawn / 20_000) ** 2).sum())
        smoothed += float(((fit.guess - drawn / 20_000) ** 2).sum())
    assert smoothed < 0.6 * raw  # .17 to .2 in 20 trials


def interpolated_quantile(shares: Floats, edges: tuple[float, ...], t: float) -> float:
    cumulative = np.concatenate([[0.0], np.cumsum(shares)]) / shares.sum()
    i = max(1, int(np.searchsorted(cumulative, t)))
    return float(
        edges[i - 1] + (t - cumulative[i - 1]) / (cumulative[i] - cumulative[i - 1]) * (edges[i] - edges[i - 1])
    )


@pytest.mark.slow
@pytest.mark.parametrize("target", ["reporters", "population"])
@pytest.mark.parametrize("default", [None, 0.0])
def test_intervals_cover_mean_quantiles_and_distribution_function(
    default: float | None, target: str, unseen_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,000 decodings of random tasks: intervals four fifths as wide fail. Each kind of interval misses 5 %; the number of decodings in which it misses must be possible at
    a rate of 4 % to 6.5 % at alpha = 1e-6. Several intervals of one decoding depend on each other, so one of each kind is counted.
    """
    monkeypatch.setattr(
        "hubbub_decoder.estimators.ordinal.smooth_shares", lambda shares, *_, **__: np.maximum(shares, 0) + 1e-9
    )
    chance = np.random.default_rng(unseen_seed)
    missed = dict.fromkeys(("mean", "quantile", "distribution", "bounds"), 0)
    trials = 1_000
    for _ in range(trials):
        size = int(chance.integers(2, 17))
        edges = (0.0, *np.cumsum(chance.uniform(0.5, 3, size)).tolist())
        metric = noisy_metric(default, edges)
        shares = chance.dirichlet(np.full(size, 2.0))
        n, absent = int(10 ** chance.uniform(4.3, 6)), 0.0 if default is not None else float(chance.uniform(0, 0.4))
        drawn = chance.multinomial(n, [*(shares * (1 - absent)), absent])
        population = dict(zip(metric.kind.labels, drawn[:-1].tolist(), strict=True))
        counts = simulate(metric, population, chance, no_value=int(drawn[-1]))
        numbers = build_numbers(fit_buckets(Evidence(counts), buckets_of(metric), target), 0.95)  # type: ignore[arg-type]
        true = drawn[:-1] / drawn[:-1].sum() if target == "reporters" else shares
        mean = float(true @ np.array(buckets_of(metric).centers))
        missed["mean"] += not numbers.mean.low <= mean <= numbers.mean.high
        missed["bounds"] += not numbers.mean.lowest <= mean <= numbers.mean.highest
        quantile = numbers.quantiles[int(chance.integers(len(QUANTILES)))]
        number = interpolated_quantile(true, edges, quantile.probability)
        missed["quantile"] += not quantile.low - 1e-9 <= number <= quantile.high + 1e-9
        point = numbers.distribution[int(chance.integers(size - 1))]
        share = float(true[: list(edges).index(point.edge)].sum())
        missed["distribution"] += not point.low <= share <= point.high
    for kind in ("mean", "quantile", "distribution"):
        assert binom.sf(missed[kind] - 1, trials, 0.065) > ALPHA, missed
        assert binom.cdf(missed[kind], trials, 0.04) > ALPHA, missed
    assert missed["bounds"] <= missed["mean"]
