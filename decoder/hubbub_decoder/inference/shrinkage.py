"""Estimates -> one distribution to look at as a whole: shrunk, never negative, at most one in sum. Not unbiased.

An unbiased estimate of a share far below its standard error is mostly noise, and a thousand of them are a thousand times that. What all
estimates together say about how large shares are is a prior; each guess is the median of what the prior and its own estimate say.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import chi2

from hubbub_decoder.array_types import Floats
from hubbub_decoder.inference.prior import fit_prior

_DOUBT = 0.01


@dataclass(frozen=True, eq=False)
class Guess:
    """Guesses of all shares at once, (M,) each, never negative; low and high hold the middle of what the prior leaves possible.

    The interval is right on average over all candidates, most of which may be nothing, and not for each of them.
    """

    shares: Floats
    low: Floats
    high: Floats


def best_guess(shares: Floats, std_errors: Floats, level: float = 0.95) -> Guess:
    """Guess all shares at once: the posterior medians under a prior estimated from the estimates themselves.

    The median is what minimizes the expected total variation; low and high leave (1 - level) / 2 on either side. If the estimates would
    be no surprise were every share 0 (likelihood ratio test, 1 %), the guess is 0.

    shares, std_errors : (M,); where not finite the guess is 0, its interval unknown      returns shares at most 1 in sum
    Source: Kiefer & Wolfowitz 1956; Efron 2010, ch. 1.
    """
    certain = np.isfinite(shares) & (std_errors == 0)
    known = np.isfinite(shares) & np.isfinite(std_errors) & (std_errors > 0)
    guess = np.where(certain, np.maximum(np.nan_to_num(shares), 0), 0)
    low, high = np.where(known | certain, guess, np.nan), np.where(known | certain, guess, np.nan)
    if known.any():
        x, variances = shares[known], std_errors[known] ** 2
        prior = fit_prior(x, variances)
        tail = (1 - level) / 2
        low[known], guess[known], high[known] = (prior.quantiles(x, variances, at) for at in (tail, 0.5, 1 - tail))
        if prior.evidence(x, variances) < chi2.isf(_DOUBT, 2):
            low[known], guess[known] = 0, 0
    return Guess(guess / max(1.0, float(guess.sum())), low, high)
