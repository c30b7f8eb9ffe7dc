"""Could any strings at all, in any shares, have given these reports? Tests that hold whatever was reported.

They come after the random effect of unlisted strings: none of them compares with what the candidates explain, so strings that are on no list
alarm nobody. Wrong parameters, another hash scheme, reports that are made up or sent from some cohorts only, do.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from hubbub.metrics.params import Params
from hubbub.summary import BitCounts, PatternCounts, Reports
from hubbub_decoder.array_types import Floats
from hubbub_decoder.estimators.pattern_counts import FilterTable, supports_pattern_likelihood
from hubbub_decoder.model.debias import bit_shares
from hubbub_decoder.model.random_string import RandomStringMoments, md5_bit_probabilities
from hubbub_decoder.results.estimates import FitTest

_LEAST_EXPECTED = 5.0  # in a cell, Cochran's rule; cells that expect less are taken together
_REFITS = 3
_MOST_BITS_A_COHORT = 10
_FEW_COHORTS = 32
_NULL = 1e-13
_FEW_REPORTS = 30
_USUAL_SIZES = (0.1, 0.1, 0.8)  # of strings with 0, 1 and 2 bits: what numbers of ones are weighted for


def goodness_of_fit(collected: BitCounts | PatternCounts | Reports) -> tuple[FitTest, ...]:
    """Make the tests that these reports allow."""
    params = collected.metric.params
    tests: list[FitTest | None] = []
    if isinstance(collected, PatternCounts) and supports_pattern_likelihood(params):
        tests += _of_patterns(collected)
    counts = collected if isinstance(collected, BitCounts) else collected.bit_counts()
    periods = _periods(counts)
    if counts.with_ones is not None:
        tests.append(_named("number of ones", _lack_of_fit(counts.with_ones, _chance_of_ones(params)), periods))
    if not isinstance(collected, BitCounts):
        tests.append(_coincident_hashes(_numbers_of_ones(collected), params))
    if counts.num_reports >= _FEW_REPORTS * len(counts.reports):
        tests += [_equal_cohorts(counts), *_of_totals(counts), _even_bits(counts)]
    return tuple(test for test in tests if test is not None)


def _of_patterns(counts: PatternCounts) -> Iterator[FitTest | None]:
    """Of 2**k patterns only as many numbers speak about shares as there are filters; no share explains what is orthogonal to them."""
    chance, periods = FilterTable.from_params(counts.metric.params).pattern_probabilities, _periods(counts)
    yield _named("patterns", _lack_of_fit(counts.counts.sum(axis=0), chance), periods)
    m = len(counts.counts)
    if m == 1 or counts.metric.params.num_bits > _MOST_BITS_A_COHORT:
        return
    found = [fit for fit in (_lack_of_fit(cohort, chance) for cohort in counts.counts) if fit is not None]
    if found:
        worst = min(found, key=lambda fit: float(stats.chi2.sf(*fit)))
        yield _named("patterns of one cohort", worst, periods, among=len(found))


def _chance_of_ones(params: Params) -> Floats:
    """Return P(t ones reported | d true bits), (k + 1, sizes); d = 0, h; google-md5: 0 .. h.

    How many ones a report has depends on how many bits its string sets, and on nothing else.

    P(t | d) = sum_j Binomial(j; d, q*) Binomial(t - j; k - d, p*)
    """
    k, h = params.num_bits, params.num_hashes
    sizes = range(h + 1) if params.hash_scheme == "google-md5" else (0, h)
    return np.column_stack([
        np.convolve(
            stats.binom.pmf(np.arange(d + 1), d, params.q_star),
            stats.binom.pmf(np.arange(k - d + 1), k - d, params.p_star),
        )
        for d in sizes
    ])  # fmt: skip


def _coincident_hashes(seen: NDArray[np.int64], params: Params) -> FitTest | None:
    """Hashes of google-md5 coincide: of h = 2, in one string of k. murmur3-v1's never do.

    The share of strings with one bit only, less 1/k of the share of all strings, is 0 in the mean over cohorts, which hash independently: Student's t.
    Weights are fixed: those of what was seen follow a rare number of ones that came by chance still more rarely, and p < 1e-6 came in 1 of 500.
    """
    n = seen.sum(axis=1)
    used = n >= _FEW_REPORTS
    if params.hash_scheme != "google-md5" or params.num_hashes != 2 or used.sum() < _FEW_COHORTS:
        return None
    chance, shares = _chance_of_ones(params), seen[used] / n[used][:, None]
    weighted = chance / np.maximum(chance @ _USUAL_SIZES, np.finfo(float).tiny)[:, None]
    of_sizes = shares @ np.linalg.lstsq(chance.T @ weighted, weighted.T, rcond=None)[0].T
    coincide = float(np.sum(md5_bit_probabilities(params.num_bits) ** 2))
    t, p_value = stats.ttest_1samp(of_sizes[:, 1] - coincide * (of_sizes[:, 1] + of_sizes[:, 2]), 0)
    return FitTest("coincident hashes", float(t) ** 2, 1, float(p_value))


def _equal_cohorts(counts: BitCounts) -> FitTest | None:
    """A client's cohort is a fair draw."""
    n = counts.reports
    if len(n) < 2:
        return None
    return _named("equal cohorts", (float(stats.chisquare(n).statistic), len(n) - 1), _periods(counts))


def _of_totals(counts: BitCounts) -> Iterator[FitTest | None]:
    """A report has h q* + (k - h) p* ones in the mean with a value and k p* without, in every cohort; not so of google-md5.

    V = v (h q* (1-q*) + (k-h) p* (1-p*)) + (1-v) k p* (1-p*) + v (1-v) (h (q*-p*))**2        v : the share with a value
    ones by cohort     : chi-squared = sum_j (T_j - n_j mean)**2 / (n_j V)        T_j : ones in cohort j
    share with a value : how far v is outside [0, 1], in standard errors
    """
    params = counts.metric.params
    used = counts.reports > 0
    if params.hash_scheme == "google-md5":
        return
    n, total = counts.reports[used], counts.ones[used].sum(axis=1)
    k, h, p, q = params.num_bits, params.num_hashes, params.p_star, params.q_star
    mean = total.sum() / n.sum()
    share = (mean - k * p) / (h * (q - p))
    v = float(np.clip(share, 0, 1))
    variance = v * h * (q * (1 - q) - p * (1 - p)) + k * p * (1 - p) + v * (1 - v) * (h * (q - p)) ** 2
    if variance == 0:
        return
    if len(n) > 1:
        apart = float(np.sum((total - n * mean) ** 2 / (n * variance)))
        yield _named("ones by cohort", (apart, len(n) - 1), _periods(counts))
    z = abs(share - v) * abs(h * (q - p)) / np.sqrt(_periods(counts) * variance / n.sum())
    yield FitTest("share with a value", float(z) ** 2, 1, float(stats.norm.sf(z)))


def _even_bits(counts: BitCounts) -> FitTest | None:
    """Over the cohorts a string sets every bit alike often: the mean of a bit's share over the cohorts is h/k of that of all.

    The cohorts hash independently, so how much a bit's share differs between them tells how much its mean may: Student's t of each
    bit, the worst of them.
    """
    params = counts.metric.params
    used = counts.reports >= _FEW_REPORTS
    if used.sum() < _FEW_COHORTS:
        return None
    shares = bit_shares(counts)[used]
    mean = RandomStringMoments.from_params(params).mean
    apart = shares - shares.sum(axis=1, keepdims=True) * (mean / mean.sum())
    weights = np.sqrt(counts.reports[used] / counts.reports[used].mean())[:, None]
    error = np.sqrt(np.sum((weights * apart) ** 2, axis=0)) / len(apart)
    t = np.abs(apart.mean(axis=0)) / error
    worst = float(t.max())
    p_value = min(1.0, 2 * params.num_bits * float(stats.t.sf(worst, len(apart) - 1)))
    return FitTest("even bits", worst**2, 1, p_value)


def _numbers_of_ones(collected: PatternCounts | Reports) -> NDArray[np.int64]:
    """Count in each cohort how many reports have 0 .. k ones: (m, k + 1)."""
    params = collected.metric.params
    sizes = params.num_bits + 1
    if isinstance(collected, PatternCounts):
        of_pattern = np.bitwise_count(np.arange(1 << params.num_bits))
        return np.asarray(collected.counts @ (of_pattern[:, None] == np.arange(sizes)))
    ones = np.bitwise_count(collected.rows).sum(axis=1, dtype=np.int64) + collected.cohorts.astype(np.int64) * sizes
    return np.bincount(ones, minlength=params.num_cohorts * sizes).reshape(-1, sizes)


def _periods(collected: BitCounts | PatternCounts) -> int:
    """Return how many reports may be of one person, with one cohort and one permanent noise.

    If so many are, a chi-squared of all is at most so many times the mean of the periods' own, which are honest.
    """
    return max(1, len(collected.periods))


def _named(name: str, fit: tuple[float, int] | None, periods: int, among: int = 1) -> FitTest | None:
    if fit is None:
        return None
    statistic, freedom = fit[0] / periods, fit[1]
    return FitTest(name, statistic, freedom, min(1.0, among * float(stats.chi2.sf(statistic, freedom))))


def _lack_of_fit(counts: NDArray[np.int64], chance: Floats) -> tuple[float, int] | None:
    """Return Pearson's chi-squared of counts that are a mixture of the columns of `chance`, with any weights, and its degrees of freedom.

        minimize over theta   sum_s (c_s - lambda_s)**2 / lambda_s        lambda = chance theta

    None where the counts are too few to say anything.
    """
    total = counts.sum()
    expected = total * chance.mean(axis=1)
    least = expected * 1e-3
    for _ in range(_REFITS):
        expected = np.maximum(_projected(counts, chance, np.maximum(expected, least))[0], least)
    counts, chance, expected = _together(counts, chance, expected)
    if expected.min() < _LEAST_EXPECTED:
        return None
    fitted, rank = _projected(counts, chance, expected)
    freedom = len(counts) - rank
    return (float(np.sum((counts - fitted) ** 2 / expected)), freedom) if freedom > 0 else None


def _projected(counts: NDArray[np.int64], chance: Floats, expected: Floats) -> tuple[Floats, int]:
    """Return the mixture that fits best, weighted by what is expected, and how many numbers it took to say it."""
    weighted = chance / np.maximum(expected, np.finfo(float).tiny)[:, None]
    values, vectors = np.linalg.eigh(chance.T @ weighted)
    known = values > _NULL * values[-1]
    directions = vectors[:, known]
    return chance @ (directions @ ((directions.T @ (weighted.T @ counts)) / values[known])), int(known.sum())


def _together(counts: NDArray[np.int64], chance: Floats, expected: Floats) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Take together the cells that expect least, until every cell expects enough."""
    order = np.argsort(expected)
    counts, chance, expected = counts[order], chance[order], expected[order]
    first = int(np.searchsorted(expected, _LEAST_EXPECTED))
    while first and expected[:first].sum() < _LEAST_EXPECTED and first < len(expected):
        first += 1
    if first < 2:
        return counts, chance, expected
    starts = [0, *range(first, len(expected))]
    return (
        np.add.reduceat(counts, starts),
        np.add.reduceat(chance, starts, axis=0),
        np.add.reduceat(expected, starts),
    )
