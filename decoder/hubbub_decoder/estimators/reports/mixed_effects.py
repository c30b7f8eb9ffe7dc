"""Estimator from retained reports with many candidates as random effects: empirical Bayes around the model of their score.

Model:     that of `score_model.py`, with the priors of the candidates and tau**2 unknown
Estimator: solve it; fit a common prior to all estimates (`inference/prior.py`); give each candidate the normal prior that, joined with its
           estimate x_v of variance v_v, has the mean and variance of its posterior (expectation propagation):

               1/variance_v = 1/Var(x | x_v) - 1/v_v        mean_v/variance_v = E(x | x_v)/Var(x | x_v) - x_v/v_v

           and take one step of the method of moments for tau**2; repeat until tau**2 and the errors change by less than 2 %
Variance:  that of `score_model.py`

The shares z near which the score is linear, and the priors, are found in two rounds, from the bits (`estimators/counts.py`) and from the reports.
docs/explanation/mathematics.md, equation (11.6) ("Many candidates"); decision 41. Source: Minka 2001.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hubbub.summary import Reports
from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.estimators.counts import pass_bit_messages
from hubbub_decoder.estimators.fit_result import FitResult, ShareEstimates, Totals, sum_totals
from hubbub_decoder.estimators.noise_cumulants import noise_effect
from hubbub_decoder.estimators.reports.bit_residuals import BitResiduals
from hubbub_decoder.estimators.reports.likelihood_ratios import Mixture, plausible_shares
from hubbub_decoder.estimators.reports.report_scores import RandomStringScores, SortedReports
from hubbub_decoder.estimators.reports.row_influence import influence_of_rows
from hubbub_decoder.estimators.reports.score_model import CandidatePriors, ScoreModel, ScoreSolver
from hubbub_decoder.estimators.reports.simulated_information import (
    client_covariance,
    draw_reports,
    hash_moments,
    information,
    noise_covariance,
    sample_size,
    score_cumulants,
)
from hubbub_decoder.inference.influence import ReportInfluence
from hubbub_decoder.inference.intervals import reporter_variance
from hubbub_decoder.inference.prior import fit_prior
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.model.repetition import ONCE
from hubbub_decoder.random_state import seeded

MAX_CANDIDATES = 1500
"""Most candidates to fit to reports; with more, the gain over their bit counts is not worth the time."""

_MAX_ROUNDS = 8
# relative change of the observations' variance and of the median variance of the estimates
_CONVERGENCE_TOLERANCE = 0.02
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


def within_size_limit(design: DesignMatrix) -> bool:
    """Whether the design has few enough candidates to fit the reports themselves, rather than their bit counts."""
    return len(design.groups) <= MAX_CANDIDATES


def fit_reports_mixed(evidence: Evidence, design: DesignMatrix) -> FitResult:
    """Estimate the shares of many candidates; the prior of each makes it noise to the others.

    evidence : at least one report      design : made for the same parameters

    Time O(n M h + M**3), memory O(n k / 8 + M**2).
    """
    repetition, clients, all_clients = evidence.repetition, evidence.num_clients, evidence.num_all_clients
    ordered, mixture = SortedReports.from_reports(evidence.require(Reports)), Mixture.from_design(design)
    rng = seeded(0)  # the same reports are always fitted alike
    bits = pass_bit_messages(evidence, design)
    estimates, beliefs = bits.estimates, bits.beliefs
    priors = matching_priors(estimates.shares, estimates.variances, beliefs.means, beliefs.variances)
    state = EmpiricalBayesState(priors, beliefs.unlisted_variance, bits.variance_error)
    no_value = 1 - float(estimates.posterior_means.sum() + estimates.fixed_effects[0])
    z = plausible_shares(estimates.shares, np.sqrt(estimates.variances), no_value)
    for last in (False, True):
        expected = z
        simulated = list(draw_reports(mixture, ordered.shares, z, sample_size(mixture), rng, repetition))
        a = information(mixture, z, simulated)
        noise = noise_covariance(mixture, z, simulated, repetition) if last or repetition != ONCE else a
        total = client_covariance(a, noise, z, repetition)
        residuals = BitResiduals.from_evidence(evidence, design, z[:-1])
        hashing = hash_moments(mixture, z, simulated, residuals, rng)
        score = ordered.score(mixture, z)
        model = ScoreModel.from_score(z, score, a, total, hashing, noise if last else None, clients, residuals)
        state, estimates = iterate(model, state, design.strata)
        no_value = float(estimates.fixed_effects[1])
        z = plausible_shares(estimates.shares, np.sqrt(estimates.variances), no_value)
    solved = ScoreSolver(model, state.priors, state.unlisted_variance)
    totals = _exchangeable_totals(model.with_sum_constraint(), state, estimates)
    final = solved.estimates()
    errors = np.sqrt(np.where(np.isfinite(final.variances), final.variances, np.nan))
    strings = RandomStringScores.draw(ordered, mixture, expected, rng)
    without_unlisted = ScoreSolver(model, state.priors, 0.0)  # the scores of strings do not include tau**2
    of_report = clients * (np.diag(a) / np.diag(total))[:-2]
    scale = of_report * without_unlisted.estimates(approximate=True).variances / errors
    tests = strings.test(final.shares, errors, scale, without_unlisted.shares, without_unlisted.without)

    def influence(candidates: Indices) -> ReportInfluence:
        weights = solved.score_weights(candidates)
        start = final.shares[candidates] - weights @ score
        return influence_of_rows(mixture, expected, evidence.used, candidates, weights, start, evidence.num_reports)

    sums, variances = sum_totals(totals.shares[:2], totals.covariance[:2, :2])
    fit = FitResult.from_mixed_model(
        final,
        (state.unlisted_variance, state.unlisted_variance_error),
        tests,
        totals=(sums, variances, reporter_variance(variances, sums, all_clients)),
        variances=lambda variance, share: (variance, reporter_variance(variance, share, all_clients)),
        influence=influence,
    )
    effective = evidence.num_reports / noise_effect(design.params, repetition)
    return replace(fit, cumulants=score_cumulants(mixture, expected, simulated, effective))


def iterate(
    model: ScoreModel, state: EmpiricalBayesState, strata: Indices | None = None
) -> tuple[EmpiricalBayesState, ShareEstimates]:
    """Alternate between estimates and priors, with a step for tau**2 each round, until both settle."""
    error = np.inf
    for _ in range(_MAX_ROUNDS):
        solved = ScoreSolver(model, state.priors, state.unlisted_variance)
        estimates, overdispersion = solved.estimates(approximate=True), solved.overdispersion()
        before = state.unlisted_variance
        unlisted_variance = max(before + overdispersion.step, before / _MAX_SHRINKAGE)
        x, v = np.nan_to_num(estimates.shares), np.minimum(overdispersion.ratio * estimates.variances, 1.0)
        priors = _damped(state.priors, matching_priors(x, v, *fit_prior(x, v, strata).posterior(x, v)))
        state = EmpiricalBayesState(priors, unlisted_variance, overdispersion.error)
        previous, error = error, float(np.median(estimates.variances))
        changes = model.variance_ratio(unlisted_variance, before), error / previous
        if max(abs(change - 1) for change in changes) < _CONVERGENCE_TOLERANCE:
            break
    return state, estimates


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


def _exchangeable_totals(model: ScoreModel, state: EmpiricalBayesState, estimates: ShareEstimates) -> Totals:
    """Totals of all candidates and of the fixed effects, with a common mean for all candidates that are not strong.

    The others have mean 0 and their mean square E x**2 as their common prior; strong ones have nearly flat priors.
    """
    strong = estimates.shares > _STRONG_STANDARD_ERRORS * np.sqrt(estimates.variances)
    v = np.minimum(estimates.variances, 1.0)
    squares = estimates.posterior_means**2 + 1 / (1 / v + 1 / state.priors.variances)
    typical = float(squares[~strong].mean()) if not strong.all() else 1.0
    means = np.where(strong, estimates.posterior_means, 0)
    priors = CandidatePriors(means, np.where(strong, v / _MIN_PRIOR_PRECISION, typical))
    return model.totals(priors, state.unlisted_variance, ~strong)
