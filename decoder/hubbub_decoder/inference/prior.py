"""Estimates -> how large shares are, all candidates taken together, and what that says of each one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import logsumexp, ndtr, softmax

from hubbub_decoder.array_types import Flags, Floats

_SMALLEST = 0.2  # of a typical standard error: what is smaller looks like nothing
_RATIO, _WIDTH = 1.5, 0.3
_STEPS, _SETTLED = 150, 1e-7
_HALVINGS = 30
_POINT, _SLIVER = (
    1e-8,
    1e-3,
)  # how wide what is a point at 0 is taken to be, squared and in standard errors of the estimate


@dataclass(frozen=True, eq=False)
class Prior:
    """A mixture of normals, each about as wide as it is far from 0, that stands for any distribution of shares.

    centres, widths, weights : (K,), the first centre and width 0
    """

    centres: Floats
    widths: Floats
    weights: Floats

    def given(self, x: Floats, variances: Floats) -> tuple[Floats, Floats]:
        """Return mean and variance of each share, given its estimate x with normal noise of these variances."""
        members, means, within = self._posterior(x, variances)
        mean = (members * means).sum(axis=1)
        return mean, (members * (within + (means - mean[:, None]) ** 2)).sum(axis=1)

    def quantiles(self, x: Floats, variances: Floats, level: float) -> Floats:
        """Return below what each share is with probability `level`, given its estimate; never below 0."""
        members, means, within = self._posterior(x, variances)
        errors = np.sqrt(np.maximum(within, _POINT * variances[:, None]))

        def below(at: Floats, rows: Flags | slice) -> Floats:
            return np.asarray((members[rows] * ndtr((at[:, None] - means[rows]) / errors[rows])).sum(axis=1))

        some = below(_SLIVER * np.sqrt(variances), slice(None)) < level
        low, high = np.zeros(int(some.sum())), np.maximum(0, (means[some] + 10 * errors[some]).max(axis=1))
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            under = below(middle, some) < level
            low, high = np.where(under, middle, low), np.where(under, high, middle)
        quantiles = np.zeros(len(x))
        quantiles[some] = high
        return quantiles

    def evidence(self, x: Floats, variances: Floats) -> float:
        """Return how much likelier (2 ln of the ratio) the prior makes the estimates than if every share were 0."""
        logs, _ = _log_likelihood(x, variances, self.centres, self.widths)
        return float(2 * (logsumexp(self._joint(logs), axis=1) - logs[:, 0]).sum())

    def _joint(self, logs: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            return np.asarray(logs + np.log(self.weights))

    def _posterior(self, x: Floats, variances: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the components' weights, means and variances given each estimate: (M, K)."""
        logs, total = _log_likelihood(x, variances, self.centres, self.widths)
        members = softmax(self._joint(logs), axis=1)
        means = (self.centres * variances[:, None] + x[:, None] * self.widths**2) / total
        return members, means, variances[:, None] * self.widths**2 / total


def fit_prior(x: Floats, variances: Floats) -> Prior:
    """Fit the mixture to estimates, its mean at most 1/M: shares add up to at most one.

        maximize over weights  sum_v ln sum_k weights_k N(x_v | centre_k, variance_v + width_k**2)

    Centres are 0 and a geometric sequence. Their width keeps a handful of candidates from making a prior that is surer of them than
    their estimates are.
    Source: Kiefer & Wolfowitz 1956; Stephens 2017 for mixtures of normals.
    """
    error = float(np.sqrt(np.median(variances)))
    top = max(1.1 * float(x.max()), 3 * error)
    steps = 1 + int(np.ceil(np.log(top / (_SMALLEST * error)) / np.log(_RATIO)))
    centres = np.append(0, _SMALLEST * error * _RATIO ** np.arange(steps))
    logs, _ = _log_likelihood(x, variances, centres, _WIDTH * centres)
    likelihood = np.exp(logs - logs.max(axis=1, keepdims=True))
    return Prior(centres, _WIDTH * centres, mixture_weights(likelihood, centres, 1 / len(x)))


def mixture_weights(likelihood: Floats, values: Floats, bound: float) -> Floats:
    """Maximize the likelihood of a mixture over weights whose mean is at most `bound`, by EM with a multiplier.

    likelihood : (M, K) of each estimate under each component, to a factor a row      values : (K,) the components' means
    """
    weights = np.full(len(values), 1 / len(values))
    deviation = values / bound - 1
    was = -np.inf
    for _ in range(_STEPS):
        density = likelihood @ weights
        members = weights * ((1 / density) @ likelihood) / len(likelihood)
        weights = members / members.sum()
        if weights @ deviation > 0:

            def slack(multiplier: float, members: Floats = members) -> float:
                return float(np.sum(members * deviation / (1 + multiplier * deviation)))

            nearly = 1 - 1e-12
            multiplier = brentq(slack, 0, nearly, maxiter=500) if slack(nearly) < 0 else nearly
            weights = members / (1 + multiplier * deviation)
            weights /= weights.sum()
        now = float(np.log(density).mean())
        if now - was < _SETTLED:
            break
        was = now
    return weights


def _log_likelihood(x: Floats, variances: Floats, centres: Floats, widths: Floats) -> tuple[Floats, Floats]:
    """Return ln N(x | centre, variance + width**2) to a constant, and variance + width**2: (M, K)."""
    total = variances[:, None] + widths**2
    return -((x[:, None] - centres) ** 2) / (2 * total) - np.log(total) / 2, total
