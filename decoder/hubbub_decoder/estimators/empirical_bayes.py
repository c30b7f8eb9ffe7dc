"""Empirical Bayes: alternate between estimating shares and fitting the prior of shares and the variance of unlisted strings.

Model:     that of `mixed_model.py`, with the priors N(mean_v, variance_v) of the candidates and tau**2 unknown
Estimator: 1. `initialize`: estimate each candidate separately, without priors, strong candidates subtracted
           2. `iterate`: solve the mixed model; fit a common prior to all estimates (`inference/prior.py`); give each candidate the normal
              prior that, joined with its estimate, has the mean and variance of its posterior (expectation propagation):

                  1/variance_v = 1/Var(x | x_v) - 1/v_v        mean_v/variance_v = E(x | x_v)/Var(x | x_v) - x_v/v_v

              and take one step of Fisher scoring for tau**2; repeat until tau**2 and the errors change by less than 2 %
           3. `estimate_on_held_out_directions`: solve on all directions, after one more step for tau**2
Variance:  v_v of `mixed_model.py`; while fitting the prior, v_v times the ratio of `Overdispersion`, since priors have not settled

x_v, v_v are a share's estimate and its variance; tau**2 is the sum of squared shares of the unlisted strings, a `unlisted_variance`.
docs/mathematics.md, section 7. Source: Minka 2001; Harville 1977.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hubbub_decoder.array_types import Flags, Floats
from hubbub_decoder.estimators.mixed_model import (
    CandidatePriors,
    MixedModel,
    Overdispersion,
    ShareEstimates,
    SolvedModel,
    Totals,
)
from hubbub_decoder.inference.prior import fit_prior

_MAX_INITIAL_ROUNDS, _MAX_ROUNDS = 6, 8
_CONVERGENCE_TOLERANCE = (
    0.02  # relative change of the observations' variance and of the median variance of the estimates
)
_MAX_SHRINKAGE = 4.0  # factor by which tau**2 may shrink in one round
_DAMPING = 0.7  # weight of the new priors in a round; with 1 they oscillate
_MIN_PRIOR_PRECISION = 0.02  # of a candidate's prior, in precisions of its estimate
_MIN_POSTERIOR_VARIANCE = 1e-4  # of a candidate's share, in variances of its estimate
_STRONG_STANDARD_ERRORS = 3.5  # a share above is not exchangeable with the others
_ROWS_PER_STRONG_CANDIDATE = 4  # observations for each candidate that is estimated jointly with others


@dataclass(frozen=True, eq=False)
class EmpiricalBayesState:
    """Priors of all candidates, and tau**2 with its standard error."""

    priors: CandidatePriors
    unlisted_variance: float
    unlisted_variance_error: float


def initialize(model: MixedModel) -> tuple[EmpiricalBayesState, ShareEstimates]:
    """Return the initial priors and tau**2, and the estimates behind them: one candidate at a time, without priors.

    Strong candidates (above 3.5 standard errors) are subtracted; all other strings count as noise. The fitted tau**2 is then the sum of
    squared shares of all strings that were not subtracted. For the unlisted strings the part of the candidates is removed:
    sum E (x_v - subtracted_v)**2 under the posterior; at least a quarter of tau**2 remains.
    """
    strong, unlisted_variance = np.zeros(model.num_candidates), 0.0
    for _ in range(_MAX_INITIAL_ROUNDS):
        estimates, overdispersion = estimate_candidates_separately(model, strong, unlisted_variance)
        before, subtracted = unlisted_variance, strong
        unlisted_variance = max(before + overdispersion.step, 0.0)
        scores = estimates.shares / np.sqrt(overdispersion.ratio * estimates.variances)
        strong = estimate_strong_jointly(model, scores, unlisted_variance)
        if abs(model.variance_ratio(unlisted_variance, before) - 1) < _CONVERGENCE_TOLERANCE:
            break
    x, v, mean, variance = _posterior(estimates, overdispersion.ratio)
    weak = mean - subtracted
    left = unlisted_variance - float(np.sum(variance + weak**2))
    state = EmpiricalBayesState(
        _matching_priors(x, v, mean, variance),
        max(left, unlisted_variance / _MAX_SHRINKAGE),
        overdispersion.error,
    )
    of_unlisted = np.eye(1, len(estimates.fixed_effects))[0]
    effects = estimates.fixed_effects - of_unlisted * weak.sum()
    return state, replace(estimates, posterior_means=mean, fixed_effects=effects)


def estimate_candidates_separately(
    model: MixedModel, known: Floats, unlisted_variance: float
) -> tuple[ShareEstimates, Overdispersion]:
    """Estimate one candidate at a time, given the shares of some and with all other strings as noise.

        y - X known = F f + s        s ~ N(0, I + tau**2 K)        tau**2 : the sum of squared shares that are not known
        x_v = known_v + x_v'P (y - X known) / x_v'P x_v, with variance 1 / x_v'P x_v

    Unbiased over the random hash like the whole model, and less efficient, since collisions are noise. The covariance of the
    observations has no entries between cohorts, so the cost is negligible.

    known : (M,) shares, 0 for unknown ones
    """
    white = model.whitened(unlisted_variance)
    basis, triangle = np.linalg.qr(white.fixed_columns)
    residual = white.y - white.predict(known)
    effects = basis.T @ residual
    residual -= basis @ effects
    information = white.squared_norms() - np.sum(white.scores(basis) ** 2, axis=1)
    determined = information > 0
    variances = 1 / np.where(determined, information, 1)
    estimates = ShareEstimates(
        shares=np.where(determined, known + variances * white.scores(residual), np.nan),
        variances=np.where(determined, variances, np.inf),
        posterior_means=known,
        fixed_effects=np.linalg.lstsq(triangle, effects, rcond=None)[0],
    )
    parts = [(residual[rows], basis[rows], k) for rows, k in zip(white.rows(), white.unlisted_covariances, strict=True)]
    squares = [float(r @ k @ r) for r, _, k in parts]
    return estimates, Overdispersion.from_cohorts(squares, [k - f @ (f.T @ k) for _, f, k in parts])


def estimate_strong_jointly(model: MixedModel, scores: Floats, unlisted_variance: float) -> Floats:
    """Shares (M,) of the strong candidates, estimated jointly by least squares; 0 for every other candidate.

        minimize  |y - F f - X_strong x|**2 of the whitened model        strong : the largest scores above 3.5, at most d / 4

    A candidate that collides with a frequent one is often strong only because of it. Subtracting single estimates would subtract the
    frequent one several times.

    scores : (M,) shares in standard errors, each estimated alone
    """
    shares = np.zeros(model.num_candidates)
    strong = np.flatnonzero(scores > _STRONG_STANDARD_ERRORS)
    strong = strong[np.argsort(-scores[strong])[: len(model.y) // _ROWS_PER_STRONG_CANDIDATE]]
    white = model.whitened(unlisted_variance)
    columns = np.column_stack([white.fixed_columns, white.columns(strong)])
    shares[strong] = np.linalg.lstsq(columns, white.y, rcond=None)[0][white.fixed_columns.shape[1] :]
    return shares


def iterate(model: MixedModel, state: EmpiricalBayesState) -> tuple[EmpiricalBayesState, ShareEstimates]:
    """Alternate between estimates and priors, with a scoring step for tau**2 each round, until both settle."""
    error = np.inf
    for _ in range(_MAX_ROUNDS):
        solved = model.solve(state.priors, state.unlisted_variance)
        estimates, overdispersion = solved.estimates(approximate=True), solved.overdispersion()
        before = state.unlisted_variance
        unlisted_variance = max(before + overdispersion.step, before / _MAX_SHRINKAGE)
        priors = _damped(state.priors, _matching_priors(*_posterior(estimates, overdispersion.ratio)))
        state = EmpiricalBayesState(priors, unlisted_variance, overdispersion.error)
        previous, error = error, float(np.median(estimates.variances)) if len(estimates.variances) else 1.0
        changes = model.variance_ratio(unlisted_variance, before), error / previous
        if max(abs(change - 1) for change in changes) < _CONVERGENCE_TOLERANCE:
            break
    return state, estimates


def estimate_on_held_out_directions(
    model: MixedModel, state: EmpiricalBayesState
) -> tuple[EmpiricalBayesState, SolvedModel]:
    """Solve on more directions than the priors were fitted on, after one scoring step for tau**2 on all of them.

    The priors have taken up noise of the directions they were fitted on, so the tau**2 found there is too small for many candidates.
    """
    solved = model.solve(state.priors, state.unlisted_variance)
    overdispersion = solved.overdispersion()
    unlisted_variance = max(state.unlisted_variance + overdispersion.step, state.unlisted_variance / _MAX_SHRINKAGE)
    if abs(model.variance_ratio(unlisted_variance, state.unlisted_variance) - 1) < _CONVERGENCE_TOLERANCE:
        return state, solved
    state = replace(state, unlisted_variance=unlisted_variance, unlisted_variance_error=overdispersion.error)
    return state, model.solve(state.priors, unlisted_variance)


def exchangeable_totals(model: MixedModel, state: EmpiricalBayesState, estimates: ShareEstimates) -> Totals:
    """Totals of all candidates and of the fixed effects, with a common mean for all candidates that are not strong.

    The others have mean square E x**2 of their posteriors as their common prior variance.
    """
    strong = estimates.shares > _STRONG_STANDARD_ERRORS * np.sqrt(estimates.variances)
    priors = _exchangeable_priors(estimates, state.priors, strong)
    return model.solve(priors, state.unlisted_variance).totals(~strong)


def _posterior(estimates: ShareEstimates, variance_factor: float) -> tuple[Floats, Floats, Floats, Floats]:
    """Estimates, their variances, and posterior mean and variance of each share under a prior fitted to all: (M,) each.

    variance_factor : by which the nominal variances are multiplied
    """
    x, v = np.nan_to_num(estimates.shares), np.minimum(variance_factor * estimates.variances, 1.0)
    return x, v, *(fit_prior(x, v).posterior(x, v) if len(x) else (x, v))


def _matching_priors(x: Floats, v: Floats, mean: Floats, variance: Floats) -> CandidatePriors:
    """Normal priors that, joined with the estimates, have the posterior's mean and variance.

    Where the posterior is wider than the estimate's own error, the matching variance would be negative; a nearly flat prior replaces it.
    """
    variance = np.clip(variance, _MIN_POSTERIOR_VARIANCE * v, v / (1 + _MIN_PRIOR_PRECISION))
    precision = 1 / variance - 1 / v
    return CandidatePriors((mean / variance - x / v) / precision, 1 / precision)


def _damped(old: CandidatePriors, new: CandidatePriors) -> CandidatePriors:
    """Priors between old and new, 0.7 of the way, in precisions."""
    precision = _DAMPING / new.variances + (1 - _DAMPING) / old.variances
    pull = _DAMPING * new.means / new.variances + (1 - _DAMPING) * old.means / old.variances
    return CandidatePriors(pull / precision, 1 / precision)


def _exchangeable_priors(estimates: ShareEstimates, priors: CandidatePriors, strong: Flags) -> CandidatePriors:
    """One prior for all candidates that are not strong, mean 0 and their mean square; nearly flat priors for the strong."""
    v = np.minimum(estimates.variances, 1.0)
    squares = estimates.posterior_means**2 + 1 / (1 / v + 1 / priors.variances)
    typical = float(squares[~strong].mean()) if not strong.all() else 1.0
    means = np.where(strong, estimates.posterior_means, 0)
    return CandidatePriors(means, np.where(strong, v / _MIN_PRIOR_PRECISION, typical))
