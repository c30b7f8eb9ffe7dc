"""Covariance of repeated reports: exact by enumeration, epochs of `hold`, and the simulation behind the tests."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from scipy.stats import binom, chisquare

from hubbub import Metric, Params, SummaryError, UnaryResponse
from hubbub.summary import BitCounts
from hubbub_decoder.estimators.categories import category_intervals, total_variance
from hubbub_decoder.model.bit_covariance import report_covariance
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.model.pattern_likelihood import repeated_score_covariance
from hubbub_decoder.model.random_string import RandomStringMoments
from hubbub_decoder.model.repetition import Repetition, epoch_sizes
from hubbub_decoder.simulation import consecutive_periods, simulate, simulate_reports
from tests.support.enumerate_mechanism import Floats, report_distribution

ALPHA = 1e-6
DAYS = ("2000-01-01", "2000-01-02", "2000-01-03", "2000-01-04")


def boolean(hold: int | None = None, p: float = 0.25, q: float = 0.75, f: float = 0.5) -> Metric:
    return Metric.boolean("b", UnaryResponse(prob_p=p, prob_q=q, prob_f=f), hold=hold)


def bits_of(patterns: NDArray[np.int64], num_bits: int) -> NDArray[np.int64]:
    return patterns[:, None] >> np.arange(num_bits) & 1


def mean_and_moment(
    params: Params, filters: list[int], epochs: tuple[int, ...], numbers: Floats
) -> tuple[Floats, Floats]:
    """Sum of numbers (2**k, n) over a client's reports: mean (F, n) and second moments (F, n, n) given its filter, by enumeration."""
    k, n = params.num_bits, numbers.shape[1]
    mean, covariance = np.zeros((len(filters), n)), np.zeros((len(filters), n, n))
    for size in epochs:
        chances = report_distribution(params, filters, size)
        outcomes = np.arange(1 << k * size)
        total = np.sum([numbers[outcomes >> k * t & (1 << k) - 1] for t in range(size)], axis=0)
        of_epoch = chances @ total
        mean += of_epoch
        covariance += np.einsum("fo,oi,oj->fij", chances, total, total, optimize=True)
        covariance -= np.einsum("fi,fj->fij", of_epoch, of_epoch)
    return mean, covariance + np.einsum("fi,fj->fij", mean, mean)


@pytest.mark.parametrize("epochs", [(1,), (3,), (2, 1), (1, 1, 1)], ids=str)
@pytest.mark.parametrize(
    ("p", "q", "b", "a"),
    [
        (0.25, 0.75, 0.25, 0.75),
        (0.8, 0.3, 0.125, 0.875),
        (0.0, 1.0, 0.25, 0.75),
        (0.1, 0.5, 0.0, 1.0),
        (0.2, 0.8, 0.05, 0.5),
        (0.3, 0.6, 0.4, 0.9),
    ],
)
def test_covariance_of_repeated_reports_matches_enumeration(
    p: float, q: float, b: float, a: float, epochs: tuple[int, ...]
) -> None:
    """3 candidates, the unlisted strings (all pairs of 4 bits), no value, and all reports of one client: at most 2**12."""
    params = Params(num_bits=4, num_hashes=2, num_cohorts=1, prob_p=p, prob_q=q, permanent_p=b, permanent_q=a)
    candidates, shares, unlisted = [0b0011, 0b0110, 0b1010], [0.4, 0.2, 0.1], 0.2
    pairs = [1 << i | 1 << j for i, j in itertools.combinations(range(4), 2)]
    weights = np.array([*shares, *[unlisted / 6] * 6, 0.1])
    bits = bits_of(np.arange(16), 4).astype(float)
    means, moments = mean_and_moment(params, [*candidates, *pairs, 0], epochs, bits)
    mean = weights @ means
    expected = np.einsum("f,fij->ij", weights, moments) - np.outer(mean, mean)
    number = sum(epochs)
    repetition = Repetition(number, sum(size**2 for size in epochs) / number)
    columns = sparse.csr_array(bits_of(np.array(candidates), 4).T.astype(float))
    average = RandomStringMoments.from_params(params)
    found = number * report_covariance(columns, np.array(shares), unlisted, average, params, repetition)
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("epochs", [(1,), (3,), (2, 1)], ids=str)
@pytest.mark.parametrize(
    ("p", "q", "b", "a"),
    [
        (0.25, 0.75, 0.25, 0.75),
        (0.8, 0.3, 0.125, 0.875),
        (0.1, 0.5, 0.0, 1.0),
        (0.2, 0.8, 0.05, 0.5),
        (0.3, 0.6, 0.4, 0.9),
    ],
)
def test_covariance_of_repeated_pattern_scores_matches_enumeration(
    p: float, q: float, b: float, a: float, epochs: tuple[int, ...]
) -> None:
    """All 7 filters of 4 bits with 2 hashes, unequal shares, and all reports of one client: at most 2**12."""
    params = Params(num_bits=4, num_hashes=2, num_cohorts=1, prob_p=p, prob_q=q, permanent_p=b, permanent_q=a)
    filters = np.array([0, *(1 << i | 1 << j for i, j in itertools.combinations(range(4), 2))])
    theta = np.array([0.1, 0.4, 0.2, 0.1, 0.1, 0.07, 0.03])
    table = report_distribution(params, filters.tolist(), 1).T
    pi = table @ theta
    scores = table / pi[:, None]
    information = table.T @ scores
    moments = mean_and_moment(params, filters.tolist(), epochs, scores)[1]
    number = sum(epochs)
    repetition = Repetition(number, sum(size**2 for size in epochs) / number)
    found = repeated_score_covariance(filters, theta, pi, information, params, repetition)
    assert number * (information + found) == pytest.approx(np.einsum("f,fij->ij", theta, moments), abs=1e-9)


def test_permanent_noise_of_two_periods_does_not_average_out() -> None:
    """N Var at share 0, N clients: 15 / 2 + .75 = 8.25 of the same clients, and 15.75 / 2 of independent reports."""
    params = boolean(p=0.5, q=0.75).params
    assert total_variance(0, 1, 2, params, Repetition(2, 2)) == pytest.approx(8.25)
    assert total_variance(0, 1, 2, params) == pytest.approx(7.875)


def test_epochs_group_periods_by_hold() -> None:
    assert Repetition.from_periods(boolean(), DAYS) == Repetition(4, 4)
    assert Repetition.from_periods(boolean(hold=1), DAYS) == Repetition(4, 1)
    assert Repetition.from_periods(boolean(hold=2), ["1970-01-02", "1970-01-03", "1970-01-04"]) == Repetition(3, 5 / 3)
    assert Repetition.from_periods(boolean(hold=2), ()) == Repetition.from_periods(boolean(), DAYS[:1]) == Repetition()
    assert epoch_sizes(boolean(hold=3), ["1969-12-31", "1970-01-01"]) == [1, 1]


def test_epochs_refuse_periods_that_are_no_days() -> None:
    with pytest.raises(SummaryError, match="first days, YYYY-MM-DD, got 'monday'"):
        Repetition.from_periods(boolean(hold=2), ["monday"])


@pytest.mark.parametrize("response", [(0.25, 0.75), (0.125, 0.5)], ids=["symmetric", "asymmetric"])
@pytest.mark.parametrize("hold", [None, 2])
def test_simulated_reports_repeat_the_permanent_response(
    hold: int | None, response: tuple[float, float], unseen_seed: int
) -> None:
    """Chi-squared of a client's three reports of three bits, 512 outcomes of 200,000 clients, at alpha = 1e-6."""
    b, a = response
    noise = {"prob_p": 0.25, "prob_q": 0.875, "permanent_p": b, "permanent_q": a}
    metric = Metric.categorical("c", ("a", "b", "c"), UnaryResponse(**noise), hold=hold)
    rng, clients = np.random.default_rng(unseen_seed), 200_000
    blocks = [rows[:, 0] for _, rows in simulate_reports(metric, {"b": clients}, rng, periods=DAYS[:3])]
    assert [len(block) for block in blocks] == [clients] * 3
    first, second, third = (block.astype(np.int64) for block in blocks)
    three = first << 6 | second << 3 | third
    sizes = epoch_sizes(metric, DAYS[:3])
    expected = np.array([1.0])
    for size in sizes:
        expected = np.kron(expected, report_distribution(metric.params, [0b010], size)[0])
    assert chisquare(np.bincount(three, minlength=512), clients * expected).pvalue > ALPHA


@pytest.mark.slow
@pytest.mark.parametrize("response", [(0.25, 0.75), (0.125, 0.5)], ids=["symmetric", "asymmetric"])
@pytest.mark.parametrize("hold", [None, 2])
def test_simulated_bit_counts_have_the_variance_of_repeated_reports(
    hold: int | None, response: tuple[float, float], unseen_seed: int
) -> None:
    """Sample variance of 40,000 counts within 6 standard errors, sqrt(2 / 40,000) = .7 %, of that by enumeration."""
    noise = {"prob_p": 0.25, "prob_q": 0.75, "permanent_p": response[0], "permanent_q": response[1]}
    metric, runs, clients = Metric.categorical("c", ("a", "b"), UnaryResponse(**noise), hold=hold), 40_000, 60
    rng = np.random.default_rng(unseen_seed)
    counts = [simulate(metric, {"a": clients}, rng, periods=DAYS[:3]) for _ in range(runs)]
    assert counts[0].num_reports == 3 * clients
    assert counts[0].periods == DAYS[:3]
    first_bit = np.array([[0.0], [1.0], [0.0], [1.0]])
    mean, moment = mean_and_moment(metric.params, [1], tuple(epoch_sizes(metric, DAYS[:3])), first_bit)
    expected = clients * float(moment[0, 0, 0] - mean[0, 0] ** 2)
    assert np.var([int(c.ones[0, 0]) for c in counts]) == pytest.approx(expected, rel=6 * math.sqrt(2 / runs))


def test_consecutive_periods_start_with_the_year_2000() -> None:
    weekly = Metric.boolean("b", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5), period="week")
    assert consecutive_periods(weekly, 2) == ("1999-12-27", "2000-01-03")


@pytest.mark.slow
@pytest.mark.parametrize(("p", "q", "f"), [(0.25, 0.75, 0.5), (0.05, 0.5, 0.125), (0.75, 0.25, 0.5), (0.0, 1.0, 0.25)])
def test_category_intervals_of_repeated_reports_cover_share_0(p: float, q: float, f: float) -> None:
    """400 clients with 4 reports each and share 0: each end of a 90 % interval excludes 0 with probability .05, to a fifth and one count.

    The law of the count is a convolution over the clients. Independent reports would exclude 0 more than twice as often.
    """
    metric, clients, reports = boolean(p=p, q=q, f=f), 400, 4
    share = f / 2
    one = (1 - share) * binom.pmf(range(reports + 1), reports, p) + share * binom.pmf(range(reports + 1), reports, q)
    law = np.real(np.fft.ifft(np.fft.fft(one, clients * reports + 1) ** clients))
    above, below = [], []
    for count in np.flatnonzero(law > 1e-9).tolist():
        counts = BitCounts(metric, [clients * reports], [[count]], DAYS)
        low, high = category_intervals(Evidence(counts), ["true"], 0.9, "reporters")
        above += [law[count]] if low[0] > 0 else []
        below += [law[count]] if high[0] < 0 else []
    for excluded in (above, below):
        assert sum(excluded) == pytest.approx(0.05, abs=0.01 + max(excluded))
