"""Closed-form estimator for categorical and boolean metrics: one bit for each category, no hashing.

Model:     c_i of N reports have bit i set; c_i = Binomial(X_i, q*) + Binomial(N - X_i, p*), X_i the reporters with category i
Estimator: x_i = (c_i / N - p*) / (q* - p*), unbiased for X_i / N
Variance:  of the summed estimates of a categories with true share s, given the reporters (`total_variance`):

    Var = (s q* (1 - q*) + (a - s) p* (1 - p*)) / (N (q* - p*)**2)        plus s (1 - s) / N as the share of a population

P-values are exact: P(Binomial(N, p*) >= c_i). docs/mathematics.md, section 9.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hubbub.metrics.metric import Metric
from hubbub.metrics.params import Params
from hubbub.summary import BitCounts
from hubbub_decoder.array_types import Floats
from hubbub_decoder.errors import CandidateError
from hubbub_decoder.estimators.fit_result import FitResult
from hubbub_decoder.model.distributions import binom


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
    shares = category_shares(counts.ones[0], n, params)
    totals = np.array([shares[some].sum() for some in (shown, hidden, slice(None))])
    population, reporters = _variances(shares[shown], [1] * len(shown), n, params)
    of_totals, of_totals_among_reporters = _variances(totals, [len(shown), len(hidden), len(names)], n, params)
    return FitResult(
        shares=shares[shown],
        variances=population,
        reporter_variances=reporters,
        p_values=exact_p_values(counts.ones[0], n, params)[shown],
        totals=totals,
        total_variances=of_totals,
        total_reporter_variances=of_totals_among_reporters,
        null_error=math.sqrt(total_variance(0, 1, n, params)),
    )


def _variances(shares: Floats, sizes: Sequence[int], num_reports: int, params: Params) -> tuple[Floats, Floats]:
    """Variances of sums of `sizes` categories, (n,) each: as shares of a population, and as shares among the reporters."""
    pairs = zip(shares.tolist(), sizes, strict=True)
    reporters = np.array([total_variance(share, size, num_reports, params) for share, size in pairs])
    return reporters + np.where((shares > 0) & (shares < 1), shares * (1 - shares) / num_reports, 0), reporters


def category_shares(ones: NDArray[np.int64], num_reports: int, params: Params) -> Floats:
    """Unbiased shares x_i = (c_i / N - p*) / (q* - p*), (k,), of counts c (k,).

    >>> survey = Params.one_hot(1, prob_p=0, prob_q=1, prob_f=0.5)  # two coins: p* = 1/4, q* = 3/4
    >>> category_shares(np.array([40]), 100, survey).round(12).tolist()
    [0.3]
    """
    return np.asarray((ones / num_reports - params.p_star) / (params.q_star - params.p_star))


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


def exact_p_values(ones: NDArray[np.int64], num_reports: int, params: Params) -> Floats:
    """Exact p-values (k,) of "no client reported the category": the tail of Binomial(N, p*) beyond the count.

    >>> exact_p_values(np.array([2]), 2, Params.one_hot(1, prob_p=0, prob_q=1, prob_f=0.5)).tolist()  # (1/4)**2
    [0.0625]
    """
    if params.q_star > params.p_star:
        return np.asarray(binom.sf(ones - 1, num_reports, params.p_star))
    return np.asarray(binom.cdf(ones, num_reports, params.p_star))
