"""Shares of very many prefixes of one group: message passing on single bits, with a prior of each prefix from its parent.

Model, for bit i of cohort j of the group, with n_j reports and debiased share t_ij:

    t_ij = sum of x_v over the prefixes v with bit i in cohort j + (other strings) + e_ij        Var e_ij = s_ij (1 - s_ij) / (n_j (q* - p*)**2)
    x_v  = 0 with probability 1 - rho_v, else log-uniform between one standard error and 1

s_ij is the expected share of ones at the shares found. A candidate hashes like a random string, so every uncertain share V_v, and every
other string, is noise T h / k in each bit. One iteration, with W = 1 / (Var e + T h / k) and r the residuals of all posterior means:

    r    = t - X mean - (mean residual) + (sum V_v) h/k W r (of the iteration before)        T = k / h (mean square of r - Var e)
    x_v  = mean_v + sum of W r over the bits of v / J_v        J_v = sum of W over the bits of v        z = x_v sqrt(J_v)
    log odds of v = ln(rho_v / (1 - rho_v)) + z**2 / 2 - ln(z ln(sqrt J_v) / sqrt(2 pi))        at z >= 1.5
    mean_v, V_v   = posterior of v

`estimators/message_passing.py` fits one prior to all candidates and whitens the bits of a cohort jointly. This search has a prior for
each candidate and treats bits as independent, so an iteration is one look-up for each candidate and bit. Its estimates only rank
candidates: intervals and tests come from reports of other clients. docs/mathematics.md, section 13. Sources: Donoho, Maleki & Montanari
2009; Wang, Li & Jha 2019.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hubbub.metrics.params import Params
from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.model.vectorized_hashing import Positions

_MAX_ITERATIONS = 30
_CLIP = 3.0
_DAMPING = 0.7
_TOLERANCE = 0.02
_SMALLEST_SCORE = 1.5
_MAX_LOG_ODDS = 30.0


@dataclass(frozen=True, eq=False)
class GroupBits:
    """Debiased bit shares of one group of cohorts.

    shares  : (m, k)    t
    clients : (m, 1)    n, of cohorts with reports only
    """

    params: Params
    shares: Floats
    clients: Floats

    def noise(self, shares: Floats) -> Floats:
        """Var e (m, k) at true bit shares (m, k)."""
        p, q = self.params.p_star, self.params.q_star
        ones = p + (q - p) * np.clip(shares, 0, 1)
        return np.asarray(np.maximum(ones * (1 - ones), 1e-12) / (self.clients * (q - p) ** 2))


@dataclass(frozen=True, eq=False)
class PrefixShares:
    """Estimates of the candidates' shares, their standard errors, and log odds that a share is positive: (M,) each."""

    shares: Floats
    std_errors: Floats
    log_odds: Floats


def estimate_prefixes(bits: GroupBits, positions: Positions, prior_log_odds: Floats) -> PrefixShares:
    """Estimate all candidates: with the noise of an average population first, and then with that of the shares found.

    positions : (m, h, M) bits of the candidates in each cohort of `bits`      prior_log_odds : (M,) ln(rho / (1 - rho))
    """
    average = np.full_like(bits.shares, np.clip(bits.shares.mean(), 0, 1))
    means, _ = _iterate(bits, positions, prior_log_odds, average, np.zeros(positions.shape[2]))
    predicted = _predict(positions, means, bits.params.num_bits)
    left = np.clip(bits.shares - predicted, 0, None).mean()
    return _iterate(bits, positions, prior_log_odds, predicted + left, means)[1]


def _iterate(
    bits: GroupBits, positions: Positions, prior: Floats, expected: Floats, means: Floats
) -> tuple[Floats, PrefixShares]:
    """Posterior means, and estimates, when they settle under the noise of expected bit shares (m, k)."""
    k, h = bits.params.num_bits, bits.params.num_hashes
    noise = bits.noise(expected)
    uncertain, weighted, weights = 0.0, np.zeros_like(noise), np.zeros_like(noise)
    for _ in range(_MAX_ITERATIONS):
        residuals = bits.shares - _predict(positions, means, k)
        residuals += uncertain * h / k * weighted
        if not weights.any():
            weights = 1 / (noise + max(float((residuals**2 - noise).mean()), 0.0))
        residuals -= (weights * residuals).sum() / weights.sum()
        bound = _CLIP / np.sqrt(weights)
        residuals = np.clip(residuals, -bound, bound)
        hashing = max(float((weights**2 * (residuals**2 - noise)).sum() / (weights**2).sum()), 0.0)
        weights = 1 / (noise + hashing)
        weighted = weights * residuals
        scores = _gather(positions, weighted + 1j * weights)
        information = scores.imag
        x = means + scores.real / information
        shares = PrefixShares(x, 1 / np.sqrt(information), _log_odds(prior, x, information))
        posterior, variances = _posterior(shares)
        change = posterior - means
        means = means + _DAMPING * change
        uncertain = float(variances.sum())
        if np.sqrt((change**2 * information).max(initial=0)) < _TOLERANCE:
            break
    return means, shares


def _log_odds(prior: Floats, x: Floats, information: Floats) -> Floats:
    z = np.maximum(x * np.sqrt(information), _SMALLEST_SCORE)
    breadth = np.log(np.sqrt(np.maximum(information, math.e**2)))
    return np.asarray(np.minimum(prior + z**2 / 2 - np.log(z * breadth / math.sqrt(2 * math.pi)), _MAX_LOG_ODDS))


def _posterior(estimates: PrefixShares) -> tuple[Floats, Floats]:
    """Mean and variance of each share."""
    real = 1 / (1 + np.exp(-np.maximum(estimates.log_odds, -_MAX_LOG_ODDS)))
    x = np.clip(estimates.shares, 0, 1)
    return real * x, real * estimates.std_errors**2 + real * (1 - real) * x**2


def _predict(positions: Positions, shares: Floats, num_bits: int) -> Floats:
    """Sum of the shares at each bit: (m, k)."""
    some: Indices = np.flatnonzero(shares > 0)
    weights = shares[some]
    return np.array([sum(np.bincount(each[some], weights, num_bits) for each in in_cohort) for in_cohort in positions])


def _gather(positions: Positions, tables: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """Sum of the entries of tables (m, k) at the bits of each candidate: (M,)."""
    total = np.zeros(positions.shape[2], tables.dtype)
    for table, in_cohort in zip(tables, positions, strict=True):
        for each in in_cohort:
            total += table.take(each)
    return total
