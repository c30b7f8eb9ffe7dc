"""What all estimates together say of each candidate's share, and of the strings without one: found in turns with the estimates."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hubbub_decoder.array_types import Flags, Floats
from hubbub_decoder.estimators.mixed_model import Beliefs, Misfit, MixedModel, Solution, Solved, Totals
from hubbub_decoder.inference.prior import fit_prior

_LOOKS, _ROUNDS = 6, 8
_SETTLED = 0.02
_STRIDE = 4.0  # tau**2 shrinks by this factor a round at most
_PACE = 0.7  # how far beliefs move in a round; at 1 they swing
_OWN = 0.02  # no belief is wider than 1 / this many of the estimate's own variances, nor narrower than _SURE of one
_SURE = 1e-4
STRONG = 3.5
"""Standard errors beyond which a candidate is not taken for one of many alike."""
_LEAST_ROWS = 4  # observations for each candidate that is estimated together with others


@dataclass(frozen=True, eq=False)
class Learnt:
    """What is believed of each candidate, and tau**2, the sum of squared shares of strings without one, with its standard error."""

    beliefs: Beliefs
    scatter: float
    scatter_std: float


def begin(model: MixedModel) -> tuple[Learnt, Solution]:
    """Look at each cohort by itself, the strong candidates subtracted and all others taken for scatter.

    tau**2 is then the sum of squared shares of all strings but the strong; less what is believed of candidates, that of the strings
    without one.
    """
    strong, scatter = np.zeros(model.candidates), 0.0
    for _ in range(_LOOKS):
        seen, misfit = look(model, strong, scatter)
        before, scatter, subtracted = scatter, max(scatter + misfit.step, 0.0), strong
        strong = joint_shares(model, seen.shares / np.sqrt(misfit.ratio * seen.variances), scatter)
        if abs(model.variance_ratio(scatter, before) - 1) < _SETTLED:
            break
    x, v, mean, variance = _posterior(seen, misfit.ratio)
    weak = mean - subtracted
    left = scatter - float(np.sum(variance + weak**2))
    others = seen.others - np.eye(1, len(seen.others))[0] * weak.sum()
    return Learnt(_beliefs(x, v, mean, variance), max(left, scatter / _STRIDE), misfit.error), replace(
        seen, posterior=mean, others=others
    )


def look(model: MixedModel, known: Floats, scatter: float) -> tuple[Solution, Misfit]:
    """Take some shares as known and all other strings for scatter, and estimate one candidate at a time.

        y - X known = F x_others + s        s ~ N(0, I + tau**2 K)        tau**2 : the sum of squared shares that are not known
        x_j = known_j + x_j'P (y - X known) / x_j'P x_j, with variance 1 / x_j'P x_j

    It is unbiased over the random hash as the whole model is, and less efficient: collisions are noise. The covariance of the
    observations has no entries between cohorts, so it costs next to nothing.

    known : (M,)        scatter : tau**2
    """
    white = model.whitened(scatter)
    fixed, triangle = np.linalg.qr(white.others)
    left = white.y - white.sums(known)
    effects = fixed.T @ left
    left -= fixed @ effects
    information = white.lengths() - np.sum(white.scores(fixed) ** 2, axis=1)
    told = information > 0
    variances = 1 / np.where(told, information, 1)
    shares = known + variances * white.scores(left)
    parts = [(left[rows], fixed[rows], k) for rows, k in zip(white.rows(), white.scatters, strict=True)]
    misfit = Misfit.of([float(r @ k @ r) for r, _, k in parts], [k - f @ (f.T @ k) for _, f, k in parts])
    others = np.linalg.lstsq(triangle, effects, rcond=None)[0]
    return Solution(np.where(told, shares, np.nan), np.where(told, variances, np.inf), known, others), misfit


def joint_shares(model: MixedModel, scores: Floats, scatter: float) -> Floats:
    """Estimate the strong candidates together and return their shares, (M,); 0 for every other candidate.

    A candidate that collides with a frequent one is strong by itself and often nothing beside it. Subtracting what each says by itself would
    subtract the frequent one several times over.

        minimize  |y - F x_others - X_strong x|**2 of the whitened model        strong : the largest scores above 3.5, d / 4 at most

    scores : (M,) shares in standard errors, each estimated by itself        scatter : tau**2
    """
    shares = np.zeros(model.candidates)
    strong = np.flatnonzero(scores > STRONG)
    strong = strong[np.argsort(-scores[strong])[: len(model.y) // _LEAST_ROWS]]
    white = model.whitened(scatter)
    columns = np.column_stack([white.others, white.columns(strong)])
    shares[strong] = np.linalg.lstsq(columns, white.y, rcond=None)[0][white.others.shape[1] :]
    return shares


def learn(model: MixedModel, learnt: Learnt) -> tuple[Learnt, Solution]:
    """Estimate, learn from all estimates how large shares are, and believe so of each, in turns; tau**2 beside it."""
    error = np.inf
    for _ in range(_ROUNDS):
        solved = model.solve(learnt.beliefs, learnt.scatter)
        seen, misfit = solved.solution(roughly=True), solved.misfit()
        before = learnt.scatter
        scatter = max(before + misfit.step, before / _STRIDE)
        beliefs = _moved(learnt.beliefs, _beliefs(*_posterior(seen, misfit.ratio)))
        learnt = Learnt(beliefs, scatter, misfit.error)
        was, error = error, float(np.median(seen.variances)) if len(seen.variances) else 1.0
        changes = model.variance_ratio(scatter, before), error / was
        if max(abs(change - 1) for change in changes) < _SETTLED:
            break
    return learnt, seen


def _beliefs(x: Floats, v: Floats, mean: Floats, variance: Floats) -> Beliefs:
    """Return the normal beliefs that, joined with the estimates, have mean and variance of the posterior under a common prior.

        1/variance = 1/Var(x | estimate) - 1/v        mean/variance = E(x | estimate)/Var(x | estimate) - estimate/v

    (expectation propagation). Where the posterior is wider than the estimate's own error, a belief that says almost nothing stands in for
    one of negative variance.
    """
    variance = np.clip(variance, _SURE * v, v / (1 + _OWN))
    precision = 1 / variance - 1 / v
    return Beliefs((mean / variance - x / v) / precision, 1 / precision)


def _moved(was: Beliefs, now: Beliefs) -> Beliefs:
    """Go some of the way from one to the other, in precisions."""
    precision = _PACE / now.variances + (1 - _PACE) / was.variances
    pull = _PACE * now.means / now.variances + (1 - _PACE) * was.means / was.variances
    return Beliefs(pull / precision, 1 / precision)


def solve_on_more_directions(model: MixedModel, learnt: Learnt) -> tuple[Learnt, Solved]:
    """Solve on more directions than beliefs were learnt on, once tau**2 has taken one step of scoring on all of them.

    Beliefs have taken up noise of the directions they were learnt on, so the tau**2 found there is too small where candidates are many.
    """
    solved = model.solve(learnt.beliefs, learnt.scatter)
    misfit = solved.misfit()
    scatter = max(learnt.scatter + misfit.step, learnt.scatter / _STRIDE)
    if abs(model.variance_ratio(scatter, learnt.scatter) - 1) < _SETTLED:
        return learnt, solved
    return replace(learnt, scatter=scatter, scatter_std=misfit.error), model.solve(learnt.beliefs, scatter)


def totals(model: MixedModel, learnt: Learnt, seen: Solution) -> Totals:
    """Add up, the strong candidates for themselves and all others with a mean of their own."""
    strong = seen.shares > STRONG * np.sqrt(seen.variances)
    return model.solve(_alike(seen, learnt.beliefs, strong), learnt.scatter).totals(~strong)


def _posterior(seen: Solution, misfit: float) -> tuple[Floats, Floats, Floats, Floats]:
    """Return estimates, their variances, and mean and variance of each share under a prior fitted to all of them."""
    x, v = np.nan_to_num(seen.shares), np.minimum(misfit * seen.variances, 1.0)
    return x, v, *(fit_prior(x, v).given(x, v) if len(x) else (x, v))


def _alike(seen: Solution, beliefs: Beliefs, strong: Flags) -> Beliefs:
    """Believe the same of all but the strong: mean 0, and the mean square that they have."""
    v = np.minimum(seen.variances, 1.0)
    squares = seen.posterior**2 + 1 / (1 / v + 1 / beliefs.variances)
    typical = float(squares[~strong].mean()) if not strong.all() else 1.0
    return Beliefs(np.where(strong, seen.posterior, 0), np.where(strong, v / _OWN, typical))
