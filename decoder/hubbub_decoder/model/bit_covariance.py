"""How the bit counts of one cohort scatter together, exactly.

Conventions: a population drawn at random into cohorts; x_v the share of the reports that carry candidate v, x_o that of
strings without a candidate, the rest "no value"; b_v the bits of v in the cohort; w and W the mean of b and of b b' over
random strings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from scipy import sparse

from hubbub.metrics.params import Params
from hubbub.summary import BitCounts
from hubbub_decoder.array_types import Floats
from hubbub_decoder.model.debias import bit_shares
from hubbub_decoder.model.random_string import RandomString

_RIDGE = 1e-9  # of the mean variance: without noise the bits of a report add up exactly, and a covariance is singular


def report_covariance(
    bits: sparse.csr_array, shares: Floats, unlisted: float, random_string: RandomString, params: Params
) -> Floats:
    """Return the covariance of the bits of one report of a cohort; n reports have n times it.

        mu = sum_v x_v b_v + x_o w                    pi = p* + (q* - p*) mu
        C_ij = (q* - p*)**2 (sum_v x_v b_v,i b_v,j + x_o W_ij - mu_i mu_j)        C_ii = pi_i (1 - pi_i)

    bits : (k, M) of this cohort      shares : (M,), not negative, with `unlisted` at most 1      returns (k, k)
        Off the diagonal only what bits truly share: the noise of different bits is independent.
    """
    mu = bits @ shares + unlisted * random_string.mean
    together = (bits * shares) @ bits.T
    contrast = params.q_star - params.p_star
    covariance: Floats = contrast**2 * (together.toarray() + unlisted * random_string.second - np.outer(mu, mu))
    pi = params.p_star + contrast * mu
    np.fill_diagonal(covariance, pi * (1 - pi))
    return covariance


def bit_shares_with_noise(
    counts: BitCounts, blocks: Iterable[sparse.csr_array], random_string: RandomString, shares: Floats, unlisted: float
) -> Iterator[tuple[Floats, sparse.csr_array, Floats]]:
    """Yield, of each cohort that sent anything, its bit shares y_j (k,), the candidates' bits (k, M) and C_j / (n_j (q* - p*)**2), (k, k).

    C_j is `report_covariance` at these shares, cut to what a population can have; a little more, so that it can be inverted without noise.
    """
    params = counts.metric.params
    cut, rest = np.maximum(shares, 0), max(unlisted, 1 / counts.num_reports)
    total = max(1.0, cut.sum() + rest)
    for y, n, bits in zip(bit_shares(counts), counts.reports, blocks, strict=True):
        if n:
            covariance = report_covariance(bits, cut / total, rest / total, random_string, params)
            covariance /= n * (params.q_star - params.p_star) ** 2
            covariance[np.diag_indices_from(covariance)] += _RIDGE * covariance.trace() / len(covariance)
            yield y, bits, covariance
