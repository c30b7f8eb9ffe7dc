"""Standard errors by target, confidence intervals, and the reports that a detection needs.

Symbols: x a share, s its standard error, N reports, M tests. docs/explanation/mathematics.md, sections 5, 7 and 10.
"""

from __future__ import annotations

import math

import numpy as np

from hubbub_decoder.array_types import Floats
from hubbub_decoder.model.distributions import norm

DETECTION_POWER = 0.9
"""Probability with which a share of the detection limit is detected."""


def detection_level(num_tests: float, fdr: float, confidence: float) -> float:
    """Largest p-value of a candidate that is detected even as the only one of M tests: fdr / M, at most (1 - confidence) / 2.

    fdr / M is the first step of Benjamini and Hochberg's procedure, which is Bonferroni's.

    >>> [round(detection_level(tests, fdr=0.05, confidence=0.95), 6) for tests in (1, 100)]
    [0.025, 0.0005]
    """
    return min(fdr / max(num_tests, 1), (1 - confidence) / 2)


def reporter_variance(variance: Floats, shares: Floats, num_clients: float) -> Floats:
    """Variance of an estimate as the share among the reporters, from its variance as a population's share.

        Var_reporters = Var - x (1 - x) / N        N = num_clients; x cut to [0, 1], the result to [0, inf)

    The estimate differs from the population's share by its own error and by the reporters', x (1 - x) / N, which are uncorrelated.
    docs/explanation/mathematics.md, equation (5.1).

    >>> reporter_variance(np.array([0.01]), np.array([0.5]), num_clients=100).tolist()
    [0.0075]
    """
    x = np.clip(shares, 0, 1)
    return np.maximum(variance - x * (1 - x) / num_clients, 0)


def poisson_variances(variance: Floats, shares: Floats, num_clients: float) -> tuple[Floats, Floats]:
    """Variances as a population's share and as the share among the reporters, of an estimate from Poisson counts.

        Var_population = Var - x**2 / N        Var_reporters = Var - x / N        N = num_clients; x cut to [0, 1], results to [0, inf)

    `variance` takes the number of clients itself for random. docs/explanation/mathematics.md, section 7.

    >>> [v.tolist() for v in poisson_variances(np.array([0.01]), np.array([0.5]), 100)]
    [[0.0075], [0.005]]
    """
    x = np.clip(shares, 0, 1)
    return np.maximum(variance - x**2 / num_clients, 0), np.maximum(variance - x / num_clients, 0)


def normal_interval(share: float, std_error: float, level: float) -> tuple[float, float]:
    """Confidence interval x - z s to x + z s of a normal estimate, not clipped to [0, 1].

    >>> [round(end, 3) for end in normal_interval(0.5, 0.1, level=0.95)]
    [0.304, 0.696]
    """
    reach = float(norm.isf((1 - level) / 2)) * std_error
    return share - reach, share + reach


def selection_adjusted_level(fdr: float, detected: int, tests: int) -> float:
    """Level at which intervals of the detected candidates have a false coverage rate of at most `fdr`: 1 - fdr detected / tests.

    Source: Benjamini & Yekutieli 2005, theorem 2.

    >>> selection_adjusted_level(0.05, detected=10, tests=100)
    0.995
    """
    return 1 - fdr * detected / tests


def unlisted_std_error(unlisted_variance: float, num_cohorts: int, dimensions: int) -> float:
    """Standard error of a candidate that remains with infinitely many reports, from collisions with unlisted strings: tau / sqrt(m d).

    It is a lower bound, since other candidates take up some of the m d observations.

    unlisted_variance : tau**2      num_cohorts : m      dimensions : d, rank of the covariance V of a random string's indicator

    >>> unlisted_std_error(0.04, num_cohorts=25, dimensions=4)
    0.02
    """
    return (
        math.sqrt(max(unlisted_variance, 0) / (num_cohorts * dimensions)) if unlisted_variance > 0 < dimensions else 0.0
    )


def reports_to_detect(share: float, limit: float, num_reports: int, lowest_limit: float = 0.0) -> int | None:
    """Number of reports that lowers the detection limit to `share`, given the `limit` of `num_reports`; None if no number does.

        N' = N (limit**2 - lowest**2) / (share**2 - lowest**2)        the noise part of the variance shrinks as 1 / N

    lowest_limit : limit with infinitely many reports, caused by unlisted strings

    >>> reports_to_detect(0.001, limit=0.002, num_reports=1000)
    4000
    >>> reports_to_detect(0.01, limit=0.023, num_reports=1000, lowest_limit=0.02) is None
    True
    """
    if share <= lowest_limit:
        return None
    lowest = (lowest_limit / share) ** 2
    return math.ceil(num_reports * ((limit / share) ** 2 - lowest) / (1 - lowest))
