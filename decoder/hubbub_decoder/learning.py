"""What all estimates together say of each candidate's share, and of the strings without one: found in turns with the estimates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hubbub_decoder.mixed_model import Beliefs, MixedModel
from hubbub_decoder.prior import fit_prior
from hubbub_decoder.solution import Solution, Solved, Totals
from hubbub_decoder.solving import solve

Floats = NDArray[np.float64]

ROUNDS = 5, 6
"""At most, on the observations at an average population and on those at the shares found."""

_SETTLED = 0.02
_STRIDE = 4.0  # tau**2 grows or shrinks by this factor a round at most
_PACE = 0.7  # how far beliefs move in a round; at 1 they swing
_OWN = 0.02  # no belief is wider than 1 / this many of the estimate's own variances, nor narrower than _SURE of one
_SURE = 1e-4
_STRONG = 3.5  # standard errors beyond which a candidate is not exchangeable with the others in a sum


@dataclass(frozen=True, eq=False)
class Learnt:
    """What is believed of each candidate, and tau**2, the sum of squared shares of strings without one, with its standard error."""

    beliefs: Beliefs
    scatter: float
    scatter_std: float

    @classmethod
    def nothing(cls, candidates: int) -> Learnt:
        """Where to begin: next to nothing is anybody's."""
        variances = np.full(candidates, 1e-4 / np.sqrt(max(candidates, 1)))
        return cls(Beliefs(np.zeros(candidates), variances), 1e-3, np.inf)


def learn(model: MixedModel, learnt: Learnt, rounds: int) -> tuple[Learnt, Solution]:
    """Estimate, learn from all estimates how large shares are, and believe so of each, in turns; tau**2 beside it."""
    error = np.inf
    for _ in range(rounds):
        solved = solve(model, learnt.beliefs, learnt.scatter)
        seen, misfit = solved.solution(roughly=True), solved.misfit()
        before = learnt.scatter
        scatter = float(np.clip(before + misfit.step, before / _STRIDE, before * _STRIDE))
        learnt = Learnt(_believed(seen, misfit.ratio, learnt.beliefs), scatter, misfit.error)
        was, error = error, float(np.median(seen.variances)) if len(seen.variances) else 1.0
        changes = misfit.ratio, model.variance_ratio(scatter, before), error / was
        if max(abs(change - 1) for change in changes) < _SETTLED:
            break
    return learnt, seen


def _believed(seen: Solution, misfit: float, was: Beliefs) -> Beliefs:
    """Return the normal beliefs that, joined with the estimates, have mean and variance of the posterior under a common prior.

        1/variance = 1/Var(x | estimate) - 1/v        mean/variance = E(x | estimate)/Var(x | estimate) - estimate/v

    (expectation propagation). Where the posterior is wider than the estimate's own error, a belief that says almost nothing stands in for
    one of negative variance.
    """
    if not len(seen.shares):
        return was
    x, v, mean, variance = _posterior(seen, misfit)
    variance = np.clip(variance, _SURE * v, v / (1 + _OWN))
    precision = _PACE * (1 / variance - 1 / v) + (1 - _PACE) / was.variances
    pull = _PACE * (mean / variance - x / v) + (1 - _PACE) * was.means / was.variances
    return Beliefs(pull / precision, 1 / precision)


def solved_elsewhere(rest: MixedModel, learnt: Learnt, seen: Solution) -> Solved:
    """Estimate from the directions that taught no belief, whose noise is independent, believing what the others say.

    Where candidates are many times the directions, beliefs take up noise: who is believed to be nothing errs less for it, and who is
    not errs more than the model says, so that too many false ones stand out. Elsewhere the model is right about both.
    """
    _, v, mean, variance = _posterior(seen, 1.0)
    beliefs, scatter = Beliefs(mean, np.maximum(variance, _SURE * v)), learnt.scatter
    return solve(rest, beliefs, max(scatter + solve(rest, beliefs, scatter).misfit().step, scatter / _STRIDE))


def totals(model: MixedModel, learnt: Learnt, seen: Solution) -> Totals:
    """Add up, the strong candidates for themselves and all others with a mean of their own."""
    strong = seen.shares > _STRONG * np.sqrt(seen.variances)
    return solve(model, _alike(seen, learnt.beliefs, strong), learnt.scatter).totals(~strong)


def _posterior(seen: Solution, misfit: float) -> tuple[Floats, Floats, Floats, Floats]:
    """Return estimates, their variances, and mean and variance of each share under a prior fitted to all of them."""
    x, v = np.nan_to_num(seen.shares), np.minimum(misfit * seen.variances, 1.0)
    return x, v, *fit_prior(x, v).given(x, v)


def _alike(seen: Solution, beliefs: Beliefs, strong: NDArray[np.bool_]) -> Beliefs:
    """Believe the same of all but the strong: mean 0, and the mean square that they have."""
    v = np.minimum(seen.variances, 1.0)
    squares = seen.posterior**2 + 1 / (1 / v + 1 / beliefs.variances)
    typical = float(squares[~strong].mean()) if not strong.all() else 1.0
    return Beliefs(np.where(strong, seen.posterior, 0), np.where(strong, v / _OWN, typical))
