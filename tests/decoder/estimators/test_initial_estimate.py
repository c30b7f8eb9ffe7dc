"""Initial estimates by cohort: compared with the whole model, and with the final estimates of the iteration."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hubbub import Metric, Params
from hubbub_decoder.data.populations import distribution_shares, draw_population
from hubbub_decoder.data.simulate import simulate_pattern_counts
from hubbub_decoder.estimators.empirical_bayes import (
    estimate_candidates_separately,
    estimate_on_held_out_directions,
    initialize,
    iterate,
)
from hubbub_decoder.estimators.mixed_model import CandidatePriors, MixedModel, ObservationSpaceSolver
from hubbub_decoder.estimators.pattern_counts import split_directions
from hubbub_decoder.model.design_matrix import design_matrix
from hubbub_decoder.model.pattern_likelihood import FilterTable, filter_indices, whiten_scores


def model_of(population: dict[str, int], names: list[str], scheme: str = "murmur3-v1", seed: int = 7) -> MixedModel:
    params = Params(num_bits=8, num_hashes=2, num_cohorts=32, prob_p=0.25, prob_q=0.75, prob_f=0.2, hash_scheme=scheme)
    counts = simulate_pattern_counts(Metric.string("m", params), population, np.random.default_rng(seed))
    table = FilterTable.from_params(params)
    chosen = filter_indices(design_matrix(names, params), table)
    observations = whiten_scores(counts, table, np.tile(table.probabilities + 1e-3 * (table.filters == 0), (32, 1)))
    return MixedModel(observations, chosen[:, None], table.fixed_patterns, table.covariance)


@pytest.mark.parametrize("scheme", ["murmur3-v1", "google-md5"])
def test_estimate_candidates_separately_agrees_with_priors_of_no_variance(scheme: str) -> None:
    """Priors of variance 1e-14, solved whole: the same shares, fixed effects and overdispersion."""
    model = model_of({f"v{i}": 20_000 // (i + 1) for i in range(20)}, [f"v{i}" for i in range(12)], scheme)
    prior_means = np.where(np.arange(12) < 2, 0.2, 0.0)
    estimates, overdispersion = estimate_candidates_separately(model, prior_means, 3e-3)
    whole = ObservationSpaceSolver(model, CandidatePriors(prior_means, np.full(12, 1e-14)), 3e-3)
    assert estimates.shares == pytest.approx(whole.estimates().shares, abs=1e-7)
    assert estimates.variances == pytest.approx(whole.estimates().variances, rel=1e-6)
    assert estimates.fixed_effects == pytest.approx(whole.estimates().fixed_effects, abs=1e-6)
    assert overdispersion.ratio == pytest.approx(whole.overdispersion().ratio, rel=1e-6)
    assert overdispersion.step == pytest.approx(whole.overdispersion().step, rel=1e-5)


def test_squared_norms_are_those_of_the_columns() -> None:
    model = model_of({"a": 1000}, ["a", "b", "c"])
    columns = np.column_stack([model.predict(one) for one in np.eye(3)])
    assert model.columns(np.array([2, 0])) == pytest.approx(columns[:, [2, 0]])
    assert model.squared_norms() == pytest.approx(np.sum(columns**2, axis=0), rel=1e-12)


def test_initialize_is_near_the_final_unlisted_variance(unseen_seed: int) -> None:
    """Half of all reports carry one string, and half carry 100 unlisted strings: tau**2 is .0025, without the .25 of the listed string.

    Its standard deviation is 2 % of that (25 populations), and the whole model changes it by .5 %. The tolerance of a fifth is ten
    standard deviations.
    """
    population = {"heavy": 1_000_000} | {f"other {i}": 10_000 for i in range(100)}
    model = model_of(population, ["heavy", *(f"w{i}" for i in range(400))], seed=unseen_seed)
    state, estimates = initialize(model)
    assert state.unlisted_variance == pytest.approx(0.0025, rel=0.2)
    assert estimates.posterior_means[0] == pytest.approx(0.5, abs=0.05)
    assert estimates.fixed_effects[0] == pytest.approx(0.5, abs=0.1)
    after, _ = iterate(model, state)
    assert after.unlisted_variance == pytest.approx(state.unlisted_variance, rel=0.2)


def test_initialize_attributes_weak_candidates_to_priors(unseen_seed: int) -> None:
    """Half of all reports carry one string, half carry 400 weak candidates: tau**2 is less than half of their sum of squares.

    In 30 populations the ratio was .24 +- .02, and the unlisted share .01 +- .01. The bounds are ten standard deviations away.
    """
    population = {"heavy": 1_000_000} | {f"weak {i}": 2_500 for i in range(400)}
    state, estimates = initialize(model_of(population, list(population), seed=unseen_seed))
    assert state.unlisted_variance < 0.5 * 400 * (2_500 / 2_000_000) ** 2
    assert estimates.fixed_effects[0] == pytest.approx(0, abs=0.15)


@pytest.mark.slow
def test_initialize_subtracts_a_frequent_candidate_once(unseen_seed: int) -> None:
    """4 populations, 16 or 32 cohorts, 5,000 to 28,000 candidates, every string listed: tau**2 is near 0.

    tau**2 relative to the sum of squared shares: .006 on average of 120 populations, at most .015. When each strong candidate was
    subtracted with its marginal estimate, the ratio was above .05 in 29 of 48 populations, and at most 6.
    """
    rng = np.random.default_rng(unseen_seed)
    for run in range(4):
        cohorts = int(rng.choice([16, 32]))
        params = Params(num_bits=8, num_hashes=2, num_cohorts=cohorts, prob_p=0.225, prob_q=0.775, prob_f=0)
        named = distribution_shares("zipf1", int(rng.integers(500, 2_500)))
        shares = {f"{unseen_seed} {run} {name}": share for name, share in named.items()}
        people = draw_population(shares, 10_000_000, rng)
        names = [*people, *(f"{unseen_seed} {run} w{i}" for i in range(rng.integers(4_500, 25_500)))]
        table, counts = (
            FilterTable.from_params(params),
            simulate_pattern_counts(Metric.string("m", params), people, rng),
        )
        expected = np.tile(table.probabilities + 1e-3 * (table.filters == 0), (cohorts, 1))
        leading = split_directions(whiten_scores(counts, table, expected), table, 0.97, 12)
        filter_of = filter_indices(design_matrix(names, params), table)
        state, _ = initialize(MixedModel(leading, filter_of[:, None], table.fixed_patterns, table.covariance))
        assert state.unlisted_variance < 0.05 * sum((number / 10_000_000) ** 2 for number in people.values())


def test_held_out_directions_correct_unlisted_variance(unseen_seed: int) -> None:
    """A third of tau**2 becomes 1.01 to 1.03 of it in one step (5 seeds); a correct one stays."""
    population = {"heavy": 1_000_000} | {f"other {i}": 10_000 for i in range(100)}
    model = model_of(population, ["heavy", *(f"w{i}" for i in range(400))], seed=unseen_seed)
    state, _ = iterate(model, initialize(model)[0])
    corrected, _ = estimate_on_held_out_directions(model, replace(state, unlisted_variance=state.unlisted_variance / 3))
    settled, _ = estimate_on_held_out_directions(model, state)
    assert corrected.unlisted_variance == pytest.approx(state.unlisted_variance, rel=0.2)
    assert settled.unlisted_variance == pytest.approx(state.unlisted_variance, rel=0.1)


def test_initialize_accepts_no_candidates() -> None:
    model = model_of({"a": 1000}, [])
    state, estimates = initialize(model)
    assert len(estimates.shares) == 0
    assert iterate(model, state)[1].fixed_effects.sum() == pytest.approx(1, abs=0.2)
