"""Counts of noisy ones -> unbiased estimates of how many reports truly set each bit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hubbub.metrics.params import Params
from hubbub.summary import BitCounts
from hubbub_decoder.array_types import Floats


def debias(ones: NDArray[np.int64], reports: NDArray[np.int64], params: Params) -> tuple[Floats, Floats]:
    """Estimate how many reports truly set each bit, and the variance that the noise gives the estimate.

        t = (c - p* n) / (q* - p*)        Var t = (c (1 - p* - q*) + n p* q*) / (q* - p*)**2

    ones : (m, k) = c      reports : (m,) = n      returns t and Var t, (m, k); t may be negative: noise is.
        Var t is of the noise alone, the true bits held fixed. p > q is as good as p < q.
    Source: Erlingsson et al. 2014, sec. 4; the variance as Cobalt's basic_rappor_analyzer has it.

    >>> params = Params(num_bits=8, num_hashes=1, num_cohorts=1, prob_p=0.25, prob_q=0.75, prob_f=0)
    >>> t, variance = debias(np.array([[35]]), np.array([100]), params)  # 20 x 3/4 + 80 x 1/4 = 35
    >>> t.tolist(), variance.tolist()  # 100 x 3/16 / (1/2)**2
    ([[20.0]], [[75.0]])
    """
    p_star, q_star = params.p_star, params.q_star
    n = reports[:, None]
    t = (ones - p_star * n) / (q_star - p_star)
    variance = (ones * (1 - p_star - q_star) + n * p_star * q_star) / (q_star - p_star) ** 2
    return t, variance


def bit_shares(counts: BitCounts) -> Floats:
    """Return y = t / n, the estimated share of each cohort's reports that truly set each bit: (m, k), nan where n = 0."""
    t, _ = debias(counts.ones, counts.reports, counts.metric.params)
    with np.errstate(invalid="ignore", divide="ignore"):
        return t / counts.reports[:, None]
