"""Posterior medians of all shares: the distribution as a whole, shrunk and biased, never negative, at most 1 in sum.

Model:     the prior of `prior.py`, fitted to all estimates
Estimator: median of the posterior of each share given its estimate; it minimizes the expected total variation
Interval:  quantiles (1 - level) / 2 and (1 + level) / 2 of the same posterior

Unbiased estimates of many shares below their standard error are mostly noise, and their sum is many times that noise.
docs/mathematics.md, section 8. Source: Kiefer & Wolfowitz 1956; Efron 2010, chapter 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hubbub_decoder.array_types import Floats
from hubbub_decoder.inference.prior import fit_prior
from hubbub_decoder.model.distributions import chi2

_NO_SIGNAL_LEVEL = 0.01  # of the likelihood ratio test of "every share is 0"


@dataclass(frozen=True, eq=False)
class PosteriorMedians:
    """Posterior medians of all shares, (M,), with the ends of credible intervals, (M,).

    The intervals cover on average over all candidates, most of which may have share 0, and not for each of them.
    """

    shares: Floats
    low: Floats
    high: Floats


def posterior_medians(shares: Floats, std_errors: Floats, level: float = 0.95) -> PosteriorMedians:
    """Posterior medians of all shares under a prior fitted to the estimates, with credible intervals at `level`.

    If a likelihood ratio test at 1 % does not reject "every share is 0", the medians and lower ends are 0.

    shares, std_errors : (M,); where not finite, the median is 0 and its interval nan
    returns            : shares of at most 1 in sum
    """
    certain = np.isfinite(shares) & (std_errors == 0)
    known = np.isfinite(shares) & np.isfinite(std_errors) & (std_errors > 0)
    median = np.where(certain, np.maximum(np.nan_to_num(shares), 0), 0)
    low, high = np.where(known | certain, median, np.nan), np.where(known | certain, median, np.nan)
    if known.any():
        x, variances = shares[known], std_errors[known] ** 2
        prior = fit_prior(x, variances)
        tail = (1 - level) / 2
        low[known], median[known], high[known] = (prior.quantiles(x, variances, at) for at in (tail, 0.5, 1 - tail))
        if prior.likelihood_ratio(x, variances) < chi2.isf(_NO_SIGNAL_LEVEL, 2):
            low[known], median[known] = 0, 0
    return PosteriorMedians(median / max(1.0, float(median.sum())), low, high)
