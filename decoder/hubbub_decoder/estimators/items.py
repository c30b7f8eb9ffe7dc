"""Closed-form estimator for sets: the reports of cohort j answer for item j alone, with one bit.

Model:     c_j of the n_j reports of cohort j are ones; c_j = Binomial(X_j, q*) + Binomial(n_j - X_j, p*), X_j the clients asked about j that use it
Estimator: x_j = (c_j / n_j - p*) / (q* - p*), unbiased for the share of all N clients that use item j, since who is asked is random
Variance:  of the share among the N reporters, of which n_j are asked without replacement (`categories.RowNoise` for the noise):

    Var x_j = (V_0 + x_j (V_1 - V_0)) / (n_j (q* - p*)**2) + x_j (1 - x_j) (1 / n_j - 1 / N) N / (N - 1)        N: infinite for a population

The mean number of items is the sum of the x_j. Different clients answer for different items, so the errors are independent but for the
choice of the clients, which only lowers the variance of the sum among the reporters (it is without replacement): Var = sum of Var x_j + x_j (1 - x_j) / N.
Its interval holds the means that the law of section 10 does not reject, as that of an item does.
docs/explanation/mathematics.md, equation (9.2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hubbub_decoder.array_types import Floats
from hubbub_decoder.estimators.categories import RowNoise, count_law, law_of_mean
from hubbub_decoder.inference.error_law import ErrorLaw, Sampling
from hubbub_decoder.inference.influence import ReportInfluence
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.options import Target


@dataclass(frozen=True, eq=False)
class ItemFit:
    """Estimated shares of all items, (m,); nan where no client was asked.

    law        : of their errors
    influence  : of one report
    mean_law   : of the mean of the shares, (1,), the mean number of items of a client over that of all items
    """

    shares: Floats
    law: ErrorLaw
    influence: ReportInfluence
    mean_law: ErrorLaw


def fit_items(evidence: Evidence, target: Target) -> ItemFit:
    """Estimate the share of the clients with each item."""
    mechanism, counts = evidence.params.mechanism, evidence.counts
    p, q = mechanism.p_star, mechanism.q_star
    n, ones = counts.reports.astype(float), counts.ones[:, 0]
    if q < p:
        p, q, ones = 1 - p, 1 - q, counts.reports - ones
    n[n == 0] = np.nan
    noise = RowNoise.of_mechanism(mechanism, evidence.repetition)
    asked = n / evidence.repetition.per_client
    sampling = Sampling.of_clients(asked, math.inf if target == "population" else evidence.num_clients)
    law = count_law(ones, n, (p, q), (noise.absent, noise.present), sampling)
    return ItemFit(
        law.shares,
        law,
        ReportInfluence.of_bits(mechanism, n),
        law_of_mean(law, asked),
    )
