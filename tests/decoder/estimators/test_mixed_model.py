"""The mixed model: two ways to solve it agree with each other, and with brute force."""

from __future__ import annotations

import numpy as np
import pytest

from hubbub import Metric, Params
from hubbub_decoder.array_types import Floats
from hubbub_decoder.data.simulate import simulate_pattern_counts
from hubbub_decoder.estimators import mixed_model
from hubbub_decoder.estimators.mixed_model import (
    CandidatePriors,
    CandidateSpaceSolver,
    MixedModel,
    ObservationSpaceSolver,
    SolvedModel,
)
from hubbub_decoder.estimators.pattern_counts import FilterTable, filter_indices, whiten_scores
from hubbub_decoder.model.design_matrix import design_matrix

PARAMS = Params(num_bits=8, num_hashes=2, num_cohorts=4, prob_p=0.2, prob_q=0.8, prob_f=0.1)
BELIEFS = CandidatePriors(means=np.linspace(0.2, 0, 12), variances=np.geomspace(2e-2, 5e-4, 12))
UNLISTED = 1e-3
ALIKE = np.arange(12) >= 3


class Brute:
    """All of the model as dense matrices, noise not whitened away."""

    def __init__(self, model: MixedModel, table: FilterTable) -> None:
        parts = zip(model.features, model.positions, strict=True)
        self.y = model.y
        self.x = np.concatenate([a[:, taken].sum(axis=1) for a, taken in parts])
        self.others = model.fixed_columns
        self.k = np.zeros((len(self.y), len(self.y)))
        for rows, block in zip(model.rows(), model.unlisted_covariances, strict=True):
            self.k[rows, rows] = block
        assert len(table.filters) == 29

    def covariance(self, beliefs: CandidatePriors, unlisted: float = UNLISTED) -> Floats:
        total: Floats = np.eye(len(self.y)) + unlisted * self.k + (self.x * beliefs.variances) @ self.x.T
        return total

    def least_squares(self, beliefs: CandidatePriors, fixed: Floats) -> tuple[Floats, Floats]:
        """Effects of the fixed columns, generalized, and their covariance; what is believed taken off first."""
        inverse = np.linalg.inv(self.covariance(beliefs))
        covariance = np.linalg.inv(fixed.T @ inverse @ fixed)
        return np.asarray(covariance @ fixed.T @ inverse @ (self.y - self.x @ beliefs.means)), np.asarray(covariance)

    def log_likelihood(self, unlisted: float) -> float:
        """Restricted: of what is left when the fixed effects are projected out."""
        s = self.covariance(BELIEFS, unlisted)
        inverse = np.linalg.inv(s)
        normal = self.others.T @ inverse @ self.others
        projection = inverse - inverse @ self.others @ np.linalg.inv(normal) @ self.others.T @ inverse
        y = self.y - self.x @ BELIEFS.means
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


def both_ways(model: MixedModel, beliefs: CandidatePriors = BELIEFS, unlisted: float = UNLISTED) -> list[SolvedModel]:
    return [CandidateSpaceSolver(model, beliefs, unlisted), ObservationSpaceSolver(model, beliefs, unlisted)]


def test_a_candidates_estimate_is_that_of_a_model_in_which_nothing_is_believed_of_it(
    model: tuple[MixedModel, Brute],
) -> None:
    """The cavity, by refitting the whole model for each candidate, its column fixed."""
    made, brute = model
    for solved in both_ways(made):
        solution = solved.estimates()
        for j in range(12):
            alone = np.arange(12) == j
            without = CandidatePriors(np.where(alone, 0, BELIEFS.means), np.where(alone, 0, BELIEFS.variances))
            effects, covariance = brute.least_squares(without, np.column_stack([brute.x[:, j], brute.others]))
            assert solution.shares[j] == pytest.approx(effects[0], rel=1e-6)
            assert solution.variances[j] == pytest.approx(covariance[0, 0], rel=1e-6)


def test_roughly_one_variance_stands_for_all(model: tuple[MixedModel, Brute], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second candidate looked at, beliefs of very different width: variances within a half, estimates within their errors."""
    made, _ = model
    solved = ObservationSpaceSolver(made, BELIEFS, UNLISTED)
    exact = solved.estimates()
    assert solved.estimates(approximate=True).variances.tolist() == exact.variances.tolist()
    monkeypatch.setattr(mixed_model, "_VARIANCE_SAMPLE", 6)
    rough = solved.estimates(approximate=True)
    assert rough.variances == pytest.approx(exact.variances, rel=0.5)
    assert np.all(np.abs(rough.shares - exact.shares) < np.sqrt(exact.variances))
    assert np.ptp(rough.variances) < 1e-12


def test_the_posterior_of_a_candidate_is_its_best_linear_prediction(model: tuple[MixedModel, Brute]) -> None:
    made, brute = model
    effects, _ = brute.least_squares(BELIEFS, brute.others)
    left = brute.y - brute.x @ BELIEFS.means - brute.others @ effects
    residual = np.linalg.solve(brute.covariance(BELIEFS), left)
    for solved in both_ways(made):
        solution = solved.estimates()
        predicted = BELIEFS.means + BELIEFS.variances * (brute.x.T @ residual)
        assert solution.posterior_means == pytest.approx(predicted, rel=1e-6)
        assert solution.fixed_effects == pytest.approx(effects, rel=1e-6)


def test_totals_are_predicted_with_a_mean_of_the_exchangeable_candidates(model: tuple[MixedModel, Brute]) -> None:
    """Joint normal by brute force: T = 1'x given y, the mean of nine and the others' effects under a flat prior."""
    made, brute = model
    column = brute.x[:, ALIKE].sum(axis=1)
    fixed = np.column_stack([brute.others, column])
    inverse = np.linalg.inv(brute.covariance(BELIEFS))
    effects, covariance = brute.least_squares(BELIEFS, fixed)
    a = brute.x @ BELIEFS.variances
    left = brute.y - brute.x @ BELIEFS.means - fixed @ effects
    total = BELIEFS.means.sum() + 9 * effects[-1] + a @ inverse @ left
    reach = np.array([0, 0, 9]) - fixed.T @ inverse @ a
    error = reach @ covariance @ reach + BELIEFS.variances.sum() - a @ inverse @ a
    for solved in both_ways(made):
        totals = solved.totals(ALIKE)
        assert totals.shares == pytest.approx([total, effects[0], effects[1]], rel=1e-5)
        assert totals.covariance[0, 0] == pytest.approx(error, rel=1e-5)
        assert np.diag(totals.covariance)[1:] == pytest.approx(np.diag(covariance)[:2], rel=1e-5)


def test_without_exchangeable_candidates_totals_are_sums(model: tuple[MixedModel, Brute]) -> None:
    made, _ = model
    solved = CandidateSpaceSolver(made, BELIEFS, UNLISTED)
    solution, totals = solved.estimates(), solved.totals(np.zeros(12, bool))
    assert totals.shares == pytest.approx([solution.posterior_means.sum(), *solution.fixed_effects])


def test_the_scores_of_filters_are_those_of_a_model_without_the_candidate(model: tuple[MixedModel, Brute]) -> None:
    """P_{-j} (y - X_{-j} mean_{-j}), by brute force, looked up at every filter; and with all candidates in it."""
    mixed, brute = model
    for left_out in (None, 0, 11):
        kept = np.arange(12) != (-1 if left_out is None else left_out)
        beliefs = CandidatePriors(np.where(kept, BELIEFS.means, 0), np.where(kept, BELIEFS.variances, 1e-300))
        inverse = np.linalg.inv(brute.covariance(beliefs))
        effects, _ = brute.least_squares(beliefs, brute.others)
        projected = inverse @ (brute.y - brute.x @ beliefs.means - brute.others @ effects)
        expected = [a.T @ projected[rows] for rows, a in zip(mixed.rows(), mixed.features, strict=True)]
        for solved in both_ways(mixed):
            assert np.concatenate(solved.scores(left_out)) == pytest.approx(
                np.concatenate(expected), rel=1e-4, abs=1e-4
            )


def test_the_misfit_is_none_where_the_restricted_likelihood_is_largest(model: tuple[MixedModel, Brute]) -> None:
    """d log L / d tau**2 = tr(P K) (ratio - 1) / 2, and the step has its sign: as the numeric derivative, everywhere."""
    made, brute = model
    inverse_of = np.linalg.inv
    for unlisted in (1e-5, 1e-4, 1e-3, 1e-2):
        step = 1e-4 * unlisted
        slope = (brute.log_likelihood(unlisted + step) - brute.log_likelihood(unlisted - step)) / (2 * step)
        inverse = inverse_of(brute.covariance(BELIEFS, unlisted))
        solved = inverse @ brute.others
        projection = inverse - solved @ inverse_of(brute.others.T @ solved) @ solved.T
        for way in both_ways(made, unlisted=unlisted):
            misfit = way.overdispersion()
            assert np.trace(projection @ brute.k) / 2 * (misfit.ratio - 1) == pytest.approx(slope, rel=1e-3)
            assert np.sign(misfit.step) == np.sign(slope)
            blocks = [projection[rows, rows] @ brute.k[rows, rows] for rows in made.rows()]
            curvature = sum(np.trace(block @ block) for block in blocks)
            assert misfit.step == pytest.approx(2 * slope / curvature, rel=1e-3)


def test_of_two_candidates_with_the_same_filters_nothing_is_known_but_their_sum() -> None:
    """Given as two columns by hand, each is as uncertain as what is believed of the other."""
    table = FilterTable.from_params(PARAMS)
    counts = simulate_pattern_counts(Metric.string("m", PARAMS), {"a": 5000}, np.random.default_rng(3))
    observations = whiten_scores(counts, table, np.tile(table.probabilities, (4, 1)))
    same = MixedModel(observations, np.full((4, 1, 2), 7, np.int16), table.fixed_patterns, table.covariance)
    wide = CandidatePriors(np.zeros(2), np.full(2, 4.0))
    for solved in both_ways(same, wide):
        assert np.all(solved.estimates().variances > 4)
    apart = MixedModel(observations, np.array([[[7, 8]]] * 4, np.int16), table.fixed_patterns, table.covariance)
    assert np.all(CandidateSpaceSolver(apart, wide, UNLISTED).estimates().variances < 0.1)
