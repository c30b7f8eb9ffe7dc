"""Closed-form estimator for categorical and boolean metrics: one bit for each category, no hashing.

Model:     c_i of N reports have bit i set; c_i = Binomial(X_i, q*) + Binomial(N - X_i, p*), X_i the reporters with category i
Estimator: x_i = (c_i / N - p*) / (q* - p*), unbiased for X_i / N
Variance:  of the summed estimates of a categories with true share s, given the reporters (`total_variance`):

    Var = (s q* (1 - q*) + (a - s) p* (1 - p*)) / (N (q* - p*)**2)        plus s (1 - s) / N as the share of a population

Intervals: shares at which neither tail of c_i is below (1 - level) / 2 (Clopper & Pearson 1934, of the law above). The noise of different
bits is independent given the reporters, so intervals at the level**(1/a) cover a categories jointly (Sidak 1967). As shares of a
population the c_i are multinomial, and the level is 1 - (1 - level) / a (Bonferroni).

No category is tested for share 0: all of them are known, and each has its interval. docs/mathematics.md, section 9.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, binom

from hubbub.metrics.metric import Metric
from hubbub.metrics.params import Params
from hubbub.summary import BitCounts
from hubbub_decoder.array_types import Floats
from hubbub_decoder.errors import CandidateError
from hubbub_decoder.estimators.fit_result import FitResult
from hubbub_decoder.inference.error_law import ErrorCumulants, ErrorLaw
from hubbub_decoder.inference.intervals import Target

_MAX_EXACT_VARIANCE = (
    400.0  # of a count; above, a shifted gamma law with a continuity correction has tails right to 1 %
)
_WINDOW = 12  # standard deviations of a binomial count that are summed


def select_categories(metric: Metric, asked: Sequence[str] | None) -> tuple[str, ...]:
    """Categories to decode: those asked for, or all (None); a boolean metric has one, "true".

    Raises CandidateError for a name that is no category of the metric.
    """
    names = metric.categories or ("true",)
    for name in asked or ():
        if name not in names:
            raise CandidateError(
                f"{metric.name}: {name!r} is not one of its categories ({', '.join(names[:8])}"
                f"{', ...' if len(names) > 8 else ''}): leave candidates out to decode all of them"
            )
    return names if asked is None else tuple(asked)


def fit_categories(counts: BitCounts, selected: Sequence[str]) -> FitResult:
    """Estimate the shares of the selected categories; the others together count as unlisted."""
    n, params, names = counts.num_reports, counts.metric.params, counts.metric.categories or ("true",)
    shown = np.array([names.index(name) for name in selected])
    hidden = np.setdiff1d(np.arange(len(names)), shown)
    shares = category_shares(counts.ones[0], n, params.p_star, params.q_star)
    totals = np.array([shares[some].sum() for some in (shown, hidden, slice(None))])
    population, reporters = _variances(shares[shown], [1] * len(shown), n, params)
    of_totals, of_totals_among_reporters = _variances(totals, [len(shown), len(hidden), len(names)], n, params)
    return FitResult(
        shares=shares[shown],
        variances=population,
        reporter_variances=reporters,
        p_values=np.full(len(shown), np.nan),
        totals=totals,
        total_variances=of_totals,
        total_reporter_variances=of_totals_among_reporters,
        null_error=math.nan,
    )


def _variances(shares: Floats, sizes: Sequence[int], num_reports: int, params: Params) -> tuple[Floats, Floats]:
    """Variances of sums of `sizes` categories, (n,) each: as shares of a population, and as shares among the reporters."""
    pairs = zip(shares.tolist(), sizes, strict=True)
    reporters = np.array([total_variance(share, size, num_reports, params) for share, size in pairs])
    return reporters + np.where((shares > 0) & (shares < 1), shares * (1 - shares) / num_reports, 0), reporters


def category_shares(ones: NDArray[np.int64], num_reports: int, p_star: float, q_star: float) -> Floats:
    """Unbiased shares x_i = (c_i / N - p*) / (q* - p*), (k,), of counts c (k,).

    >>> category_shares(np.array([40]), 100, p_star=0.25, q_star=0.75).round(12).tolist()  # two coins
    [0.3]
    """
    return np.asarray((ones / num_reports - p_star) / (q_star - p_star), np.float64)


def total_variance(share: float, size: int, num_reports: int, params: Params) -> float:
    """Variance of the summed estimates of `size` categories that have a true share `share`, given the reporters.

        Var = ( s q* (1 - q*) + (a - s) p* (1 - p*) ) / (N (q* - p*)**2)        a = size, s = share cut to [0, 1]

    A report has one true bit among them with probability s, and none otherwise. The noise of different bits is independent.

    >>> survey = Params.one_hot(1, prob_p=0, prob_q=1, prob_f=0.5)
    >>> round(total_variance(0.3, 1, 100, survey), 12)  # 3/16 / (100 / 4), whatever the share
    0.0075
    """
    p_star, q_star = params.p_star, params.q_star
    s = min(max(share, 0.0), 1.0)
    noise = s * q_star * (1 - q_star) + (size - s) * p_star * (1 - p_star)
    return noise / (num_reports * (q_star - p_star) ** 2)


def category_intervals(
    counts: BitCounts, selected: Sequence[str], level: float, target: Target
) -> tuple[Floats, Floats]:
    """Confidence intervals of the selected categories, (a,) and (a,), each at `level`.

    Exact for counts of a variance up to 400, and of a population. An end beyond 0 or 1 is not clipped: it is that of the shifted gamma law.
    """
    n, params, names = counts.num_reports, counts.metric.params, counts.metric.categories or ("true",)
    ones, tail = counts.ones[0][[names.index(name) for name in selected]], (1 - level) / 2
    if params.q_star < params.p_star:
        ones, p, q = n - ones, 1 - params.p_star, 1 - params.q_star
    else:
        p, q = params.p_star, params.q_star
    if target == "population":
        low, high = beta.ppf(tail, ones, n - ones + 1), beta.isf(tail, ones + 1, n - ones)
        return (np.where(ones > 0, low, 0) - p) / (q - p), (np.where(ones < n, high, 1) - p) / (q - p)
    low, high = _gamma_law_intervals(ones, n, p, q, level)
    for i, count in enumerate(ones.tolist()):
        share = min(max((count / n - p) / (q - p), 0), 1)
        if n * (share * q * (1 - q) + (1 - share) * p * (1 - p)) <= _MAX_EXACT_VARIANCE:
            low[i], high[i] = _exact_interval(count, n, p, q, tail, (low[i], high[i]))
    return low, high


def simultaneous_level(level: float, categories: int, target: Target) -> float:
    """Level of each of some intervals, so that all of them cover with probability `level`: Sidak's, or Bonferroni's of a population.

    >>> round(simultaneous_level(0.95, 2, "reporters"), 6), round(simultaneous_level(0.95, 2, "population"), 6)
    (0.974679, 0.975)
    """
    size = max(1, categories)
    return float(level ** (1 / size)) if target == "reporters" else 1 - (1 - level) / size


def _gamma_law_intervals(ones: NDArray[np.int64], n: int, p: float, q: float, level: float) -> tuple[Floats, Floats]:
    """Intervals from exact variances and third cumulants of the counts, half a count wider on both sides."""
    scale = n * (q - p)
    of_zero, of_one = ((each * (1 - each), each * (1 - each) * (1 - 2 * each)) for each in (p, q))
    cumulants = ErrorCumulants(
        *(
            np.full(len(ones), n * value / scale**power)
            for index, power in ((0, 2), (1, 3))
            for value in (of_zero[index], of_one[index] - of_zero[index])
        )
    )
    shares = category_shares(ones, n, p, q)

    def law(moved: Floats) -> tuple[Floats, Floats]:
        at = ErrorLaw(moved, cumulants.variances + np.clip(moved, 0, 1) * cumulants.variance_slopes, cumulants, None)
        return at.interval(level, at.p_values(), np.zeros(len(ones), bool))

    return law(shares - 0.5 / scale)[0], law(shares + 0.5 / scale)[1]


def _exact_interval(
    count: int, n: int, p: float, q: float, tail: float, beyond: tuple[float, float]
) -> tuple[float, float]:
    """Smallest and largest X / n with P(C >= count) and P(C <= count) above `tail`; the ends of `beyond` where that is 0 or n."""

    def at_least(c: int, with_category: int) -> float:
        center, spread = with_category * q, _WINDOW * (1 + math.sqrt(with_category * q * (1 - q)))
        some = np.arange(max(0, math.floor(center - spread)), min(with_category, math.ceil(center + spread)) + 1)
        return float(binom.pmf(some, with_category, q) @ binom.sf(c - 1 - some, n - with_category, p))

    low = _first(lambda x: at_least(count, x) > tail, n)
    high = _first(lambda x: 1 - at_least(count + 1, x) <= tail, n) - 1
    lower = low / n if low > 0 else min(beyond[0], 0.0)
    if high == n:
        return lower, max(beyond[1], 1.0)
    return lower, high / n if high >= 0 else min(beyond[1], -0.5 / n)


def _first(holds: Callable[[int], bool], n: int) -> int:
    """Smallest x in 0 .. n for which a monotone predicate holds; n + 1 if none."""
    low, high = 0, n + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low
