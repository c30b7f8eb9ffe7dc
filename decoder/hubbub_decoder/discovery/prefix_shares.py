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
candidates: intervals and tests come from reports of other clients. docs/explanation/mathematics.md, equations (21.2) to (21.4). Sources: Donoho, Maleki & Montanari
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

_ROUNDS, _MAX_LIKELY, _MAX_ITERATIONS = 3, 20_000, 30
_MAX_DEVIATIONS = 3.0
_DAMPING = 0.7
_TOLERANCE = 0.02
SMALLEST_SCORE = 1.5
MAX_LOG_ODDS = 30.0


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
        p, q = self.params.mechanism.p_star, self.params.mechanism.q_star
        ones = p + (q - p) * np.clip(shares, 0, 1)
        return np.asarray(np.maximum(ones * (1 - ones), 1e-12) / (self.clients * (q - p) ** 2))

    def score_noise(self, shares: Floats, weights: Floats) -> ScoreNoise:
        """Noise of estimates with these weights, at true bit shares."""
        p, q = self.params.mechanism.p_star, self.params.mechanism.q_star
        ones = p + (q - p) * float(np.clip(np.median(shares), 0, 1))
        third = ones * (1 - ones) * (1 - 2 * ones) / (self.clients**2 * (q - p) ** 3)
        bits = len(self.clients) * self.params.num_hashes
        skewness = (weights**3 * third).mean() * bits / (weights.mean() * bits) ** 1.5
        per_share = (1 - 2 * p) / ((q - p) * float(self.clients.sum()) * self.params.num_hashes)
        return ScoreNoise(max(per_share, 0.0), float(skewness))


@dataclass(frozen=True, eq=False)
class Prior:
    """Prior of each candidate: (M,) each.

    log_odds         : ln(rho / (1 - rho))
    means, variances : of the share of its prefix
    weight           : probability that a present candidate has the share of its prefix
    """

    log_odds: Floats
    means: Floats
    variances: Floats
    weight: Floats

    def of(self, some: Indices) -> Prior:
        """Prior of some of the candidates."""
        return Prior(self.log_odds[some], self.means[some], self.variances[some], self.weight[some])

    def posterior(self, x: Floats, absent: Floats, noise: ScoreNoise) -> PrefixShares:
        """Posterior given unbiased estimates x, whose variances are `absent` if the shares are zero."""
        variances = absent + np.maximum(x, 0) * noise.per_share
        z = np.maximum(x / np.sqrt(absent), SMALLEST_SCORE)
        breadth = -np.log(np.minimum(np.sqrt(absent), 1 / math.e))
        likelihood = noise.log_likelihood_ratio(z)
        new = (
            np.log1p(-self.weight)
            + likelihood
            - np.log(z * np.sqrt(absent / variances) * breadth / math.sqrt(2 * math.pi))
        )
        both = variances + self.variances
        same = likelihood - (x - self.means) ** 2 / (2 * both) + np.log(variances / both) / 2
        same = np.where(x > SMALLEST_SCORE * np.sqrt(absent), same + np.log(self.weight), -math.inf)
        odds = np.logaddexp(new, same)
        is_same = np.exp(same - odds)
        of_same, of_new = (x * self.variances + self.means * variances) / both, np.clip(x, 0, 1)
        return PrefixShares(
            np.minimum(self.log_odds + odds, MAX_LOG_ODDS),
            is_same * of_same + (1 - is_same) * of_new,
            is_same * variances * self.variances / both
            + (1 - is_same) * variances
            + is_same * (1 - is_same) * (of_same - of_new) ** 2,
            np.sqrt(variances),
        )


@dataclass(frozen=True)
class ScoreNoise:
    """Noise of the estimates of one group.

    per_share : variance that the estimate of a share x has more than that of an absent prefix, over x
    skewness  : of the estimate of an absent prefix
    """

    per_share: float
    skewness: float

    def log_likelihood_ratio(self, z: Floats) -> Floats:
        """Log-likelihood ratio of the best share against 0 at an estimate of z standard errors: that of a Poisson number of this skewness."""
        g = self.skewness
        if g < 1e-6:
            return np.asarray(z**2 / 2)
        return np.asarray(((1 + g * z) * np.log1p(g * z) - g * z) / g**2)


@dataclass(frozen=True, eq=False)
class PrefixShares:
    """Posteriors of the candidates: (M,) each.

    log_odds         : that the share is positive
    means, variances : of the share, if it is positive
    std_errors       : of the group's estimate
    """

    log_odds: Floats
    means: Floats
    variances: Floats
    std_errors: Floats

    def of(self, some: Indices) -> PrefixShares:
        """Posteriors of some of the candidates."""
        return PrefixShares(self.log_odds[some], self.means[some], self.variances[some], self.std_errors[some])

    def posterior(self) -> tuple[Floats, Floats]:
        """Mean and variance of each share."""
        real = 1 / (1 + np.exp(-np.maximum(self.log_odds, -MAX_LOG_ODDS)))
        return real * self.means, real * self.variances + real * (1 - real) * self.means**2


def estimate_prefixes(bits: GroupBits, positions: Positions, prior: Prior) -> PrefixShares:
    """Estimate the candidates in rounds: all candidates are scored, and messages are passed among the 20,000 most probable.

    The first round has the noise of an average population, the later ones that of the shares found before. Candidates that are not
    among the most probable of the last round have the log odds of its score.

    positions : (m, h, M) bits of the candidates in each cohort of `bits`
    """
    means = own = np.zeros(positions.shape[2])
    expected = np.full_like(bits.shares, np.clip(bits.shares.mean(), 0, 1))
    for _ in range(_ROUNDS):
        noise = bits.noise(expected)
        predicted = _predict(positions, means, bits.params.num_bits)
        residuals, weights = _weigh(bits.shares - predicted, noise, None)
        score = bits.score_noise(expected, weights)
        estimates = _combine(positions, prior, means, residuals, weights, own, score)
        likely = _most_probable(estimates.log_odds)
        among = np.ascontiguousarray(positions[:, :, likely])
        means = np.zeros_like(means)
        means[likely], settled = _pass_messages(
            bits, among, prior.of(likely), noise, estimates.posterior()[0][likely], own[likely], score
        )
        own = means
        predicted = _predict(positions, means, bits.params.num_bits)
        expected = predicted + np.clip(bits.shares - predicted, 0, None).mean()
        for field in ("log_odds", "means", "variances", "std_errors"):
            getattr(estimates, field)[likely] = getattr(settled, field)
    return estimates


def _most_probable(log_odds: Floats) -> Indices:
    if len(log_odds) <= _MAX_LIKELY:
        return np.arange(len(log_odds))
    return np.sort(np.argpartition(-log_odds, _MAX_LIKELY)[:_MAX_LIKELY])


def _pass_messages(
    bits: GroupBits, positions: Positions, prior: Prior, noise: Floats, means: Floats, own: Floats, score: ScoreNoise
) -> tuple[Floats, PrefixShares]:
    """Posterior means, and estimates, when they settle."""
    k, h = bits.params.num_bits, bits.params.num_hashes
    carried, weights = np.zeros_like(noise), None
    for _ in range(_MAX_ITERATIONS):
        residuals, weights = _weigh(bits.shares - _predict(positions, means, k) + carried, noise, weights)
        estimates = _combine(positions, prior, means, residuals, weights, own, score)
        posterior, variances = estimates.posterior()
        carried = float(variances.sum()) * h / k * weights * residuals
        change = (posterior - means) / estimates.std_errors
        means = means + _DAMPING * (posterior - means)
        if np.abs(change).max(initial=0) < _TOLERANCE:
            break
    return means, estimates


def _weigh(residuals: Floats, noise: Floats, weights: Floats | None) -> tuple[Floats, Floats]:
    """Residuals (m, k) less their mean, cut to three standard deviations, and the weights 1 / (noise + T h / k).

    A frequent string that is no candidate has few bits. Cut, it cannot outweigh all other bits of a candidate, nor raise T.

    weights : of the iteration before; None: from the mean square of all residuals
    """
    if weights is None:
        weights = 1 / (noise + max(float((residuals**2 - noise).mean()), 0.0))
    residuals = residuals - (weights * residuals).sum() / weights.sum()
    bound = _MAX_DEVIATIONS / np.sqrt(weights)
    residuals = np.clip(residuals, -bound, bound)
    hashing = float((weights**2 * (residuals**2 - noise)).sum() / (weights**2).sum())
    return residuals, 1 / (noise + max(hashing, 0.0))


def _combine(
    positions: Positions,
    prior: Prior,
    means: Floats,
    residuals: Floats,
    weights: Floats,
    own: Floats,
    noise: ScoreNoise,
) -> PrefixShares:
    """Estimates of the candidates from the residuals at their bits.

    own : shares of the candidates that the weights know of: their noise is none of an absent prefix
    """
    scores = _gather(positions, weights * residuals + 1j * weights)
    variances = 1 / scores.imag
    absent = np.maximum(variances - own * noise.per_share, 0.1 * variances)
    return prior.posterior(means + scores.real / scores.imag, absent, noise)


def _predict(positions: Positions, shares: Floats, num_bits: int) -> Floats:
    """Sum of the shares at each bit: (m, k)."""
    some: Indices = np.flatnonzero(shares > 0)
    weights = shares[some]
    return np.array([sum(np.bincount(bits[some], weights, num_bits) for bits in in_cohort) for in_cohort in positions])


def _gather(positions: Positions, tables: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """Sum of the entries of tables (m, k) at the bits of each candidate: (M,)."""
    total = np.zeros(positions.shape[2], tables.dtype)
    for table, in_cohort in zip(tables, positions, strict=True):
        for bits in in_cohort:
            total += table.take(bits)
    return total
