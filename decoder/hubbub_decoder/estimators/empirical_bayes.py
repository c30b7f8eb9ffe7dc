"""Empirical Bayes: alternate between estimating shares and fitting the prior of shares and the variance of unlisted strings.

Model:     that of `mixed_model.py`, with the priors N(mean_v, variance_v) of the candidates and tau**2 unknown
Estimator: `iterate`: solve the mixed model; fit a common prior to all estimates (`inference/prior.py`); give each candidate the normal
           prior that, joined with its estimate, has the mean and variance of its posterior (expectation propagation):

               1/variance_v = 1/Var(x | x_v) - 1/v_v        mean_v/variance_v = E(x | x_v)/Var(x | x_v) - x_v/v_v

           and take one step of Fisher scoring for tau**2; repeat until tau**2 and the errors change by less than 2 %
Variance:  v_v of `mixed_model.py`; while fitting the prior, v_v times the ratio of `Overdispersion`, since priors have not settled

x_v, v_v are a share's estimate and its variance; tau**2 is the sum of squared shares of the unlisted strings, a `unlisted_variance`.
docs/mathematics.md, section 7. Source: Minka 2001; Harville 1977.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hubbub_decoder.array_types import Flags, Floats, Indices
from hubbub_decoder.estimators.mixed_model import (
    CandidatePriors,
    MixedModel,
    ShareEstimates,
    Totals,
)
from hubbub_decoder.inference.prior import fit_prior

_MAX_ROUNDS = 8
_CONVERGENCE_TOLERANCE = (
    0.02  # relative change of the observations' variance and of the median variance of the estimates
)
_MAX_SHRINKAGE = 4.0  # factor by which tau**2 may shrink in one round
_DAMPING = 0.7  # weight of the new priors in a round; with 1 they oscillate
_MIN_PRIOR_PRECISION = 0.02  # of a candidate's prior, in precisions of its estimate
_MIN_POSTERIOR_VARIANCE = 1e-4  # of a candidate's share, in variances of its estimate
_STRONG_STANDARD_ERRORS = 3.5  # a share above is not exchangeable with the others


@dataclass(frozen=True, eq=False)
class EmpiricalBayesState:
    """Priors of all candidates, and tau**2 with its standard error."""

    priors: CandidatePriors
    unlisted_variance: float
    unlisted_variance_error: float


def iterate(
    model: MixedModel, state: EmpiricalBayesState, strata: Indices | None = None
) -> tuple[EmpiricalBayesState, ShareEstimates]:
    """Alternate between estimates and priors, with a scoring step for tau**2 each round, until both settle."""
    error = np.inf
    for _ in range(_MAX_ROUNDS):
        solved = model.solve(state.priors, state.unlisted_variance)
        estimates, overdispersion = solved.estimates(approximate=True), solved.overdispersion()
        before = state.unlisted_variance
        unlisted_variance = max(before + overdispersion.step, before / _MAX_SHRINKAGE)
        priors = _damped(state.priors, matching_priors(*fit_posterior(estimates, overdispersion.ratio, strata)))
        state = EmpiricalBayesState(priors, unlisted_variance, overdispersion.error)
        previous, error = error, float(np.median(estimates.variances)) if len(estimates.variances) else 1.0
        changes = model.variance_ratio(unlisted_variance, before), error / previous
        if max(abs(change - 1) for change in changes) < _CONVERGENCE_TOLERANCE:
            break
    return state, estimates


def exchangeable_totals(model: MixedModel, state: EmpiricalBayesState, estimates: ShareEstimates) -> Totals:
    """Totals of all candidates and of the fixed effects, with a common mean for all candidates that are not strong.

    The others have mean square E x**2 of their posteriors as their common prior variance.
    """
    strong = estimates.shares > _STRONG_STANDARD_ERRORS * np.sqrt(estimates.variances)
    priors = _exchangeable_priors(estimates, state.priors, strong)
    return model.solve(priors, state.unlisted_variance).totals(~strong)


def fit_posterior(
    estimates: ShareEstimates, variance_factor: float, strata: Indices | None = None
) -> tuple[Floats, Floats, Floats, Floats]:
    """Estimates, their variances, and posterior mean and variance of each share under a prior fitted to all: (M,) each.

    variance_factor : by which the nominal variances are multiplied
    strata          : (M,) of the candidates, each with its own prior; None: one prior
    """
    x, v = np.nan_to_num(estimates.shares), np.minimum(variance_factor * estimates.variances, 1.0)
    return x, v, *(fit_prior(x, v, strata).posterior(x, v) if len(x) else (x, v))


def matching_priors(x: Floats, v: Floats, mean: Floats, variance: Floats) -> CandidatePriors:
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
