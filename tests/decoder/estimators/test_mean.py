"""Mean of an ordinal metric with estimate = "mean": against exact answers, its stated variance and simulation."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import binom, chi2

from hubbub import Buckets, Encoder, Metric, Secret, UnaryResponse
from hubbub.errors import SummaryError
from hubbub.metrics.buckets import Estimand
from hubbub.summary import BitCounts, PatternCounts
from hubbub.testing import SeededBytes
from hubbub_decoder import compare, decode
from hubbub_decoder.array_types import Floats
from hubbub_decoder.errors import CandidateError, OutputError, PopulationError
from hubbub_decoder.estimators.ordinal import IntervalEstimate, estimate_mean
from hubbub_decoder.kinds.operations import operations_of
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.options import Target
from hubbub_decoder.results.ordinal import Mean
from hubbub_decoder.simulation import consecutive_periods, simulate
from tests.support.every_kind import buckets_of

ALPHA = 1e-6


def mean_metric(low: float = 0, high: float = 100, **noise: Any) -> Metric:
    noise = {"prob_p": 0.25, "prob_q": 0.75, "prob_f": 0.5} | noise
    return Metric.ordinal(
        "use", Buckets((low, high), unit="s", default=low, estimate=Estimand.MEAN), UnaryResponse(**noise)
    )


def mean_of(counts: BitCounts | PatternCounts) -> Mean:
    numbers = decode(counts).numbers
    assert numbers is not None
    return numbers.mean


def estimate(counts: BitCounts, target: Target) -> IntervalEstimate:
    return estimate_mean(Evidence(counts), buckets_of(counts.metric), target, 0.95)


def test_mean_without_noise_is_the_mean_share_of_the_cohorts() -> None:
    """Of 100 reports in each of 16 cohorts, all are ones in cohorts 0 to 3, and half in cohort 4: 4.5 / 16 of the range."""
    counts = BitCounts(mean_metric(prob_p=0, prob_q=1, prob_f=0), [100] * 16, [[100]] * 4 + [[50]] + [[0]] * 11)
    mean = mean_of(counts)
    assert mean.value == pytest.approx(100 * 4.5 / 16)
    assert (mean.lowest, mean.highest) == (mean.low, mean.high)


def test_mean_of_unequal_cohorts_weighs_them_equally() -> None:
    reports = [50] * 8 + [500] * 8
    counts = BitCounts(mean_metric(prob_p=0, prob_q=1, prob_f=0), reports, [[50]] * 8 + [[0]] * 8)
    assert mean_of(counts).value == pytest.approx(50)


@pytest.mark.parametrize(("per_cohort", "groups"), [(30, 16), (15, 8), (4, 2), (1, 1)])
def test_cohorts_with_few_reports_are_added_up(per_cohort: int, groups: int) -> None:
    """Without noise and with every second cohort of ones, the variance of a population is that of G groups, which have one report more of each kind."""
    ones = [[per_cohort], [0]] * 8
    counts = BitCounts(mean_metric(prob_p=0, prob_q=1, prob_f=0), [per_cohort] * 16, ones)
    found = estimate(counts, "population")
    share = 0.25 if groups < 16 else 1 / 32 * 31 / 32
    assert found.std_error == pytest.approx(100 * math.sqrt(share / (16 * per_cohort)))
    assert found.value == pytest.approx(50)


def test_decoding_has_no_shares_and_names_the_field_for_quantiles() -> None:
    counts = BitCounts(mean_metric(), [1000] * 16, [[500]] * 16)
    decoding = decode(counts)
    assert len(decoding) == 0
    assert decoding.warnings == ()
    numbers = decoding.to_dict()["numbers"]
    assert (numbers["quantiles"], numbers["distribution"], numbers["buckets"]) == ([], [], [])
    assert numbers["mean"]["value"] == pytest.approx(50)
    text = io.StringIO()
    Console(file=text, width=200).print(decoding)
    assert "Mean: 50 s (95% interval 4" in text.getvalue()
    assert "of numbers cut to 0 .. 100." in text.getvalue()
    assert 'remove estimate = "mean" and declare edges of buckets' in text.getvalue()


def test_what_needs_shares_is_refused_with_the_reason(tmp_path: Any) -> None:
    metric = mean_metric()
    counts = BitCounts(metric, [1000] * 16, [[500]] * 16)
    with pytest.raises(CandidateError, match="no share of any value"):
        decode(counts, ["5"])
    with pytest.raises(SummaryError, match="no shares that could be compared"):
        compare(counts, BitCounts(metric, [1000] * 16, [[400]] * 16))
    with pytest.raises(OutputError, match=r"would have no rows.*Use .json"):
        decode(counts).save(tmp_path / "x.csv")
    chance = np.random.default_rng(0)
    with pytest.raises(PopulationError, match="no named values"):
        operations_of(metric).draw("zipf", None, 10, chance)
    with pytest.raises(PopulationError, match="'many' is not a number of this ordinal metric"):
        simulate(metric, {"many": 3}, chance)


def test_cohorts_in_the_wrong_order_fail_a_goodness_of_fit_test(unseen_seed: int) -> None:
    """Clients that compare with 1 minus their threshold would send these counts; with the right order the test must pass."""
    counts = simulate(mean_metric(), {"50": 160_000}, np.random.default_rng(unseen_seed))
    p_values = {}
    for name, order in (("right", slice(None)), ("wrong", slice(None, None, -1))):
        turned = BitCounts(counts.metric, counts.reports[order], counts.ones[order])
        decoding = decode(turned)
        p_values[name] = {test.name: test.p_value for test in decoding.fit_tests}["thresholds"]
        assert any("More numbers reach high thresholds" in warning.text for warning in decoding.warnings) == (
            name == "wrong"
        )
    assert p_values["wrong"] < 1e-30
    assert p_values["right"] > ALPHA


def test_simulated_counts_have_the_law_of_the_encoder(unseen_seed: int) -> None:
    """3,000 clients at .34 of the range: ones of the true bits in each cohort, without noise, against the binomial law."""
    metric = mean_metric(prob_p=0, prob_q=1, prob_f=0)
    chance = np.random.default_rng(unseen_seed)
    random_bytes = SeededBytes(f"mean {unseen_seed}")
    encoders = [Encoder(metric, Secret(random_bytes(32))) for _ in range(3000)]
    encoded = [(encoder.cohort, encoder.encode(34).bits) for encoder in encoders]
    simulated = [simulate(metric, {"34": 3000}, chance)]
    simulated.append(simulate(metric, {"34": 3000}, chance, form=PatternCounts).bit_counts())
    reports, ones = np.zeros((3, 16), int), np.zeros((3, 16), int)
    for cohort, bits in encoded:
        reports[0, cohort] += 1
        ones[0, cohort] += any(bits)
    for row, counts in enumerate(simulated, start=1):
        reports[row], ones[row] = counts.reports, counts.ones[:, 0]
    assert (ones[:, :5] == reports[:, :5]).all()
    assert not ones[:, 6:].any()
    for of_five, n in zip(ones[:, 5].tolist(), reports[:, 5].tolist(), strict=True):  # .34 x 16 = 5.44
        assert binom.ppf(ALPHA / 6, n, 0.44) <= of_five <= binom.isf(ALPHA / 6, n, 0.44)


def exact_variance(
    metric: Metric, places: Floats, shares: Floats, clients: int, periods: int, target: Target = "population"
) -> float:
    """Variance of the mean as a fraction of the range, of N clients in T periods with one permanent response, without the estimator.

    In cohort c a client's true bit is 1 with probability pi_c; all its reports then have the rate q with probability s_c, else p.

        Var = sum_c m (m**-2) ((q - p)**2 s_c (1 - s_c) + (s_c q (1 - q) + (1 - s_c) p (1 - p)) / T) / (N (q* - p*)**2)

    less Var u / N among the reporters, since the bits of a client have the covariance Var u with its place u.
    """
    params, m = metric.params, metric.num_cohorts
    p, q = params.mechanism.prob_p, params.mechanism.prob_q
    pi = np.clip(m * places[:, None] - np.arange(m), 0, 1).T @ shares
    s = params.mechanism.permanent_p + (params.mechanism.permanent_q - params.mechanism.permanent_p) * pi
    of_client = (q - p) ** 2 * s * (1 - s) + (s * q * (1 - q) + (1 - s) * p * (1 - p)) / periods
    of_places = float(shares @ places**2 - (shares @ places) ** 2) if target == "reporters" else 0.0
    return (float(of_client.mean()) / (params.mechanism.q_star - params.mechanism.p_star) ** 2 - of_places) / clients


@pytest.mark.slow
@pytest.mark.parametrize("target", ["reporters", "population"])
@pytest.mark.parametrize(
    ("periods", "noise"),
    [(1, (0.25, 0.75, 0.5)), (7, (0.25, 0.75, 0.5)), (1, (0.02, 0.98, 0.0)), (7, (0.1, 0.9, 0.02))],
)
def test_variance_is_that_of_the_model(
    periods: int, noise: tuple[float, float, float], target: Target, unseen_seed: int
) -> None:
    """400 decodings: squared errors over the exact variance have the chi-squared law, and the mean declared variance is near the exact one.

    Among the reporters it is above it by at most 1 / (4 m**2 N), and by the little that numbers vary within their cohort's range.
    """
    chance, clients = np.random.default_rng(unseen_seed), 20_000
    metric = mean_metric(prob_p=noise[0], prob_q=noise[1], prob_f=noise[2])
    places, shares = np.array([0.0, 0.13, 0.34, 0.9]), np.array([0.4, 0.3, 0.2, 0.1])
    variance = exact_variance(metric, places, shares, clients, periods, target)
    first = consecutive_periods(metric, periods) if periods > 1 else ()
    squares, declared = [], []
    for _ in range(400):
        drawn = chance.multinomial(clients, shares)
        population = dict(zip(map(repr, (100 * places).tolist()), drawn.tolist(), strict=True))
        found = estimate(simulate(metric, population, chance, periods=first), target)
        true = drawn / clients if target == "reporters" else shares
        squares.append((found.value / 100 - places @ true) ** 2)
        declared.append((found.std_error / 100) ** 2)
    low, high = (chi2.ppf(level, 400) / 400 for level in (ALPHA / 2, 1 - ALPHA / 2))
    assert low < np.mean(squares) / variance < high
    excess = 1 / (4 * 16**2 * clients) if target == "reporters" else 0.0
    assert 0.98 * variance < np.mean(declared) < 1.02 * variance + excess


def test_permanent_noise_and_thresholds_do_not_average_out() -> None:
    """With f = .5, p = .25, q = .75, more than half of the variance after 7 periods remains after any number of them."""
    places, shares = np.array([0.0, 0.13, 0.34, 0.9]), np.array([0.4, 0.3, 0.2, 0.1])
    after_7, after_all = (exact_variance(mean_metric(), places, shares, 20_000, periods) for periods in (7, 10**9))
    assert 0.5 * after_7 < after_all < after_7


@pytest.mark.slow
@pytest.mark.parametrize("target", ["reporters", "population"])
def test_intervals_cover_the_mean_on_random_tasks(target: Target, unseen_seed: int) -> None:
    """1,000 decodings of random tasks; the number that misses must be possible at a rate of 4 % to 6 % at alpha = 1e-6."""
    chance = np.random.default_rng(unseen_seed)
    missed, trials = 0, 1_000
    for _ in range(trials):
        e, periods = float(np.exp(np.exp(chance.uniform(math.log(0.5), math.log(4))))), int(chance.choice([1, 1, 3]))
        low, width = float(chance.normal()), float(np.exp(chance.normal()))
        f = float(chance.uniform(0.05, 0.3)) if periods > 1 else 0.0
        metric = mean_metric(low, low + width, prob_p=1 / (1 + e), prob_q=e / (1 + e), prob_f=f)
        number = int(chance.integers(1, 40))
        values = np.unique(
            low + width * (1.1 * chance.beta(np.exp(chance.normal()), np.exp(chance.normal()), number) - 0.05)
        )
        shares, n = chance.dirichlet(np.full(len(values), 0.5)), int(10 ** chance.uniform(3.5, 5.5))
        drawn = chance.multinomial(n, shares)
        population = dict(zip(map(repr, values.tolist()), drawn.tolist(), strict=True))
        first = consecutive_periods(metric, periods) if periods > 1 else ()
        found = estimate(simulate(metric, population, chance, periods=first), target)
        true = float((drawn / n if target == "reporters" else shares) @ np.clip(values, low, low + width))
        missed += not found.low <= true <= found.high
    assert binom.sf(missed - 1, trials, 0.06) > ALPHA, missed
    assert binom.cdf(missed, trials, 0.04) > ALPHA, missed
