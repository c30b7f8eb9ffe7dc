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


def reporter_variance(variance: Floats, shares: Floats, num_reports: int) -> Floats:
    """Variance of an estimate as the share among those who reported, from its variance as a population's share.

        Var_reporters = Var - x (1 - x) / N        x cut to [0, 1], the result to [0, inf)

    The estimate differs from the population's share by its own error and by the reporters', x (1 - x) / N, which are uncorrelated.
    docs/mathematics.md, section 5.

    >>> reporter_variance(np.array([0.01]), np.array([0.5]), num_reports=100).tolist()
    [0.0075]
    """
    x = np.clip(shares, 0, 1)
    return np.maximum(variance - x * (1 - x) / num_reports, 0)


def poisson_variances(variance: Floats, shares: Floats, num_reports: int) -> tuple[Floats, Floats]:
    """Variances as a population's share and as the share among the reporters, of an estimate from Poisson counts.

        Var_population = Var - x**2 / N        Var_reporters = Var - x / N        x cut to [0, 1], results to [0, inf)

    `variance` takes the number of reports itself for random. docs/mathematics.md, section 7.

    >>> [v.tolist() for v in poisson_variances(np.array([0.01]), np.array([0.5]), 100)]
    [[0.0075], [0.005]]
    """
    x = np.clip(shares, 0, 1)
    return np.maximum(variance - x**2 / num_reports, 0), np.maximum(variance - x / num_reports, 0)


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
