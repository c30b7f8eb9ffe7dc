"""Bit counts + design matrix -> shares, by the mixed model of all bits.

bits -> observations -> beliefs -> observations at the shares found -> beliefs -> solution
"""

from __future__ import annotations

import numpy as np

from hubbub.summary import BitCounts
from hubbub_decoder.array_types import Floats
from hubbub_decoder.estimators.empirical_bayes import Learnt, begin, learn, totals
from hubbub_decoder.estimators.fit_result import FitResult, compare_with_random_strings, sum_totals
from hubbub_decoder.estimators.mixed_model import MixedModel, Observations, Solution
from hubbub_decoder.inference.intervals import reporter_variance
from hubbub_decoder.model.bit_covariance import bit_shares_with_noise
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.random_string import RandomPlaces, RandomString


def fit_bits(counts: BitCounts, design: DesignMatrix, num_reports: int | None = None) -> FitResult:
    """Fit all candidates of the design, more than there are bits if need be.

    counts : bit counts with at least one report      num_reports : of all cohorts, if `counts` holds only some of them
    """
    n = num_reports or counts.num_reports
    learnt, seen = begin_with_bits(counts, design)
    model = _model(counts, design, seen.posterior, float(seen.others[0]))
    learnt, seen = learn(model, learnt)
    solved, sums = model.solve(learnt.beliefs, learnt.scatter), totals(model, learnt, seen)
    solution = solved.solution()
    tests = compare_with_random_strings(solved, solution, model.places, RandomPlaces.of_bits(counts.metric.params))
    summed, spread = sum_totals(sums.shares, sums.covariance)
    of_sums = summed, spread, reporter_variance(spread, summed, n)
    return FitResult.from_mixed_model(solution, learnt, tests, of_sums, lambda v, x: (v, reporter_variance(v, x, n)))


def begin_with_bits(counts: BitCounts, design: DesignMatrix) -> tuple[Learnt, Solution]:
    """Look at the bits of an average population."""
    unlisted = RandomString.of(counts.metric.params).share_of_all(counts)
    return begin(_model(counts, design, np.zeros(len(design.groups)), unlisted))


def _model(counts: BitCounts, design: DesignMatrix, shares: Floats, unlisted: float) -> MixedModel:
    """Observe the bits as they scatter at these shares."""
    params = counts.metric.params
    k, random_string = params.num_bits, RandomString.of(params)
    others, scatter = np.append(random_string.mean, 0)[:, None], np.zeros((k + 1, k + 1))
    scatter[:k, :k] = random_string.covariance
    places = design.places()[counts.reports > 0].transpose(0, 2, 1)
    return MixedModel(_observe(counts, design, random_string, shares, unlisted), places, others, scatter)


def _observe(
    counts: BitCounts, design: DesignMatrix, random_string: RandomString, shares: Floats, unlisted: float
) -> Observations:
    """Whiten each cohort's bit shares.

        y_c = L_c^-1 t_c / n_c        L_c L_c' = C_c / (n_c (q* - p*)**2)        A_c = L_c^-1, and 0 for a bit that is hit again

    C_c is `report_covariance` at these shares of the candidates and of the unlisted strings.
    """
    responses, features = [], []
    for y_c, _, covariance in bit_shares_with_noise(counts, design.blocks(), random_string, shares, unlisted):
        whitener = np.linalg.inv(np.linalg.cholesky(covariance))
        responses.append(whitener @ y_c)
        features.append(np.pad(whitener, [(0, 0), (0, 1)]))
    return Observations(tuple(responses), tuple(features))
