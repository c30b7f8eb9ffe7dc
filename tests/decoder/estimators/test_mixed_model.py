"""The mixed model: its solver agrees with brute force."""

from __future__ import annotations

import numpy as np
import pytest

from hubbub import Metric, Params
from hubbub_decoder.array_types import Floats
from hubbub_decoder.data.simulate import simulate_pattern_counts
from hubbub_decoder.estimators.mixed_model import (
    CandidatePriors,
    CandidateSpaceSolver,
    MixedModel,
)
from hubbub_decoder.model.design_matrix import design_matrix
from hubbub_decoder.model.pattern_likelihood import FilterTable, filter_indices, whiten_scores

PARAMS = Params(num_bits=8, num_hashes=2, num_cohorts=4, prob_p=0.2, prob_q=0.8, prob_f=0.1)
PRIORS = CandidatePriors(means=np.linspace(0.2, 0, 12), variances=np.geomspace(2e-2, 5e-4, 12))
UNLISTED_VARIANCE = 1e-3
EXCHANGEABLE = np.arange(12) >= 3


class Brute:
    """The whole model as dense matrices, without whitening."""

    def __init__(self, model: MixedModel, table: FilterTable) -> None:
        parts = zip(model.features, model.positions, strict=True)
        self.y = model.y
        self.x = np.concatenate([a[:, taken].sum(axis=1) for a, taken in parts])
        self.others = model.fixed_columns
        self.k = np.zeros((len(self.y), len(self.y)))
        for rows, block in zip(model.rows(), model.unlisted_covariances, strict=True):
            self.k[rows, rows] = block
        assert len(table.filters) == 29

    def covariance(self, priors: CandidatePriors, unlisted: float = UNLISTED_VARIANCE) -> Floats:
        total: Floats = np.eye(len(self.y)) + unlisted * self.k + (self.x * priors.variances) @ self.x.T
        return total

    def least_squares(self, priors: CandidatePriors, fixed: Floats) -> tuple[Floats, Floats]:
        """Effects of the fixed columns by generalized least squares, and their covariance; prior means are subtracted first."""
        inverse = np.linalg.inv(self.covariance(priors))
        covariance = np.linalg.inv(fixed.T @ inverse @ fixed)
        return np.asarray(covariance @ fixed.T @ inverse @ (self.y - self.x @ priors.means)), np.asarray(covariance)

    def log_likelihood(self, unlisted: float) -> float:
        """Restricted log-likelihood: the fixed effects are projected out."""
        s = self.covariance(PRIORS, unlisted)
        inverse = np.linalg.inv(s)
        normal = self.others.T @ inverse @ self.others
        projection = inverse - inverse @ self.others @ np.linalg.inv(normal) @ self.others.T @ inverse
        y = self.y - self.x @ PRIORS.means
        return float(-(np.linalg.slogdet(s)[1] + np.linalg.slogdet(normal)[1] + y @ projection @ y) / 2)


@pytest.fixture(scope="module")
def model() -> tuple[MixedModel, Brute]:
    population = {f"v{i}": 4000 // (i + 1) for i in range(20)}
    counts = simulate_pattern_counts(Metric.string("m", PARAMS), population, np.random.default_rng(11))
    table = FilterTable.from_params(PARAMS)
    chosen = filter_indices(design_matrix([f"v{i}" for i in range(12)], PARAMS), table)
    observations = whiten_scores(counts, table, np.tile(table.probabilities, (4, 1)))
    made = MixedModel(observations, chosen[:, None], table.fixed_patterns, table.covariance)
    return made, Brute(made, table)


def test_estimates_equal_refit_without_the_own_prior(
    model: tuple[MixedModel, Brute],
) -> None:
    """The leave-one-out estimate, by refitting the whole model for each candidate with its column fixed."""
    made, brute = model
    solved = CandidateSpaceSolver(made, PRIORS, UNLISTED_VARIANCE)
    solution = solved.estimates()
    for j in range(12):
        alone = np.arange(12) == j
        without = CandidatePriors(np.where(alone, 0, PRIORS.means), np.where(alone, 0, PRIORS.variances))
        effects, covariance = brute.least_squares(without, np.column_stack([brute.x[:, j], brute.others]))
        assert solution.shares[j] == pytest.approx(effects[0], rel=1e-6)
        assert solution.variances[j] == pytest.approx(covariance[0, 0], rel=1e-6)


def test_posterior_means_are_best_linear_predictions(model: tuple[MixedModel, Brute]) -> None:
    made, brute = model
    effects, _ = brute.least_squares(PRIORS, brute.others)
    left = brute.y - brute.x @ PRIORS.means - brute.others @ effects
    residual = np.linalg.solve(brute.covariance(PRIORS), left)
    solved = CandidateSpaceSolver(made, PRIORS, UNLISTED_VARIANCE)
    solution = solved.estimates()
    predicted = PRIORS.means + PRIORS.variances * (brute.x.T @ residual)
    assert solution.posterior_means == pytest.approx(predicted, rel=1e-6)
    assert solution.fixed_effects == pytest.approx(effects, rel=1e-6)


def test_totals_have_a_mean_of_the_exchangeable_candidates(model: tuple[MixedModel, Brute]) -> None:
    """By brute force from the joint normal of T = 1'x and y; the mean of nine and the fixed effects have flat priors."""
    made, brute = model
    column = brute.x[:, EXCHANGEABLE].sum(axis=1)
    fixed = np.column_stack([brute.others, column])
    inverse = np.linalg.inv(brute.covariance(PRIORS))
    effects, covariance = brute.least_squares(PRIORS, fixed)
    a = brute.x @ PRIORS.variances
    left = brute.y - brute.x @ PRIORS.means - fixed @ effects
    total = PRIORS.means.sum() + 9 * effects[-1] + a @ inverse @ left
    reach = np.array([0, 0, 9]) - fixed.T @ inverse @ a
    error = reach @ covariance @ reach + PRIORS.variances.sum() - a @ inverse @ a
    solved = CandidateSpaceSolver(made, PRIORS, UNLISTED_VARIANCE)
    totals = solved.totals(EXCHANGEABLE)
    assert totals.shares == pytest.approx([total, effects[0], effects[1]], rel=1e-5)
    assert totals.covariance[0, 0] == pytest.approx(error, rel=1e-5)
    assert np.diag(totals.covariance)[1:] == pytest.approx(np.diag(covariance)[:2], rel=1e-5)


def test_totals_without_exchangeable_candidates_are_sums(model: tuple[MixedModel, Brute]) -> None:
    made, _ = model
    solved = CandidateSpaceSolver(made, PRIORS, UNLISTED_VARIANCE)
    solution, totals = solved.estimates(), solved.totals(np.zeros(12, bool))
    assert totals.shares == pytest.approx([solution.posterior_means.sum(), *solution.fixed_effects])


def test_overdispersion_is_the_slope_of_the_restricted_likelihood(model: tuple[MixedModel, Brute]) -> None:
    """d log L / d tau**2 = tr(P K) (ratio - 1) / 2, by numeric derivative; the step has the same sign."""
    made, brute = model
    inverse_of = np.linalg.inv
    for unlisted in (1e-5, 1e-4, 1e-3, 1e-2):
        step = 1e-4 * unlisted
        slope = (brute.log_likelihood(unlisted + step) - brute.log_likelihood(unlisted - step)) / (2 * step)
        inverse = inverse_of(brute.covariance(PRIORS, unlisted))
        solved = inverse @ brute.others
        projection = inverse - solved @ inverse_of(brute.others.T @ solved) @ solved.T
        overdispersion = CandidateSpaceSolver(made, PRIORS, unlisted).overdispersion()
        assert np.trace(projection @ brute.k) / 2 * (overdispersion.ratio - 1) == pytest.approx(slope, rel=1e-3)
        assert np.sign(overdispersion.step) == np.sign(slope)
        blocks = [projection[rows, rows] @ brute.k[rows, rows] for rows in made.rows()]
        curvature = sum(np.trace(block @ block) for block in blocks)
        assert overdispersion.step == pytest.approx(2 * slope / curvature, rel=1e-3)


def test_identical_candidates_are_as_uncertain_as_the_prior() -> None:
    """Two columns with equal filters, built by hand: the variance of each is the prior variance of the other."""
    table = FilterTable.from_params(PARAMS)
    counts = simulate_pattern_counts(Metric.string("m", PARAMS), {"a": 5000}, np.random.default_rng(3))
    observations = whiten_scores(counts, table, np.tile(table.probabilities, (4, 1)))
    same = MixedModel(observations, np.full((4, 1, 2), 7, np.int16), table.fixed_patterns, table.covariance)
    wide = CandidatePriors(np.zeros(2), np.full(2, 4.0))
    assert np.all(CandidateSpaceSolver(same, wide, UNLISTED_VARIANCE).estimates().variances > 4)
    apart = MixedModel(observations, np.array([[[7, 8]]] * 4, np.int16), table.fixed_patterns, table.covariance)
    assert np.all(CandidateSpaceSolver(apart, wide, UNLISTED_VARIANCE).estimates().variances < 0.1)
