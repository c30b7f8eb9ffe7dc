"""Posterior medians and means of all shares: the distribution as a whole, shrunk and biased, never negative.

Model:     the prior of `prior.py`, fitted to all estimates
Estimator: median of the posterior of each share given its estimate; it minimizes the expected total variation
           mean m_v of the same posterior, which minimizes the expected squared error, moved to the nearest shares with the total L:
               minimize sum_v (y_v - m_v)**2 over y >= 0 with sum y = L, so y_v = max(m_v - lambda, 0)
Interval:  quantiles (1 - level) / 2 and (1 + level) / 2 of the same posterior

Unbiased estimates of many shares below their standard error are mostly noise, and their sum is many times that noise.
docs/explanation/mathematics.md, equation (8.1). Source: Kiefer & Wolfowitz 1956; Efron 2010, chapter 1; Duchi et al. 2008 for the projection.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.inference.deconvolution import DiscretePosterior
from hubbub_decoder.inference.null_distribution import NullDistribution
from hubbub_decoder.inference.prior import fit_prior
from hubbub_decoder.model.distributions import chi2

_NO_SIGNAL_LEVEL = 0.01  # of the likelihood ratio test of "every share is 0"


@dataclass(frozen=True, eq=False)
class PosteriorShares:
    """Posterior medians and means of all shares, (M,), with the ends of credible intervals around the medians, (M,).

    The intervals cover on average over all candidates, most of which may have share 0, and not for each of them.
    """

    medians: Floats
    means: Floats
    low: Floats
    high: Floats


def posterior_shares(
    shares: Floats,
    std_errors: Floats,
    level: float = 0.95,
    total: float = math.nan,
    strata: Indices | None = None,
    null: NullDistribution | None = None,
    *,
    exclusive: bool = True,
) -> PosteriorShares:
    """Posterior medians and means of all shares under a prior fitted to the estimates, with credible intervals at `level`.

    If a likelihood ratio test at 1 % does not reject "every share is 0", the medians and lower ends are 0. Medians that add up to more
    than 1 are divided by their sum, and so are the ends of the intervals.

    shares, std_errors : (M,); where not finite, median and mean are 0 and the interval nan
    total              : sum of the means, cut to [0, 1]; nan: that of the posterior means, at most 1
    strata             : (M,) of the candidates, each with its own prior; None: one prior
    null               : law of error / standard error; None: normal
    exclusive          : whether a report carries at most one of the values, so that the shares add up to at most 1; else each is at most 1,
                         and nothing is divided or moved
    """
    certain = np.isfinite(shares) & (std_errors == 0)
    known = np.isfinite(shares) & np.isfinite(std_errors) & (std_errors > 0)
    estimated = np.where(certain, np.maximum(np.nan_to_num(shares), 0), 0)
    low, median, high = (np.where(known | certain, estimated, np.nan) for _ in range(3))
    mean = estimated.copy()
    if known.any():
        x, variances = shares[known], std_errors[known] ** 2
        of_known, levels = None if strata is None else strata[known], ((1 - level) / 2, 0.5, (1 + level) / 2)
        if null is None:
            prior = fit_prior(x, variances, of_known, exclusive=exclusive)
            mean[known], statistic = prior.posterior(x, variances)[0], prior.likelihood_ratio(x, variances)
            low[known], median[known], high[known] = (prior.quantiles(x, variances, at) for at in levels)
        else:
            posterior = DiscretePosterior.fit(x, std_errors[known], null, of_known)
            mean[known], quantiles = posterior.summarize(levels)
            (low[known], median[known], high[known]), statistic = quantiles, posterior.statistic
        if statistic < chi2.isf(_NO_SIGNAL_LEVEL, 2):
            low[known], median[known] = 0, 0
    if not exclusive:
        low, median, high, mean = (np.minimum(shares, 1) for shares in (low, np.nan_to_num(median), high, mean))
        return PosteriorShares(median, mean, low, high)
    scale = max(1.0, float(np.nansum(median)))
    of_total = min(float(mean.sum()), 1.0) if math.isnan(total) else min(max(total, 0.0), 1.0)
    fitted = known | certain
    mean[fitted] = project_to_total(mean[fitted], of_total)
    return PosteriorShares(np.nan_to_num(median) / scale, mean, low / scale, high / scale)


def project_to_total(means: Floats, total: float) -> Floats:
    """Nearest shares y >= 0 that add up to `total`, (M,): y = max(mean - lambda, 0), with the only lambda that does.

    >>> project_to_total(np.array([0.5, 0.3, -0.1]), 0.6).round(12).tolist()
    [0.4, 0.2, 0.0]
    """
    descending = np.sort(means)[::-1]
    multipliers = (np.cumsum(descending) - total) / np.arange(1, len(means) + 1)
    kept = multipliers[descending > multipliers]
    return np.maximum(means - kept[-1], 0) if len(kept) else np.zeros_like(means)
