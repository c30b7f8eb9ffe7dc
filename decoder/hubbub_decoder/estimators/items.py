"""Closed-form estimators for sets.

Where a client is asked about one item, the reports of cohort j answer for item j alone, with one bit.

Model:     c_j of the n_j reports of cohort j are ones; c_j = Binomial(X_j, q*) + Binomial(n_j - X_j, p*), X_j the clients asked about j that use it
Estimator: x_j = (c_j / n_j - p*) / (q* - p*), unbiased for the share of all N clients that use item j, since who is asked is random
Variance:  of the share among the N reporters, of which n_j are asked without replacement (`categories.RowNoise` for the noise):

    Var x_j = (V_0 + x_j (V_1 - V_0)) / (n_j (q* - p*)**2) + x_j (1 - x_j) (1 / n_j - 1 / N) N / (N - 1)        N: infinite for a population

The mean number of items is the sum of the x_j. Different clients answer for different items, so the errors are independent but for the
choice of the clients, which only lowers the variance of the sum among the reporters (it is without replacement): Var = sum of Var x_j + x_j (1 - x_j) / N.
Its interval holds the means that the law of section 10 does not reject, as that of an item does.
docs/explanation/mathematics.md, equation (9.2).

Where a report is a row of the whole set (`PrivSet`), every report has a bit of each item, so n_j = N and the share among the reporters has
no error of sampling. The mean number of items is that of the rows, whose number of ones is known, so its variance is that of the ones in the
blanks, equation (24.4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from hubbub.mechanisms.privset import PrivSet
from hubbub_decoder.array_types import Floats
from hubbub_decoder.estimators.categories import RowNoise, count_law, law_of_mean
from hubbub_decoder.inference.error_law import ErrorCumulants, ErrorLaw, Sampling
from hubbub_decoder.inference.influence import Influence, ReportInfluence
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.options import Target


@dataclass(frozen=True, eq=False)
class ItemFit:
    """Estimated shares of all items, (m,); nan where no client was asked.

    law        : of their errors
    influence  : of one report, of some of the items
    mean_law   : of the mean of the shares, (1,), the mean number of items of a client over that of all items
    """

    shares: Floats
    law: ErrorLaw
    influence: Influence
    mean_law: ErrorLaw


def fit_items(evidence: Evidence, target: Target) -> ItemFit:
    """Estimate the share of the clients with each item, from answers about one item each."""
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
        ReportInfluence.of_bits(mechanism, n).take,
        law_of_mean(law, asked),
    )


def fit_whole_sets(evidence: Evidence, target: Target, mechanism: PrivSet) -> ItemFit:
    """Estimate the share of the clients with each item, from rows of whole sets."""
    reports, clients, size = float(evidence.num_reports), evidence.num_clients, mechanism.num_items
    noise = RowNoise.of_mechanism(mechanism, evidence.repetition)
    sampling = Sampling.of_clients(clients, math.inf if target == "population" else clients)
    ones, probabilities = evidence.counts.ones[0][:size], (mechanism.prob_p, mechanism.prob_q)
    law = count_law(ones, reports, probabilities, (noise.absent, noise.present), sampling)
    bits = ReportInfluence.of_bits(mechanism, np.full(size, reports))
    rows = np.zeros((size, mechanism.num_values), np.uint8)
    positions = (np.arange(size)[:, None] + np.arange(mechanism.num_ones)) % mechanism.num_values
    np.put_along_axis(rows, positions, 1, axis=1)  # the item, and any others
    return ItemFit(
        law.shares,
        law,
        replace(bits, cohorts=np.zeros(size, np.intp), rows=rows).take,
        _law_of_mean_size(law.shares, reports, clients, mechanism, target),
    )


def _law_of_mean_size(shares: Floats, reports: float, clients: float, mechanism: PrivSet, target: Target) -> ErrorLaw:
    """Law of the mean x of the M shares, (1,), from an upper bound of the variance of their sum, of equation (24.4).

        Var = V(b) / (N (q-p)**2) + Var(size) (1 / n - V'' / (2 N (q-p)**2))        V'' = -d2 V / db2 > 0

    V(b) is the variance of the ones in the blanks of a client with b of them in its true set, at the mean of b = m - size; the n clients send N
    reports. Counts do not show Var(size), at most b (m - b): it counts where it adds to the variance, in shares of a population from several
    reports of each client.
    """
    m, q, p = mechanism.max_items, mechanism.prob_q, mechanism.prob_p
    mean = shares.mean(keepdims=True)
    b = m - np.clip(mean * len(shares), 0, m)
    (neither, one), _ = mechanism.noise_covariances()
    both = mechanism.own_covariance
    of_blanks = (
        b * q * (1 - q)
        + (m - b) * p * (1 - p)
        + b * (b - 1) * both
        + 2 * b * (m - b) * one
        + (m - b) * (m - b - 1) * neither
    )
    of_clients = 1 / clients + (both - 2 * one + neither) / (reports * (q - p) ** 2) if target == "population" else 0.0
    variances = (of_blanks / (reports * (q - p) ** 2) + max(of_clients, 0.0) * b * (m - b)) / len(shares) ** 2
    return ErrorLaw(mean, variances, ErrorCumulants(variances, *np.zeros((3, 1))), None)
