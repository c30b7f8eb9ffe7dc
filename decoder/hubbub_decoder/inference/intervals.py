"""Estimates and standard errors -> intervals, tests and what is called found."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from scipy.stats import norm

from hubbub_decoder.array_types import Floats
from hubbub_decoder.inference.null_distribution import ErrorLaw

POWER = 0.9

Target = Literal["reporters", "population"]


def among_reporters(variance: Floats, shares: Floats, num_reports: int | None) -> Floats:
    """Turn the variance of a share of a population that reports are drawn from into that of the share among the reports.

        Var_reporters = Var - x (1 - x) / N

    An estimate that is unbiased for the share among those who reported differs from the population's share by its own error
    and by theirs, x (1 - x) / N, which are uncorrelated. x is cut to [0, 1], the result to [0, inf).

    num_reports : N; None: the population is what is asked about, and the variance stays

    >>> among_reporters(np.array([0.01]), np.array([0.5]), num_reports=100).tolist()
    [0.0075]
    """
    if num_reports is None:
        return variance
    x = np.clip(shares, 0, 1)
    return np.maximum(variance - x * (1 - x) / num_reports, 0)


def of_poisson(variance: Floats, shares: Floats, num_reports: int | None, seen: int) -> Floats:
    """Do the same for a variance that counts the number of reports itself as chance: Var - x / N.

    For the population of which the reporters are a sample, what is left of it is Var - x**2 / N.

    seen : the number of reports there were

    >>> of_poisson(np.array([0.01]), np.array([0.5]), 100, 100).tolist()
    [0.005]
    """
    x = np.clip(shares, 0, 1)
    return np.maximum(variance - (x**2 if num_reports is None else x) / seen, 0)


def interval(shares: Floats, std_errors: Floats, level: float, law: ErrorLaw | None = None) -> tuple[Floats, Floats]:
    """Return shares - a std_errors and shares + b std_errors, not clipped: errors are above a, or below -b, with chance (1 - level) / 2 each.

    law : of errors; None: normal
    """
    beyond = (1 - level) / 2
    above, below = (law.above(beyond), law.below(beyond)) if law else (norm.isf(beyond),) * 2
    with np.errstate(invalid="ignore"):  # of none, that of no error reaches anywhere: level 1
        return shares - above * std_errors, shares + below * std_errors


def level_after_selection(fdr: float, detected: int, tests: int) -> float:
    """Return the level of intervals of the detected whose false coverage rate is at most `fdr`.

        1 - fdr detected / tests

    Source: Benjamini & Yekutieli 2005, theorem 2.

    >>> level_after_selection(0.05, detected=10, tests=100)
    0.995
    """
    return 1 - fdr * detected / tests


def detectable_share(null_std_error: float, num_tests: int, fdr: float, law: ErrorLaw | None = None) -> float:
    """Return the share of a candidate that would be found 9 times in 10, even if it were the only one.

        x = (z(1 - fdr / M) + z(.9)) s        the level of the first Benjamini-Hochberg step, that of Bonferroni; the first z is the law's

    >>> round(detectable_share(0.001, num_tests=100, fdr=0.05), 5)
    0.00457
    """
    first = law.above(fdr / num_tests) if law else norm.isf(fdr / num_tests)
    return float((first + norm.ppf(POWER)) * null_std_error)


def reports_to_detect(share: float, detectable: float, num_reports: int) -> int:
    """Return how many reports would make `share` the detectable one: errors shrink with the root of N.

    >>> reports_to_detect(0.001, detectable=0.002, num_reports=1000)
    4000
    """
    return math.ceil(num_reports * (detectable / share) ** 2)
