"""Estimator from retained reports with many candidates as random effects: the full likelihood near plausible shares.

Model: the mean score g of n clients at shares z (`likelihood_ratios.py`) is one normal observation of the shares x (M + 2,). A is the
information of a report, A_T the covariance of the mean score of a client's reports (A if each client has one), and B the covariance of the
score by the hashing of one unlisted string:

    y = F x + N(0, I + tau**2 diag(d))        A_T = R R'      R^-1 B R^-1' = U diag(d / n) U'
    F = sqrt(n) U' R^-1 A                     y = F z + sqrt(n) U' R^-1 g

Candidates have the priors N(mean_v, variance_v); the last two shares, of the unlisted strings and of "no value", are fixed effects.
The number of reports is random, as with pattern counts, so shares need not sum to 1.

Estimator: that of `mixed_model.py`, in candidate space; with J = n A (A_T + n tau**2 B)^-1 A:

    (J + diag(1/variance)) x = J (z + A^-1 g) + mean/variance

z and the priors are found in two rounds, from the bits (`bit_counts.py`) and from the reports; tau**2 is seen in the bits.
Variance:  an estimate is linear in the score, w'g, and its variance has the term w' A w / n, in which reporters and noise are random. It is
replaced by w' E_v Cov(x | v) w / n (the noise alone) plus x (1 - x) / n. With little noise the difference of both terms would be lost in
rounding.

docs/mathematics.md, section 11 ("Many candidates"); decision 41.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import linalg

from hubbub.summary import Reports
from hubbub_decoder.array_types import Flags, Floats, Indices
from hubbub_decoder.estimators.bit_counts import pass_bit_messages
from hubbub_decoder.estimators.empirical_bayes import EmpiricalBayesState, exchangeable_totals, iterate, matching_priors
from hubbub_decoder.estimators.fit_result import FitResult, sum_totals
from hubbub_decoder.estimators.mixed_model import (
    CandidatePriors,
    CandidateSpaceSolver,
    MixedModel,
    Overdispersion,
    ShareEstimates,
    Totals,
)
from hubbub_decoder.estimators.noise_cumulants import noise_effect
from hubbub_decoder.estimators.reports.bit_residuals import BitResiduals, HashMoments
from hubbub_decoder.estimators.reports.likelihood_ratios import Mixture, plausible_shares
from hubbub_decoder.estimators.reports.random_string_scores import RandomStringScores
from hubbub_decoder.estimators.reports.report_pass import SortedReports
from hubbub_decoder.estimators.reports.score_cumulants import score_cumulants
from hubbub_decoder.estimators.reports.simulated_information import (
    client_covariance,
    draw_reports,
    hash_moments,
    information,
    noise_covariance,
    sample_size,
)
from hubbub_decoder.inference.intervals import reporter_variance
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.repetition import ONCE, Repetition

MAX_CANDIDATES = 1500
"""Most candidates to fit to reports; with more, the gain over their bit counts is not worth the time."""

_MIN_EIGENVALUE = 1e-9  # relative to the largest
_SUM_WEIGHT = 1e4  # precision of the constraint that shares sum to 1, in that of a random number of reports
_MIN_ERROR_REPORTS = 0.1  # least standard error, in reports: simulated matrices are not more exact


def within_size_limit(design: DesignMatrix) -> bool:
    """Whether the design has few enough candidates to fit the reports themselves, rather than their bit counts."""
    return len(design.groups) <= MAX_CANDIDATES


def fit_reports_mixed(
    reports: Reports, design: DesignMatrix, num_reports: int | None = None, *, seed: int = 0
) -> FitResult:
    """Estimate the shares of many candidates; the prior of each makes it noise to the others.

    reports     : at least one      design : made for the same parameters      seed : of the simulated reports
    num_reports : N, of all cohorts, if `reports` are those of some cohorts

    Time O(n M h + M**3), memory O(n k / 8 + M**2).
    """
    counts, repetition = reports.bit_counts(), Repetition.from_periods(reports.metric, reports.periods)
    clients = repetition.num_clients(reports.num_reports)
    all_clients = repetition.num_clients(num_reports or reports.num_reports)
    ordered, mixture = SortedReports.from_reports(reports), Mixture.from_design(design)
    rng = np.random.default_rng(seed)
    bits = pass_bit_messages(counts, design)
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
        residuals = BitResiduals.from_counts(counts, design, z[:-1])
        hashing = hash_moments(mixture, z, simulated, residuals, rng)
        model = ReportScoreModel.from_score(
            z, ordered.score(mixture, z), a, total, hashing, noise if last else None, clients, residuals
        )
        state, estimates = iterate(model, state, design.strata)
        no_value = float(estimates.fixed_effects[1])
        z = plausible_shares(estimates.shares, np.sqrt(estimates.variances), no_value)
    solved = model.solve(state.priors, state.unlisted_variance)
    totals = exchangeable_totals(model.with_sum_constraint(), state, estimates)
    final = solved.estimates()
    errors = np.sqrt(np.where(np.isfinite(final.variances), final.variances, np.nan))
    strings = RandomStringScores.draw(ordered, mixture, expected, rng)
    without_unlisted = model.solve(state.priors, 0.0)  # the scores of strings do not include tau**2
    of_report = clients * (np.diag(a) / np.diag(total))[:-2]
    scale = of_report * without_unlisted.estimates(approximate=True).variances / errors
    tests = strings.test(final.shares, errors, scale, without_unlisted.shares, without_unlisted.without)
    sums, variances = sum_totals(totals.shares[:2], totals.covariance[:2, :2])
    fit = FitResult.from_mixed_model(
        final,
        (state.unlisted_variance, state.unlisted_variance_error),
        tests,
        totals=(sums, variances, reporter_variance(variances, sums, all_clients)),
        variances=lambda variance, share: (variance, reporter_variance(variance, share, all_clients)),
    )
    effective = reports.num_reports / noise_effect(design.params, repetition)
    return fit.with_cumulants(score_cumulants(mixture, expected, simulated, effective))


class ReportScoreModel(MixedModel):
    """Mixed model of the score of n reports, one cohort of observations y = F x + N(0, I + tau**2 diag(spread)).

    num_clients   : n      residuals, hashing : of the bits, which show tau**2
    of_score      : (r, M + 2) derivative of y by the score
    right_inverse : (M + 2, r) of F
    excess      : (r, r) covariance of y by the noise alone, the reporters fixed, less I; None: not computed
    """

    def __init__(
        self,
        y: Floats,
        features: Floats,
        spread: Floats,
        of_score: Floats,
        right_inverse: Floats,
        num_clients: float,
        residuals: BitResiduals,
        hashing: HashMoments,
        excess: Floats | None = None,
    ) -> None:
        size = features.shape[1]
        self.y, self.features, self.unlisted_covariances = y, (features,), [np.diag(spread)]
        self.positions, self.fixed_columns = np.arange(size - 2)[None, None], features[:, -2:]
        self.spread, self.of_score, self.right_inverse = spread, of_score, right_inverse
        self.num_clients, self.residuals, self.hashing, self.excess = num_clients, residuals, hashing, excess
        self._starts, self._num_positions = [0, len(y)], size

    @classmethod
    def from_score(
        cls,
        z: Floats,
        score: Floats,
        information: Floats,
        covariance: Floats,
        hashing: HashMoments,
        noise: Floats | None,
        num_clients: float,
        residuals: BitResiduals,
    ) -> ReportScoreModel:
        """Model from the score g (M + 2,) at shares z, A and A_T (M + 2, M + 2), and B in `hashing`.

        covariance : (M + 2, M + 2) A_T = R R', of the mean score of a client's reports; A if each client has one
        noise      : (M + 2, M + 2) part of it that the noise alone makes
        """
        scale = np.sqrt(np.diag(covariance))
        values, vectors = linalg.eigh(covariance / np.outer(scale, scale))
        known = values > _MIN_EIGENVALUE * values[-1]
        inverse = vectors[:, known] / np.sqrt(values[known]) / scale[:, None]
        spread, turn = linalg.eigh(inverse.T @ hashing.scores @ inverse)
        of_score = inverse @ turn
        features = np.sqrt(num_clients) * (of_score.T @ information)
        y = features @ z + np.sqrt(num_clients) * (of_score.T @ score)
        excess = None if noise is None else of_score.T @ noise @ of_score - np.eye(len(y))
        right_inverse = of_score / np.sqrt(num_clients) if covariance is information else np.linalg.pinv(features)
        return cls(
            y,
            features,
            num_clients * np.maximum(spread, 0),
            np.sqrt(num_clients) * of_score.T,
            right_inverse,
            num_clients,
            residuals,
            hashing,
            excess,
        )

    def with_sum_constraint(self) -> ReportScoreModel:
        """Return the model with one more observation: all shares sum to 1.

        It is for totals only. Priors of single shares do not sum to 1, and would shift the other shares.
        """
        total = np.sqrt(_SUM_WEIGHT * self.num_clients)
        features = np.vstack([self.features[0], np.full(self._num_positions, total)])
        excess = None if self.excess is None else np.pad(self.excess, (0, 1))
        y, spread = np.append(self.y, total), np.append(self.spread, 0)
        of_score, right_inverse = np.pad(self.of_score, [(0, 1), (0, 0)]), np.pad(self.right_inverse, [(0, 0), (0, 1)])
        return ReportScoreModel(
            y, features, spread, of_score, right_inverse, self.num_clients, self.residuals, self.hashing, excess
        )

    def solve(self, priors: CandidatePriors, unlisted_variance: float) -> ReportScoreSolver:
        return ReportScoreSolver(self, priors, unlisted_variance)

    def whitened(self, unlisted_variance: float) -> ReportScoreModel:
        shrunk = 1 / np.sqrt(1 + unlisted_variance * self.spread)
        excess = None if self.excess is None else self.excess * np.outer(shrunk, shrunk)
        features, of_score = (matrix * shrunk[:, None] for matrix in (self.features[0], self.of_score))
        y, spread, right_inverse = self.y * shrunk, self.spread * shrunk**2, self.right_inverse / shrunk
        return ReportScoreModel(
            y, features, spread, of_score, right_inverse, self.num_clients, self.residuals, self.hashing, excess
        )


class ReportScoreSolver(CandidateSpaceSolver):
    """Henderson's equations of the score, (F'F + D) x = F'y + D mean; tau**2 is seen in the residuals of the bits.

    Where the noise is known, variances are those among the reporters plus those of sampling reporters (module docstring).
    """

    def __init__(self, model: ReportScoreModel, priors: CandidatePriors, unlisted_variance: float) -> None:
        super().__init__(model, priors, unlisted_variance)
        self._scored, self._unlisted_variance = model.whitened(unlisted_variance), unlisted_variance
        shrunk = 1 / np.sqrt(1 + unlisted_variance * model.spread)
        self._hashed = model.right_inverse[:-1] * (model.spread * shrunk)

    @property
    def shares(self) -> Floats:
        """Posterior means of all shares, (M + 2,)."""
        return self._x

    def without(self, candidates: Indices) -> Floats:
        """Posterior means (M + 2, D) given that the share of each of D candidates is 0."""
        columns = self._root.T @ self._root[:, candidates]
        own = columns[candidates, range(len(candidates))]
        return np.asarray(self._x[:, None] - columns * (self._x[candidates] / own))

    def estimates(self, *, approximate: bool = False) -> ShareEstimates:
        estimates, excess = super().estimates(), self._scored.excess
        if approximate or excess is None:
            return estimates
        own = np.where(np.isfinite(estimates.variances), estimates.variances, 0)
        columns = self._root.T @ self._root[:, : self._listed]
        reach = self._scored.features[0] @ (columns * (own / np.diag(columns)))
        variances = np.maximum(estimates.variances + np.sum(reach * (excess @ reach), axis=0), 0)
        x, n = np.clip(np.nan_to_num(estimates.shares), 0, 1), self._scored.num_clients
        return replace(estimates, variances=variances + (_MIN_ERROR_REPORTS / n) ** 2 + x * (1 - x) / n)

    def totals(self, exchangeable: Flags) -> Totals:
        totals, excess = super().totals(exchangeable), self._scored.excess
        if excess is None:
            return totals
        weights, _, column = self._total_weights(exchangeable)
        reach = weights[:, :-1] @ self._scored.features[0].T + np.outer(weights[:, -1], column)
        x, n = np.clip(totals.shares, 0, 1), self._scored.num_clients
        sampling = (np.diag(x) - np.outer(x, x)) / n + (_MIN_ERROR_REPORTS / n) ** 2 * np.eye(len(x))
        return Totals(totals.shares, totals.covariance + reach @ excess @ reach.T + sampling)

    def overdispersion(self) -> Overdispersion:
        scored, root = self._scored, self._root[:, :-1]
        posterior = root.T @ self._root  # (M + 1, M + 2)
        weights = posterior @ scored.features[0].T  # of the whitened y in the posterior means
        return scored.residuals.overdispersion(
            self._x[:-1],
            posterior[:, :-1],
            weights @ scored.of_score,
            scored.hashing,
            self._unlisted_variance,
            self._hashed @ weights.T,
        )
