"""Covariance of the bit counts of one cohort, exactly.

Model: the reports of a cohort are independent draws. x_v is the share of candidate v, x_o that of the unlisted strings; the rest reports
"no value". b_v (k,) are the bits of v in the cohort; w and W are the moments of a random string (`random_string.py`).

    E y = sum_v x_v b_v + x_o w = mu        Cov y = C / (n (q* - p*)**2)        y : debiased bit shares (k,) of n reports

docs/mathematics.md, section 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from scipy import sparse

from hubbub.metrics.params import Params
from hubbub.summary import BitCounts
from hubbub_decoder.array_types import Floats
from hubbub_decoder.model.debias import bit_shares
from hubbub_decoder.model.random_string import RandomStringMoments

_RELATIVE_RIDGE = (
    1e-9  # of the mean variance: without noise the bits of a report add up exactly, and a covariance is singular
)


def report_covariance(
    bits: sparse.csr_array, shares: Floats, unlisted: float, random_string: RandomStringMoments, params: Params
) -> Floats:
    """Covariance (k, k) of the bits of one report of a cohort; n reports have n times it.

        mu = sum_v x_v b_v + x_o w                    pi = p* + (q* - p*) mu
        C_ij = (q* - p*)**2 (sum_v x_v b_v,i b_v,j + x_o W_ij - mu_i mu_j)        C_ii = pi_i (1 - pi_i)

    The noise of different bits is independent, so only true bits correlate off the diagonal.

    bits     : (k, M) of the candidates in this cohort
    shares   : (M,) x_v, not negative      unlisted : x_o; with the shares at most 1
    """
    mu = bits @ shares + unlisted * random_string.mean
    together = (bits * shares) @ bits.T
    contrast = params.q_star - params.p_star
    covariance: Floats = contrast**2 * (together.toarray() + unlisted * random_string.second_moment - np.outer(mu, mu))
    pi = params.p_star + contrast * mu
    np.fill_diagonal(covariance, pi * (1 - pi))
    return covariance


def bit_shares_and_covariances(
    counts: BitCounts,
    blocks: Iterable[sparse.csr_array],
    random_string: RandomStringMoments,
    shares: Floats,
    unlisted: float,
) -> Iterator[tuple[Floats, sparse.csr_array, Floats]]:
    """Yield, for each cohort with reports: bit shares y_j (k,), the candidates' bits (k, M), and the covariance of y_j (k, k).

        Cov y_j = C_j / (n_j (q* - p*)**2), plus a ridge of 1e-9 of its mean variance

    C_j is `report_covariance` at these shares, first cut to [0, 1] and scaled to sum to at most 1.

    blocks : (k, M) bits of every cohort      shares : (M,)      unlisted : share of the unlisted strings
    """
    params = counts.metric.params
    cut, rest = np.maximum(shares, 0), max(unlisted, 1 / counts.num_reports)
    total = max(1.0, cut.sum() + rest)
    for y, n, bits in zip(bit_shares(counts), counts.reports, blocks, strict=True):
        if n:
            covariance = report_covariance(bits, cut / total, rest / total, random_string, params)
            covariance /= n * (params.q_star - params.p_star) ** 2
            covariance[np.diag_indices_from(covariance)] += _RELATIVE_RIDGE * covariance.trace() / len(covariance)
            yield y, bits, covariance
