"""Bit counts + design matrix -> shares, by the mixed model of all bits.

bits -> observations -> beliefs -> observations at the shares found -> beliefs -> solution
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hubbub.summary import BitCounts
from hubbub_decoder.covariance import RandomString, bit_shares_with_noise
from hubbub_decoder.design_matrix import DesignMatrix
from hubbub_decoder.error_law import RandomPlaces
from hubbub_decoder.fitted import Fitted
from hubbub_decoder.learning import begin, learn, totals
from hubbub_decoder.mixed_model import MixedModel
from hubbub_decoder.patterns import Observations
from hubbub_decoder.solving import solve

Floats = NDArray[np.float64]


def fit_bits(counts: BitCounts, design: DesignMatrix) -> Fitted:
    """Fit all candidates of the design, more than there are bits if need be.

    counts : bit counts with at least one report
    """
    params = counts.metric.params
    k, used = params.num_bits, counts.reports > 0
    random_string = RandomString.of(params)
    places = design.places()[used].transpose(0, 2, 1)
    others, scatter = np.append(random_string.mean, 0)[:, None], np.zeros((k + 1, k + 1))
    scatter[:k, :k] = random_string.covariance

    def observed(shares: Floats, unlisted: float) -> MixedModel:
        observations = _observe(counts, design, random_string, shares, unlisted)
        return MixedModel(observations, places, others, scatter)

    learnt, seen = begin(observed(np.zeros(len(design.groups)), random_string.share_of_all(counts)))
    model = observed(seen.posterior, float(seen.others[0]))
    learnt, seen = learn(model, learnt)
    solved = solve(model, learnt.beliefs, learnt.scatter)
    return Fitted.of(solved, totals(model, learnt, seen), learnt, places, RandomPlaces.of_bits(params))


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
