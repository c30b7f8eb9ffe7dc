"""Covariance of the bit counts of one cohort, exactly.

Model: the clients of a cohort are independent draws, with T reports each. x_v is the share of candidate v, x_o that of the unlisted
strings; the rest reports "no value". b_v (k,) are the bits of v in the cohort; w and W are the moments of a random string
(`random_string.py`).

    E y = sum_v x_v b_v + x_o w = mu        Cov y = C / (n (q* - p*)**2)        y : debiased bit shares (k,) of n reports

docs/explanation/mathematics.md, equations (3.1) and (15.4).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from scipy import sparse

from hubbub.metrics.params import Params
from hubbub_decoder.array_types import Floats
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.model.random_string import RandomStringMoments
from hubbub_decoder.model.repetition import ONCE, Repetition

# of the mean variance: without noise the bits of a report add up exactly, and a covariance is singular
_RELATIVE_RIDGE = 1e-9
_MIN_ERROR_REPORTS = 0.1  # without noise a bit that no string sets is 0 for certain, and would outweigh all others


def report_covariance(
    bits: sparse.csr_array,
    shares: Floats,
    unlisted: float,
    random_string: RandomStringMoments,
    params: Params,
    repetition: Repetition = ONCE,
) -> Floats:
    """Covariance C (k, k) of the bits of one report of a cohort, by which n reports have n C.

        mu = sum_v x_v b_v + x_o w                    q* - p* = (a - b) (q - p)
        C  = D + R G + T H                            T reports of a client, R of a permanent response (`repetition.py`)
        D  = diag(pi q (1-q) + (1 - pi) p (1-p))      pi = b + (a - b) mu
        G  = (q-p)**2 diag(mu a (1-a) + (1 - mu) b (1-b))
        H  = (q* - p*)**2 (sum_v x_v b_v b_v' + x_o W - mu mu')

    The noise of different bits is independent, so only true bits correlate off the diagonal.

    bits     : (k, M) of the candidates in this cohort
    shares   : (M,) x_v, not negative      unlisted : x_o; with the shares at most 1
    """
    mu = bits @ shares + unlisted * random_string.mean
    weighted = sparse.csr_array((bits.data * shares[bits.indices], bits.indices, bits.indptr), bits.shape)
    together = weighted @ bits.T
    clients = together.toarray() + unlisted * random_string.second_moment - np.outer(mu, mu)
    covariance: Floats = repetition.per_client * (params.mechanism.q_star - params.mechanism.p_star) ** 2 * clients
    np.fill_diagonal(covariance, bit_variance(mu, params, repetition))
    return covariance


def bit_variance(true_ones: Floats, params: Params, repetition: Repetition = ONCE) -> Floats:
    """Variance of one bit of a report, by which n reports have n times it: the diagonal of C; pi (1 - pi) without repetition.

    true_ones : share mu of the reports whose true bit is one, any shape
    """
    instantaneous, permanent = params.mechanism.noise_variances(true_ones)
    clients = (params.mechanism.q_star - params.mechanism.p_star) ** 2 * true_ones * (1 - true_ones)
    return instantaneous + repetition.per_response * permanent + repetition.per_client * clients


def bit_shares_and_covariances(
    evidence: Evidence,
    blocks: Iterable[sparse.csr_array],
    shares: Floats,
    unlisted: float,
) -> Iterator[tuple[Floats, sparse.csr_array, Floats]]:
    """Yield, for each cohort with reports: bit shares y_j (k,), the candidates' bits (k, M), and the covariance of y_j (k, k).

        Cov y_j = C_j / (n_j (q* - p*)**2), plus a ridge: 1e-9 of its mean variance, and a tenth of a report, (.1 / n_j)**2

    C_j is `report_covariance` at these shares, first cut to [0, 1] and scaled to sum to at most 1. Reports of several periods are those
    of the same clients.

    blocks : (k, M) bits of every cohort      shares : (M,)      unlisted : share of the unlisted strings
    """
    params, random_string, repetition = evidence.params, evidence.random_string, evidence.repetition
    cut, rest = np.maximum(shares, 0), max(unlisted, 1 / evidence.num_reports)
    total = max(1.0, cut.sum() + rest)
    for y, n, bits in zip(evidence.bit_shares, evidence.counts.reports, blocks, strict=True):
        if n:
            covariance = report_covariance(bits, cut / total, rest / total, random_string, params, repetition)
            covariance /= n * (params.mechanism.q_star - params.mechanism.p_star) ** 2
            ridge = _RELATIVE_RIDGE * covariance.trace() / len(covariance) + (_MIN_ERROR_REPORTS / n) ** 2
            covariance[np.diag_indices_from(covariance)] += ridge
            yield y, bits, covariance
