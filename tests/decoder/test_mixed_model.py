"""The mixed model: two ways to solve it agree with each other, and with brute force."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from hubbub import Metric, Params
from hubbub_decoder.design_matrix import design_matrix
from hubbub_decoder.mixed_model import MixedModel, Solution, Variances, _InObservations
from hubbub_decoder.patterns import FilterTable, filters_of, observe
from hubbub_decoder.simulate import simulate_pattern_counts

Floats = NDArray[np.float64]
PARAMS = Params(num_bits=8, num_hashes=2, num_cohorts=4, prob_p=0.2, prob_q=0.8, prob_f=0.1)
VARIANCES = Variances(weak=2e-3, unlisted=1e-3)
WEAK = np.arange(12) >= 3


class Brute:
    """All of the model as dense matrices, noise not whitened away."""

    def __init__(self, model: MixedModel, table: FilterTable) -> None:
        self.y = model._y
        self.x = model.columns(np.arange(model.candidates))
        self.others = model._others
        self.k = np.zeros((len(self.y), len(self.y)))
        for rows, block in zip(model._rows(), model._scatters, strict=True):
            self.k[rows, rows] = block
        assert len(table.filters) == 29

    def covariance(self, weak: NDArray[np.bool_], variances: Variances) -> Floats:
        x = self.x[:, weak]
        return np.eye(len(self.y)) + variances.unlisted * self.k + variances.weak * x @ x.T

    def generalized_least_squares(self, weak: NDArray[np.bool_], variances: Variances) -> tuple[Floats, Floats]:
        """Fixed effects (strong candidates, then the others) and their covariance."""
        inverse = np.linalg.inv(self.covariance(weak, variances))
        fixed = np.column_stack([self.x[:, ~weak], self.others])
        covariance = np.linalg.inv(fixed.T @ inverse @ fixed)
        return covariance @ fixed.T @ inverse @ self.y, covariance

    def log_likelihood(self, weak: NDArray[np.bool_], variances: Variances) -> float:
        """Restricted: of what is left when the fixed effects are projected out."""
        s = self.covariance(weak, variances)
        inverse = np.linalg.inv(s)
        fixed = np.column_stack([self.x[:, ~weak], self.others])
        normal = fixed.T @ inverse @ fixed
        projection = inverse - inverse @ fixed @ np.linalg.inv(normal) @ fixed.T @ inverse
        return float(-(np.linalg.slogdet(s)[1] + np.linalg.slogdet(normal)[1] + self.y @ projection @ self.y) / 2)


@pytest.fixture(scope="module")
def model() -> tuple[MixedModel, Brute]:
    population = {f"v{i}": 4000 // (i + 1) for i in range(20)}
    counts = simulate_pattern_counts(Metric.string("m", PARAMS), population, np.random.default_rng(11))
    table = FilterTable.of(PARAMS)
    chosen = filters_of(design_matrix([f"v{i}" for i in range(12)], PARAMS), table)
    observations = observe(counts, table, np.tile(table.random, (4, 1)))
    made = MixedModel(observations, table, chosen)
    return made, Brute(made, table)


def both_ways(model: MixedModel) -> list[Solution]:
    return [
        model._in_shares(WEAK, VARIANCES).solution(),
        _InObservations(model, WEAK, VARIANCES).solution(),
    ]


def test_a_candidates_estimate_is_that_of_a_model_in_which_it_alone_is_fixed(model: tuple[MixedModel, Brute]) -> None:
    """The cavity, by refitting the whole model for each candidate."""
    made, brute = model
    for solution in both_ways(made):
        for j in range(12):
            weak = WEAK.copy()
            weak[j] = False
            effects, covariance = brute.generalized_least_squares(weak, VARIANCES)
            place = int(np.sum(~weak[:j]))
            assert solution.shares[j] == pytest.approx(effects[place], rel=1e-6)
            assert solution.variances[j] == pytest.approx(covariance[place, place], rel=1e-6)


def test_the_posterior_of_a_weak_candidate_is_its_best_linear_prediction(model: tuple[MixedModel, Brute]) -> None:
    made, brute = model
    effects, _ = brute.generalized_least_squares(WEAK, VARIANCES)
    fixed = np.column_stack([brute.x[:, ~WEAK], brute.others])
    residual = np.linalg.solve(brute.covariance(WEAK, VARIANCES), brute.y - fixed @ effects)
    for solution in both_ways(made):
        assert solution.posterior[WEAK] == pytest.approx(VARIANCES.weak * brute.x[:, WEAK].T @ residual, rel=1e-6)
        assert solution.posterior[~WEAK] == pytest.approx(effects[:3], rel=1e-6)


def test_a_glance_is_the_solution_for_the_posterior_and_nearly_for_who_is_strong(
    model: tuple[MixedModel, Brute],
) -> None:
    """The observations' way takes the mean information of the weak for each: z within a third, order of the strong kept."""
    made, _ = model
    solution = made.solve(WEAK, VARIANCES)
    exact = solution.shares / np.sqrt(solution.variances)
    for glance in (
        made._in_shares(WEAK, VARIANCES).glance(),
        _InObservations(made, WEAK, VARIANCES).glance(),
    ):
        assert glance.posterior == pytest.approx(solution.posterior, rel=1e-6)
        assert glance.z == pytest.approx(exact, rel=1 / 3, abs=0.3)
        assert np.argsort(glance.z[~WEAK]).tolist() == np.argsort(exact[~WEAK]).tolist()


def test_totals_are_predicted_with_a_mean_of_the_weak_candidates(model: tuple[MixedModel, Brute]) -> None:
    """Joint normal by brute force: T = 1'x_F + M_W mu + 1'u given y, fixed effects under a flat prior."""
    made, brute = model
    column = brute.x[:, WEAK].sum(axis=1)
    fixed = np.column_stack([brute.x[:, ~WEAK], brute.others, column])
    inverse = np.linalg.inv(brute.covariance(WEAK, VARIANCES))
    covariance = np.linalg.inv(fixed.T @ inverse @ fixed)
    effects = covariance @ fixed.T @ inverse @ brute.y
    a = VARIANCES.weak * column
    total = effects[:3].sum() + 9 * effects[-1] + a @ inverse @ (brute.y - fixed @ effects)
    reach = np.array([1, 1, 1, 0, 0, 9]) - fixed.T @ inverse @ a
    error = reach @ covariance @ reach + VARIANCES.weak * 9 - a @ inverse @ a
    for solution in both_ways(made):
        assert solution.totals == pytest.approx([total, effects[3], effects[4]], rel=1e-5)
        assert solution.totals_covariance[0, 0] == pytest.approx(error, rel=1e-5)
        assert np.diag(solution.totals_covariance)[1:] == pytest.approx(np.diag(covariance)[3:5], rel=1e-5)


@pytest.mark.parametrize("which", ["weak", "unlisted"])
def test_growth_is_one_where_the_restricted_likelihood_is_largest(model: tuple[MixedModel, Brute], which: str) -> None:
    """d log L / d log v = (v / 2) tr(P K) (growth - 1): the same zero and sign as the numeric derivative, everywhere."""
    made, brute = model
    step = 1e-4
    for scale in (0.01, 0.1, 1.0, 10.0):
        at = {"weak": VARIANCES.weak, "unlisted": VARIANCES.unlisted, which: getattr(VARIANCES, which) * scale}
        up, down = ({**at, which: at[which] * np.exp(sign * step)} for sign in (1, -1))
        slope = (brute.log_likelihood(WEAK, Variances(**up)) - brute.log_likelihood(WEAK, Variances(**down))) / (
            2 * step
        )
        variances = Variances(**at)
        growths = [
            made._in_shares(WEAK, variances).growth(),
            _InObservations(made, WEAK, variances).growth(),
        ]
        inverse = np.linalg.inv(brute.covariance(WEAK, variances))
        fixed = np.column_stack([brute.x[:, ~WEAK], brute.others])
        projection = inverse - inverse @ fixed @ np.linalg.inv(fixed.T @ inverse @ fixed) @ fixed.T @ inverse
        kernel = brute.x[:, WEAK] @ brute.x[:, WEAK].T if which == "weak" else brute.k
        for growth in growths:
            predicted = at[which] / 2 * np.trace(projection @ kernel) * (getattr(growth, which) - 1)
            assert predicted == pytest.approx(slope, rel=1e-3, abs=1e-4)


def test_a_candidate_about_which_nothing_is_known_has_no_estimate() -> None:
    """Two candidates, one filter in every cohort: given as two columns by hand, neither is told apart from the other."""
    table = FilterTable.of(PARAMS)
    counts = simulate_pattern_counts(Metric.string("m", PARAMS), {"a": 5000}, np.random.default_rng(3))
    observations = observe(counts, table, np.tile(table.random, (4, 1)))
    same = np.full((4, 2), 7, np.int16)
    solution = MixedModel(observations, table, same).solve(np.zeros(2, bool), VARIANCES)
    assert not np.any(solution.variances < 1)
