"""Prior of all shares, fitted to all estimates (empirical Bayes), and the posterior of each share.

Model:      x_v = share_v + e_v        e_v ~ N(0, variance_v) independent        share_v ~ G for all candidates v
Estimator:  G = sum_k weights_k N(centre_k, width_k**2), weights by penalized maximum likelihood, with mean E_G share <= 1/M

docs/explanation/mathematics.md, section 8. Source: Kiefer & Wolfowitz 1956; Efron 2010, chapter 1; Stephens 2017 for mixtures of normals.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp, ndtr, softmax, xlogy

from hubbub_decoder.array_types import Flags, Floats, Indices

_SMALLEST_CENTRE = 0.2  # in typical standard errors: a smaller share cannot be told from 0
_CENTRE_RATIO = 1.5
RELATIVE_WIDTH = 0.3  # standard deviation of a component, in its centre
_MAX_STEPS, _CONVERGENCE_TOLERANCE = 150, 1e-7  # of the mean log-likelihood
_BISECTIONS = 30
_MAX_ROOT_STEPS, _ROOT_TOLERANCE = 100, 1e-12
_POINT_VARIANCE = 1e-8  # variance given to a point mass, in variances of the estimate
PSEUDO_CANDIDATES = 0.1
"""In each component before any estimate: keeps a prior of few candidates from following their noise."""
_STRATUM_STEPS, _PRIOR_CANDIDATES = 30, 10.0
_AT_BOUND = 0.999  # of the largest mean: the bound holds
_ZERO_WIDTH = 1e-3  # a share below so many standard errors counts as 0


@dataclass(frozen=True, eq=False)
class Prior:
    """Mixture of K normals that stands for any distribution of shares; the first component is a point mass at 0.

    centres, widths : (K,)      weights : (K,), or (M, K) if each of M candidates has its own
    pseudo_candidates : (K,) in each component before any estimate; None: the prior is known, not fitted
    max_mean : bound on the mean      strata : (M,) of the candidates that the weights were fitted to; None: one stratum
    """

    centres: Floats
    widths: Floats
    weights: Floats
    pseudo_candidates: Floats | None = None
    max_mean: float = np.inf
    strata: Indices | None = None

    def posterior(self, x: Floats, variances: Floats) -> tuple[Floats, Floats]:
        """Mean and variance of each share given its estimate x (M,) with normal noise of these variances (M,)."""
        members, means, within = self._components(x, variances)
        mean = (members * means).sum(axis=1)
        return mean, (members * (within + (means - mean[:, None]) ** 2)).sum(axis=1)

    def fitted_posterior(self, x: Floats, variances: Floats) -> tuple[Floats, Floats]:
        """Mean m_v and variance of each share given the estimates (M,) that the prior was fitted to, with the error of the fit.

        With r_vk the posterior weight of component k, mu_vk the mean in it, V_v the variance under the prior, and a the pseudo-candidates:

            Var = V_v + d_v'H^-1 d_v = variance_v dm_v/dx_v          d_vk = r_vk (mu_vk - m_v)          H = diag(a) + sum_v r_v r_v'

        H is the information about the logarithms of the weights, and d_v the derivative of m_v by them. x_v moves m_v through the prior,
        too, so the same sum is the derivative of m_v. Where the mean is at its bound, weights move along it. At most the estimate's own
        variance, or V_v. Source: Tweedie's formula (Efron 2011) for d_v; Kass & Steffey 1989 for the variance.
        """
        if self.pseudo_candidates is None:
            return self.posterior(x, variances)
        members, means, within = self._components(x, variances)
        mean = (members * means).sum(axis=1)
        deviations = members * (means - mean[:, None])
        variance = (members * within + deviations * (means - mean[:, None])).sum(axis=1)
        of_fit = np.empty(len(x))
        strata = np.zeros(len(x), np.intp) if self.strata is None else self.strata
        for stratum in np.unique(strata):
            rows = strata == stratum
            inverse = np.linalg.inv(np.diag(self.pseudo_candidates) + members[rows].T @ members[rows])
            if self.weights.ndim == 1 and self.weights @ self.centres > _AT_BOUND * self.max_mean:
                normal = inverse @ (self.weights * (self.centres / self.max_mean - 1))
                inverse -= np.outer(normal, normal) / (self.weights * (self.centres / self.max_mean - 1) @ normal)
            of_fit[rows] = np.einsum("vk,kl,vl->v", deviations[rows], inverse, deviations[rows], optimize=True)
        return mean, np.minimum(variance + of_fit, np.maximum(variance, variances))

    def quantiles(self, x: Floats, variances: Floats, level: float) -> Floats:
        """Quantile of each share's posterior at `level`, (M,), by bisection; never below 0."""
        members, means, within = self._components(x, variances)
        errors = np.sqrt(np.maximum(within, _POINT_VARIANCE * variances[:, None]))

        def below(at: Floats, rows: Flags | slice) -> Floats:
            return np.asarray((members[rows] * ndtr((at[:, None] - means[rows]) / errors[rows])).sum(axis=1))

        positive = below(_ZERO_WIDTH * np.sqrt(variances), slice(None)) < level
        low, high = np.zeros(int(positive.sum())), np.maximum(0, (means[positive] + 10 * errors[positive]).max(axis=1))
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            under = below(middle, positive) < level
            low, high = np.where(under, middle, low), np.where(under, high, middle)
        quantiles = np.zeros(len(x))
        quantiles[positive] = high
        return quantiles

    def likelihood_ratio(self, x: Floats, variances: Floats) -> float:
        """Likelihood ratio statistic, 2 ln(L / L_0), of this prior against shares that are all 0."""
        logs, _ = _log_densities(x, variances, self.centres, self.widths)
        return float(2 * (logsumexp(self._joint(logs), axis=1) - logs[:, 0]).sum())

    def _joint(self, logs: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            return np.asarray(logs + np.log(self.weights))

    def _components(self, x: Floats, variances: Floats) -> tuple[Floats, Floats, Floats]:
        """Posterior weights, means and variances of the components given each estimate: (M, K) each."""
        logs, total = _log_densities(x, variances, self.centres, self.widths)
        members = softmax(self._joint(logs), axis=1)
        means = (self.centres * variances[:, None] + x[:, None] * self.widths**2) / total
        return members, means, variances[:, None] * self.widths**2 / total


def fit_prior(
    x: Floats, variances: Floats, strata: Indices | None = None, *, signed: bool = False, exclusive: bool = True
) -> Prior:
    """Fit the prior to estimates x (M,) with these variances (M,).

        maximize over weights  sum_v ln sum_k weights_k N(x_v | centre_k, variance_v + width_k**2) + .1 sum_k ln weights_k
        where                  sum_k weights_k centre_k <= 1/M      exclusive: the shares add up to at most 1; else <= 1

    Centres are 0 and a geometric sequence from 0.2 typical standard errors to 1.1 times the largest estimate. Widths of 0.3 times the
    centre keep a prior of few candidates from being more certain than their estimates.

    strata : (M,) of the candidates; each stratum has its own weights, drawn towards the common ones by 10 candidates. None: one stratum
    signed : whether x are changes of shares: centres on both sides of 0, and no bound on the mean
    """
    centres = prior_centres(np.abs(x) if signed else x, variances)
    if signed:
        centres = np.append(centres, -centres[1:])
    widths = RELATIVE_WIDTH * np.abs(centres)
    logs, _ = _log_densities(x, variances, centres, widths)
    likelihood = np.exp(logs - logs.max(axis=1, keepdims=True))
    bound = np.inf if signed else 1 / len(x) if exclusive else 1.0
    weights = mixture_weights(likelihood, centres, bound, PSEUDO_CANDIDATES)
    if strata is None:
        return Prior(centres, widths, weights, np.full(len(centres), PSEUDO_CANDIDATES), bound)
    own = stratified_weights(likelihood, weights, strata)
    return Prior(centres, widths, own[strata], _PRIOR_CANDIDATES * weights, bound, strata)


def prior_centres(x: Floats, variances: Floats) -> Floats:
    """Centres (K,) of the components: 0, and a geometric sequence from 0.2 typical standard errors to 1.1 times the largest estimate."""
    error = float(np.sqrt(np.median(variances)))
    top = max(1.1 * float(x.max()), 3 * error)
    steps = 1 + int(np.ceil(np.log(top / (_SMALLEST_CENTRE * error)) / np.log(_CENTRE_RATIO)))
    return np.append(0, _SMALLEST_CENTRE * error * _CENTRE_RATIO ** np.arange(steps))


def stratified_weights(likelihood: Floats, common: Floats, strata: Indices) -> Floats:
    """Weights of the mixture in each of G strata, (G, K), by EM with the common weights (K,) as those of 10 more candidates in each.

    likelihood : (M, K) of each estimate under each component, up to a factor for each row
    """
    sizes = np.bincount(strata)[:, None]
    weights = np.tile(common, (len(sizes), 1))
    for _ in range(_STRATUM_STEPS):
        members = weights[strata] * likelihood
        members /= members.sum(axis=1, keepdims=True)
        sums = np.column_stack([np.bincount(strata, column, len(sizes)) for column in members.T])
        weights = (sums + _PRIOR_CANDIDATES * common) / (sizes + _PRIOR_CANDIDATES)
    return weights


def mixture_weights(likelihood: Floats, values: Floats, bound: float, pseudo_count: float = 0.0) -> Floats:
    """Weights (K,) of a mixture whose mean is at most `bound`, by EM with a Lagrange multiplier.

    likelihood   : (M, K) of each estimate under each component, up to a factor for each row
    values       : (K,) means of the components
    pseudo_count : a of the Dirichlet prior of the weights, prod_k weights_k**a; 0: maximum likelihood
    """
    weights = np.full(len(values), 1 / len(values))
    deviation = values / bound - 1
    previous = -np.inf
    for _ in range(_MAX_STEPS):
        density = likelihood @ weights
        members = weights * ((1 / density) @ likelihood) + pseudo_count
        members /= members.sum()
        objective = float(np.log(density).sum() + xlogy(pseudo_count, weights).sum()) / len(likelihood)
        weights = members
        if weights @ deviation > 0:
            weights = members / (1 + mean_multiplier(members, deviation) * deviation)
            weights /= weights.sum()
        if objective - previous < _CONVERGENCE_TOLERANCE:
            break
        previous = objective
    return weights


def mean_multiplier(members: Floats, deviation: Floats) -> float:
    """Lagrange multiplier mu in (0, 1) of the bound on the mean: the root of a decreasing function.

        sum_k members_k deviation_k / (1 + mu deviation_k) = 0        members @ deviation > 0, deviation >= -1

    Newton's method; a step that leaves the bracket of the root is replaced by its middle. Without a root below 1, the result is
    nearly 1. `scipy.optimize.brentq` does the same but takes 0.15 s to import.
    """
    low, high = 0.0, 1 - 1e-12
    multiplier = 0.0
    for _ in range(_MAX_ROOT_STEPS):
        terms = deviation / (1 + multiplier * deviation)
        slack = float(members @ terms)
        low, high = (multiplier, high) if slack > 0 else (low, multiplier)
        step = slack / float(members @ terms**2)
        if not low <= multiplier + step <= high:
            step = (low + high) / 2 - multiplier
        multiplier += step
        if abs(step) < _ROOT_TOLERANCE:
            break
    return multiplier


def _log_densities(x: Floats, variances: Floats, centres: Floats, widths: Floats) -> tuple[Floats, Floats]:
    """Return ln N(x | centre, variance + width**2) up to a constant, and variance + width**2: (M, K) each."""
    total = variances[:, None] + widths**2
    return -((x[:, None] - centres) ** 2) / (2 * total) - np.log(total) / 2, total
