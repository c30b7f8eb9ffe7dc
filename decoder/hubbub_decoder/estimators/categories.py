"""Closed-form estimator for categorical and boolean metrics: one bit for each category, no hashing.

Model:     c_i of N reports have bit i set; c_i = Binomial(X_i, q*) + Binomial(N - X_i, p*), X_i the reporters with category i
Estimator: x_i = (c_i / N - p*) / (q* - p*), unbiased for X_i / N
Variance:  of the summed estimates of a categories with true share s, given the reporters (`total_variance`):

    Var = (s q* (1 - q*) + (a - s) p* (1 - p*)) / (N (q* - p*)**2)        plus s (1 - s) / N as the share of a population

P-values are exact: P(Binomial(N, p*) >= c_i). With T reports of each client the permanent noise and the sampling of clients repeat
(`model/repetition.py`): q* (1 - q*), p* (1 - p*) and s (1 - s) are replaced, and p-values use an effective number of reports.
docs/mathematics.md, sections 9 and 15.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc

from hubbub.metrics.metric import Metric
from hubbub.metrics.params import Params
from hubbub.summary import BitCounts
from hubbub_decoder.array_types import Floats
from hubbub_decoder.errors import CandidateError
from hubbub_decoder.estimators.fit_result import FitResult
from hubbub_decoder.model.bit_covariance import bit_noise
from hubbub_decoder.model.repetition import ONCE, Repetition


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
    repetition = Repetition.from_periods(counts.metric, counts.periods)
    shown = np.array([names.index(name) for name in selected])
    hidden = np.setdiff1d(np.arange(len(names)), shown)
    shares = category_shares(counts.ones[0], n, params)
    totals = np.array([shares[some].sum() for some in (shown, hidden, slice(None))])
    population, reporters = _variances(shares[shown], [1] * len(shown), n, params, repetition)
    of_totals, of_totals_among_reporters = _variances(
        totals, [len(shown), len(hidden), len(names)], n, params, repetition
    )
    return FitResult(
        shares=shares[shown],
        variances=population,
        reporter_variances=reporters,
        p_values=p_values(counts.ones[0], n, params, repetition)[shown],
        totals=totals,
        total_variances=of_totals,
        total_reporter_variances=of_totals_among_reporters,
        null_error=math.sqrt(total_variance(0, 1, n, params, repetition)),
    )


def _variances(
    shares: Floats, sizes: Sequence[int], num_reports: int, params: Params, repetition: Repetition
) -> tuple[Floats, Floats]:
    """Variances of sums of `sizes` categories, (n,) each: as shares of a population, and as shares among the reporters."""
    pairs = zip(shares.tolist(), sizes, strict=True)
    reporters = np.array([total_variance(share, size, num_reports, params, repetition) for share, size in pairs])
    sampling = np.clip(shares, 0, 1) * np.clip(1 - shares, 0, 1) / repetition.num_clients(num_reports)
    return reporters + sampling, reporters


def category_shares(ones: NDArray[np.int64], num_reports: int, params: Params) -> Floats:
    """Unbiased shares x_i = (c_i / N - p*) / (q* - p*), (k,), of counts c (k,).

    >>> survey = Params.one_hot(1, prob_p=0, prob_q=1, prob_f=0.5)  # two coins: p* = 1/4, q* = 3/4
    >>> category_shares(np.array([40]), 100, survey).round(12).tolist()
    [0.3]
    """
    return np.asarray((ones / num_reports - params.p_star) / (params.q_star - params.p_star))


def total_variance(share: float, size: int, num_reports: int, params: Params, repetition: Repetition = ONCE) -> float:
    """Variance of the summed estimates of `size` categories that have a true share `share`, given the reporters.

        Var = ( s V_1 + (a - s) V_0 ) / (N (q* - p*)**2)        a = size, s = share cut to [0, 1], V of `bit_noise`

    V_1 = q* (1 - q*) and V_0 = p* (1 - p*) where each report has another client. A report has one true bit among them with probability s,
    and none otherwise. The noise of different bits is independent.

    >>> survey = Params.one_hot(1, prob_p=0, prob_q=1, prob_f=0.5)
    >>> round(total_variance(0.3, 1, 100, survey), 12)  # 3/16 / (100 / 4), whatever the share
    0.0075
    """
    s = min(max(share, 0.0), 1.0)
    absent, present = _noise(params, repetition)
    return (s * present + (size - s) * absent) / (num_reports * (params.q_star - params.p_star) ** 2)


def _noise(params: Params, repetition: Repetition) -> tuple[float, float]:
    """Variance that each report adds to the count of a bit, where the true bit is zero, and where it is one."""
    instantaneous, permanent = bit_noise(np.array([0.0, 1.0]), params)
    absent, present = instantaneous + repetition.per_response * permanent
    return float(absent), float(present)


def p_values(ones: NDArray[np.int64], num_reports: int, params: Params, repetition: Repetition = ONCE) -> Floats:
    """P-values (k,) of "no client reported the category": the tail of Binomial(N, p*) beyond the count.

    It is exact where each report has another client. Otherwise, N and the count are divided by the design effect, the variance of the count
    over that of the binomial (Rao and Scott 1981), and the tail is interpolated by the incomplete beta function.

    >>> p_values(np.array([2]), 2, Params.one_hot(1, prob_p=0, prob_q=1, prob_f=0.5)).tolist()  # (1/4)**2
    [0.0625]
    """
    chance, successes = params.p_star, ones
    if params.q_star < params.p_star:
        chance, successes = 1 - chance, num_reports - ones
    variance = chance * (1 - chance)
    effect = _noise(params, repetition)[0] / variance if variance else 1.0
    of_clients = successes / effect
    tail = betainc(np.maximum(of_clients, np.finfo(float).tiny), (num_reports - successes) / effect + 1, chance)
    return np.where(successes > 0, tail, 1.0)
