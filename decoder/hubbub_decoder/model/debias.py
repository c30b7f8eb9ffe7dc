"""Unbiased estimates of true ones, from counts of noisy ones.

Model: a reported bit is one with probability q* where the true bit is one, and p* where it is zero. docs/explanation/mathematics.md, equation (1.1).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hubbub.metrics.params import Params
from hubbub.summary import BitCounts
from hubbub_decoder.array_types import Floats


def debias(ones: NDArray[np.int64], reports: NDArray[np.int64], params: Params) -> tuple[Floats, Floats]:
    """Unbiased estimate of the number of reports whose true bit is one, and its variance.

        t = (c - p* n) / (q* - p*)        Var t = (c (1 - p* - q*) + n p* q*) / (q* - p*)**2

    ones    : (m, k) int    c, reported ones per cohort and bit
    reports : (m,) int      n, reports per cohort
    returns : (m, k) t, which may be negative, and its variance given the true bits; p > q is allowed
    Source: Erlingsson et al. 2014, section 4; the variance as in Cobalt's basic_rappor_analyzer.

    >>> params = Params(num_bits=8, num_hashes=1, num_cohorts=1, prob_p=0.25, prob_q=0.75, prob_f=0)
    >>> t, variance = debias(np.array([[35]]), np.array([100]), params)  # 20 x 3/4 + 80 x 1/4 = 35
    >>> t.tolist(), variance.tolist()  # 100 x 3/16 / (1/2)**2
    ([[20.0]], [[75.0]])
    """
    p_star, q_star = params.mechanism.p_star, params.mechanism.q_star
    n = reports[:, None]
    t = (ones - p_star * n) / (q_star - p_star)
    variance = (ones * (1 - p_star - q_star) + n * p_star * q_star) / (q_star - p_star) ** 2
    return t, variance


def bit_shares(counts: BitCounts) -> Floats:
    """Estimated share of each cohort's reports whose true bit is one: y = t / n, (m, k); nan where n = 0."""
    t, _ = debias(counts.ones, counts.reports, counts.metric.params)
    with np.errstate(invalid="ignore", divide="ignore"):
        return t / counts.reports[:, None]
