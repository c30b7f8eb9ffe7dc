"""Goodness-of-fit tests: can any set of strings, in any shares, explain the reports under the metric's parameters?

The tests do not use the candidates, so unlisted strings do not fail them. Wrong parameters, another hash scheme, fabricated
reports and missing cohorts do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hubbub.metrics.params import Params
from hubbub.summary import BitCounts, PatternCounts, Reports
from hubbub.summary.mixtures import Components, TabulatedComponents, fit_shares
from hubbub.summary.plausibility import ones_distributions
from hubbub_decoder.array_types import Flags, Floats
from hubbub_decoder.model.distributions import chi2, norm, student_t
from hubbub_decoder.model.evidence import bit_shares
from hubbub_decoder.model.pattern_likelihood import FilterTable, supports_pattern_likelihood
from hubbub_decoder.model.random_string import RandomStringMoments, md5_bit_probabilities
from hubbub_decoder.result import Result

_MIN_EXPECTED_COUNT = 5.0  # per cell, Cochran's rule; cells with smaller expectations are merged
_REWEIGHTINGS = 3
_MAX_BITS_FOR_COHORT_TEST = 10
_MIN_COHORTS = 32
_MIN_REPORTS_PER_COHORT = 30
_ASSUMED_SIZE_SHARES = (0.1, 0.1, 0.8)  # of strings with 0, 1 and 2 bits: fixed weights of the numbers of ones


@dataclass(frozen=True, slots=True, eq=False)
class FitTest(Result):
    """Goodness-of-fit test of the reports.

    The null hypothesis is that some set of strings and shares explains the reports under the metric's parameters.

    Attributes
    ----------
    name
        `patterns`, `patterns_of_one_cohort`, `number_of_ones`, `coincident_hashes`, `equal_cohorts`, `ones_by_cohort`,
        `share_with_value`, `thresholds` or `even_bits`.
    statistic
        Chi-squared statistic under the null hypothesis. For `even_bits`, squared standard errors.
    degrees_of_freedom
        Degrees of freedom of the statistic.
    p_value
        p-value in [0, 1], Bonferroni-corrected for the number of cohorts or bits that the test examines.
    """

    name: str
    statistic: float
    degrees_of_freedom: int
    p_value: float

    def __repr__(self) -> str:
        return f"<FitTest {self.name}: p = {self.p_value:.2g}>"


def run_fit_tests(collected: BitCounts | PatternCounts | Reports) -> tuple[FitTest, ...]:
    """Run every test for which the summary has the data and enough reports."""
    params = collected.metric.params
    if not params.mechanism.has_independent_bits:
        return tuple(_row_sum_test(collected.bit_counts()))
    tests: list[FitTest | None] = []
    if isinstance(collected, PatternCounts) and supports_pattern_likelihood(params):
        tests += _pattern_tests(collected)
    counts = collected.bit_counts()
    periods = _reports_per_client(counts)
    if counts.ones_histogram is not None:
        tests.append(
            _chi_squared_test(
                "number_of_ones",
                mixture_chi_squared(counts.ones_histogram, TabulatedComponents(_ones_probabilities(params))),
                periods,
            )
        )
    if not isinstance(collected, BitCounts):
        tests.append(_coincident_hash_test(_count_numbers_of_ones(collected), params))
    if counts.num_reports >= _MIN_REPORTS_PER_COHORT * len(counts.reports):
        tests += [_equal_cohorts_test(counts), *_total_ones_tests(counts)]
        tests.append(_even_bits_test(counts) if params.scheme.has_like_cohorts else None)
        tests.append(_thresholds_test(counts) if counts.metric.kind.has_threshold else None)
    return tuple(test for test in tests if test is not None)


def _row_sum_test(counts: BitCounts) -> Iterator[FitTest]:
    """Yield a failed test if every report has the same number of ones, and their total is another one: w ones a report, w N in all."""
    params = counts.metric.params
    possible = np.flatnonzero(ones_distributions(params.blocks).any(axis=0))
    difference = int(counts.ones.sum()) - int(possible[0]) * counts.num_reports
    if len(possible) == 1:
        yield FitTest("number_of_ones", float(difference**2), 1, 0.0 if difference else 1.0)


def _pattern_tests(counts: PatternCounts) -> Iterator[FitTest | None]:
    """Yield tests of pattern counts against all mixtures of Bloom filters, over all cohorts and for the worst cohort.

    There are 2**k patterns and fewer distinct filters. The component of the counts orthogonal to all filters is noise under the null
    hypothesis.
    """
    table, periods = FilterTable.from_params(counts.metric.params), _reports_per_client(counts)
    yield _chi_squared_test("patterns", mixture_chi_squared(counts.counts.sum(axis=0), table), periods)
    m = len(counts.counts)
    if m == 1 or counts.metric.params.num_bits > _MAX_BITS_FOR_COHORT_TEST:
        return
    fits = [fit for fit in (mixture_chi_squared(cohort, table) for cohort in counts.counts) if fit is not None]
    if fits:
        worst = min(fits, key=lambda fit: float(chi2.sf(*fit)))
        yield _chi_squared_test("patterns_of_one_cohort", worst, periods, num_tests=len(fits))


def _ones_probabilities(params: Params) -> Floats:
    """Probabilities of t reported ones given d true bits, `plausibility.ones_distributions`.

    returns : (k + 1, sizes)   rows t = 0 .. k; columns d = 0 and h (google-md5: d = 0 .. h)
    """
    return ones_distributions(params.blocks)[list(params.possible_ones)].T


def _coincident_hash_test(ones: NDArray[np.int64], params: Params) -> FitTest | None:
    """Test whether the two hashes of a string coincide as often as those of google-md5: for about 1 string in k.

    ones : (m, k + 1) int   reports per cohort and number of ones

    The statistic is Student's t of the share of strings with one bit, minus 1/k of the share of all strings. Its mean over the
    cohorts, which hash independently, is 0. The weights are fixed. Weights from the observed counts gave p < 1e-6 in 1 of 500 simulations, because they follow
    numbers of ones that are rare by chance.
    """
    n = ones.sum(axis=1)
    used = n >= _MIN_REPORTS_PER_COHORT
    if params.hash_scheme != "google-md5" or params.num_hashes != 2 or used.sum() < _MIN_COHORTS:
        return None
    probabilities, shares = _ones_probabilities(params), ones[used] / n[used][:, None]
    weighted = probabilities / np.maximum(probabilities @ _ASSUMED_SIZE_SHARES, np.finfo(float).tiny)[:, None]
    size_shares = shares @ np.linalg.lstsq(probabilities.T @ weighted, weighted.T, rcond=None)[0].T
    coincide = float(np.sum(md5_bit_probabilities(params.num_bits) ** 2))
    excess = size_shares[:, 1] - coincide * (size_shares[:, 1] + size_shares[:, 2])
    t = abs(float(excess.mean())) / float(excess.std(ddof=1) / np.sqrt(len(excess)))
    return FitTest("coincident_hashes", t**2, 1, 2 * float(student_t.sf(t, len(excess) - 1)))


def _equal_cohorts_test(counts: BitCounts) -> FitTest | None:
    """Test equal expected cohort sizes: each client draws its cohort uniformly."""
    n = counts.reports
    if len(n) < 2:
        return None
    statistic = float(np.sum((n - n.mean()) ** 2) / n.mean())
    return _chi_squared_test("equal_cohorts", (statistic, len(n) - 1), _reports_per_client(counts))


def _total_ones_tests(counts: BitCounts) -> Iterator[FitTest | None]:
    """Yield tests of the total number of ones; none where values have different numbers of true bits.

    In every cohort a report has on average h q* + (k - h) p* ones with a value, and k p* without. With v the share with a value,
    the variance of the number of ones is

        V = v (h q* (1-q*) + (k-h) p* (1-p*)) + (1-v) k p* (1-p*) + v (1-v) (h (q*-p*))**2

    ones_by_cohort   : chi-squared = sum_j (T_j - n_j mean)**2 / (n_j V)        T_j : ones in cohort j
    share_with_value : distance of the estimate of v from [0, 1], in standard errors
    """
    params = counts.metric.params
    used = counts.reports > 0
    if params.scheme.has_varying_ones:
        return
    n, total = counts.reports[used], counts.ones[used].sum(axis=1)
    k, h, p, q = params.num_bits, params.num_hashes, params.mechanism.p_star, params.mechanism.q_star
    mean = total.sum() / n.sum()
    share = (mean - k * p) / (h * (q - p))
    v = float(np.clip(share, 0, 1))
    variance = v * h * (q * (1 - q) - p * (1 - p)) + k * p * (1 - p) + v * (1 - v) * (h * (q - p)) ** 2
    if variance == 0:
        return
    if len(n) > 1 and params.scheme.has_like_cohorts:
        statistic = float(np.sum((total - n * mean) ** 2 / (n * variance)))
        yield _chi_squared_test("ones_by_cohort", (statistic, len(n) - 1), _reports_per_client(counts))
    z = abs(share - v) * abs(h * (q - p)) / np.sqrt(_reports_per_client(counts) * variance / n.sum())
    yield FitTest("share_with_value", float(z) ** 2, 1, float(norm.sf(z)))


def _thresholds_test(counts: BitCounts) -> FitTest | None:
    """Test whether fewer numbers reach higher thresholds: cohort c has those from c / m to (c + 1) / m of the range.

    For each j, the mean share of ones of the cohorts from j on must not be above that of the others. The p-value is that of the largest
    excess in standard errors, corrected for the m - 1 values of j.
    """
    params, n = counts.metric.params, counts.reports
    if len(n) < 2 or n.min() < _MIN_REPORTS_PER_COHORT:
        return None
    rates = counts.ones[:, 0] / n * np.sign(params.mechanism.q_star - params.mechanism.p_star)
    variances = _reports_per_client(counts) * np.abs(rates) * (1 - np.abs(rates)) / n
    excesses = []
    for j in range(1, len(n)):
        error = np.sqrt(variances[:j].sum() / j**2 + variances[j:].sum() / (len(n) - j) ** 2)
        difference = float(rates[j:].mean() - rates[:j].mean())
        excesses.append(difference / error if error > 0 else 0.0)
    worst = max(0.0, *excesses)
    return FitTest("thresholds", worst**2, 1, min(1.0, (len(n) - 1) * float(norm.sf(worst))))


def _even_bits_test(counts: BitCounts) -> FitTest | None:
    """Test whether every bit is set as often as the others, on average over the cohorts.

    Cohorts hash independently, so a bit's mean deviation is a sum of independent terms. A string adds its share to few bits, so the terms
    are skewed to the right. Their lower tail is taken as exp(-z**2 / 2), Chernoff's bound of the normal tail. The standard error comes from
    all bits: a bit that no frequent string sets has a small variance of its own, and its Student's t gave p < 1e-6 by chance.
    The p-value is that of the lowest bit, corrected for the number of bits.
    """
    params = counts.metric.params
    used = counts.reports >= _MIN_REPORTS_PER_COHORT
    if used.sum() < _MIN_COHORTS:
        return None
    shares = bit_shares(counts)[used]
    mean = RandomStringMoments.from_params(params).mean
    deviations = shares - shares.sum(axis=1, keepdims=True) * (mean / mean.sum())
    weights = np.sqrt(counts.reports[used] / counts.reports[used].mean())[:, None]
    error = np.sqrt(np.sum((weights * deviations) ** 2, axis=0).mean()) / len(deviations)
    worst = max(0.0, float(-deviations.mean(axis=0).min() / error)) if error > 0 else 0.0
    p_value = min(1.0, params.num_bits * float(np.exp(-(worst**2) / 2)))
    return FitTest("even_bits", worst**2, 1, p_value)


def _count_numbers_of_ones(collected: PatternCounts | Reports) -> NDArray[np.int64]:
    """Numbers of reports with 0 .. k ones in each cohort: (m, k + 1)."""
    params = collected.metric.params
    sizes = params.num_bits + 1
    if isinstance(collected, PatternCounts):
        of_pattern = np.bitwise_count(np.arange(1 << params.num_bits))
        return np.array([np.bincount(of_pattern, cohort, sizes) for cohort in collected.counts]).astype(np.int64)
    ones = np.bitwise_count(collected.rows).sum(axis=1, dtype=np.int64) + collected.cohorts.astype(np.int64) * sizes
    return np.bincount(ones, minlength=params.num_cohorts * sizes).reshape(-1, sizes)


def _reports_per_client(collected: BitCounts | PatternCounts) -> int:
    """Maximum number of reports of one client, which share one cohort and one permanent response.

    A chi-squared statistic over all periods is at most this factor times the mean of the statistics of single periods.
    """
    return max(1, len(collected.periods))


def _chi_squared_test(name: str, fit: tuple[float, int] | None, periods: int, num_tests: int = 1) -> FitTest | None:
    if fit is None:
        return None
    statistic, freedom = fit[0] / periods, fit[1]
    return FitTest(name, statistic, freedom, min(1.0, num_tests * float(chi2.sf(statistic, freedom))))


def mixture_chi_squared(counts: NDArray[np.int64], components: Components) -> tuple[float, int] | None:
    """Pearson's chi-squared and degrees of freedom of counts against all mixtures of the components.

        minimize over theta   sum_s (c_s - lambda_s)**2 / lambda_s        lambda = R theta

    counts  : (s,) int
    returns : None if the counts are too few
    """
    size = len(components.score(np.zeros(len(counts))))
    expected = counts.sum() * components.mixture(np.full(size, 1 / size))
    least = expected * 1e-3
    for _ in range(_REWEIGHTINGS):
        shares, _ = fit_shares(counts, components, np.maximum(expected, least))
        expected = np.maximum(components.mixture(shares), least)
    merged = _small_cells(expected)
    cells = np.append(expected[~merged], expected[merged].sum() if merged.any() else [])
    if cells.min() < _MIN_EXPECTED_COUNT:
        return None
    shares, rank = fit_shares(counts, components, expected, merged)
    freedom = len(cells) - rank
    if freedom <= 0:
        return None
    deviations = counts - components.mixture(shares)
    deviations = np.append(deviations[~merged], deviations[merged].sum() if merged.any() else [])
    return float(np.sum(deviations**2 / cells)), freedom


def _small_cells(expected: Floats) -> Flags:
    """Cells to merge, those with the smallest expectations, so that every cell expects at least 5 counts; none if one cell is small."""
    order = np.argsort(expected)
    sums, first = np.cumsum(expected[order]), int(np.sum(expected < _MIN_EXPECTED_COUNT))
    while first and sums[first - 1] < _MIN_EXPECTED_COUNT and first < len(expected):
        first += 1
    merged = np.zeros(len(expected), np.bool_)
    merged[order[: first if first > 1 else 0]] = True
    return merged
