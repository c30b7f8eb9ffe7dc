"""Estimator for pattern counts: the full likelihood, as a mixed model.

A string's *filter* in a cohort is the set of its true bits, as an integer; filter 0 is "no value". Only F filters exist (37 for k = 8,
h = 2, google-md5), so the 2**k counts of a cohort carry F numbers about shares.

Model, for cohort c with n_c reports and pattern counts (2**k,):

    counts_c ~ Poisson(n_c R theta_c)        R = P(pattern | filter), (2**k, F)        theta_c,g = sum of x_v over strings with filter g in c

The number of reports is random too. Estimator: the efficient score, whitened, is linear in the shares, and is `mixed_model.py`'s data:

    I_c = n_c R' diag(1/pi_c) R        y_c = I_c**-1/2 R' diag(1/pi_c) counts_c = I_c**1/2 theta_c + N(0, I)        pi_c = R theta_c

taken twice, at an average population and at the shares found: two steps of Newton's method. With more than 300 candidates the priors are
fitted on the leading directions of y_c. The shares are then estimated on all directions (decision 12).
Variance:  Var of `mixed_model.py`; less x**2 / N as a population's share, less x / N as a share among the reporters.
docs/mathematics.md, section 7.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hubbub.summary import PatternCounts
from hubbub_decoder.array_types import Floats
from hubbub_decoder.estimators.empirical_bayes import (
    estimate_on_held_out_directions,
    exchangeable_totals,
    initialize,
    iterate,
)
from hubbub_decoder.estimators.fit_result import FitResult, compare_with_random_strings
from hubbub_decoder.estimators.mixed_model import MixedModel, ShareEstimates
from hubbub_decoder.inference.intervals import poisson_variances
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.observations import Observations
from hubbub_decoder.model.pattern_likelihood import FilterTable, filter_indices, whiten_scores
from hubbub_decoder.model.random_string import RandomFilters
from hubbub_decoder.model.repetition import Repetition

_MIN_EXPECTED_SHARE = 1e-3  # of the unlisted strings, and of "no value", in the weights
_MAX_CANDIDATES_ON_ALL_DIRECTIONS = 300  # for fitting priors
_KEPT_TRACE, _EXTRA_DIRECTIONS = 0.97, 4  # of the leading directions: share of the trace, and most directions beyond k
_MAX_OBSERVATIONS, _MAX_PRODUCT = (
    5_000,
    25_000_000,
)  # observations, and observations x candidates, to solve on all directions
_MIN_NUMBER_DIRECTION = 1e-6  # relative length of the number of strings outside the leading directions


def fit_patterns(counts: PatternCounts, design: DesignMatrix) -> FitResult:
    """Estimate the shares of all candidates of the design, which may be more than the patterns have numbers.

    filters -> whitened scores -> priors -> whitened scores at the shares found -> priors -> tau**2 and shares on all directions
    """
    table = FilterTable.from_params(design.params)
    filter_of = filter_indices(design, table)
    cohorts, candidates = filter_of.shape
    most = design.params.num_bits + _EXTRA_DIRECTIONS

    def observe(expected: Floats) -> tuple[Observations, MixedModel]:
        """All observations with the weights of expected shares, and the model of those that priors are fitted on."""
        everything = whiten_scores(counts, table, expected)
        if candidates <= _MAX_CANDIDATES_ON_ALL_DIRECTIONS:
            return everything, _pattern_model(everything, table, filter_of)
        return everything, _pattern_model(split_directions(everything, table, _KEPT_TRACE, most), table, filter_of)

    average = np.tile(table.probabilities + _MIN_EXPECTED_SHARE * (table.filters == 0), (cohorts, 1))
    state, estimates = initialize(observe(average)[1])
    observations, model = observe(_expected_shares(estimates, table, filter_of))
    state, estimates = iterate(model, state)
    totals = exchangeable_totals(model, state, estimates)
    if observations.size > _MAX_OBSERVATIONS and observations.size * candidates > _MAX_PRODUCT:
        observations = split_directions(observations, table, 1.0, _MAX_OBSERVATIONS // cohorts)
    if observations.size <= len(model.y):
        solved = model.solve(state.priors, state.unlisted_variance)
    else:
        state, solved = estimate_on_held_out_directions(_pattern_model(observations, table, filter_of), state)
    final = solved.estimates()
    tests = compare_with_random_strings(
        solved, final, filter_of[:, None], RandomFilters.from_probabilities(table.probabilities)
    )
    listed, unlisted, no_value = totals.shares
    n = Repetition.from_periods(counts.metric, counts.periods).num_clients(counts.num_reports)
    return FitResult.from_mixed_model(
        final,
        state,
        tests,
        totals=(
            np.array([listed, unlisted, 1 - no_value]),
            *poisson_variances(np.diag(totals.covariance), totals.shares, n),
        ),
        variances=lambda variance, share: poisson_variances(variance, share, n),
    )


def split_directions(observations: Observations, table: FilterTable, kept: float, most: int) -> Observations:
    """Observations of each cohort along the directions that separate strings best, and along their number.

    Directions are the eigenvectors of A V A' with the largest eigenvalues, V the covariance of a random string's filter. They hold a share
    `kept` of its trace, and are at most `most`. Near epsilon = 1 the bits alone hold 97 %: 8 numbers of 37.
    """
    pairs = list(zip(observations.responses, observations.features, strict=True))
    bases = [_leading_directions(a, table, kept, most) for _, a in pairs]
    return Observations(
        tuple(basis.T @ y for basis, (y, _) in zip(bases, pairs, strict=True)),
        tuple(basis.T @ a for basis, (_, a) in zip(bases, pairs, strict=True)),
    )


def _leading_directions(features: Floats, table: FilterTable, kept: float, most: int) -> Floats:
    """Leading directions of one cohort, and that of the number of strings: orthonormal columns (r, s)."""
    if not len(features):
        return np.empty((0, 0))
    values, vectors = np.linalg.eigh(features @ table.covariance @ features.T)
    share = np.cumsum(values[::-1]) / values.sum()
    directions = vectors[:, ::-1][:, : min(int(np.searchsorted(share, kept)) + 1, most)]
    number = features @ table.probabilities
    number -= directions @ (directions.T @ number)
    length = np.linalg.norm(number)
    if length > _MIN_NUMBER_DIRECTION * np.linalg.norm(features):
        directions = np.column_stack([directions, number / length])
    return directions


def _pattern_model(observations: Observations, table: FilterTable, filter_of: NDArray[np.int16]) -> MixedModel:
    """Mixed model with filters as positions."""
    return MixedModel(observations, filter_of[:, None], table.fixed_patterns, table.covariance)


def _expected_shares(estimates: ShareEstimates, table: FilterTable, filter_of: NDArray[np.int16]) -> Floats:
    """Share of each filter in each cohort, (m, F), from posterior means cut to possible shares."""
    shares = np.maximum(estimates.posterior_means, 0)
    unlisted, no_value = (max(float(effect), _MIN_EXPECTED_SHARE) for effect in estimates.fixed_effects)
    nothing = no_value * (table.filters == 0)
    size = len(table.filters)
    found = np.array([np.bincount(filters, shares, size) for filters in filter_of])
    found = found + unlisted * table.probabilities + nothing
    return np.asarray(found / found.sum(axis=1, keepdims=True))
