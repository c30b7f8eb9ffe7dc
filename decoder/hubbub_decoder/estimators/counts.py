"""Estimators for counts with many candidates: message passing over the whitened bits, or over the whitened scores of patterns.

Bit counts. Model, for cohort j with n_j reports and debiased bit shares t_j (k,):

    t_j = X_j x + w x_o + e_j        e_j ~ N(0, C_j / (n_j (q* - p*)**2) + tau**2 V)        x_v ~ N(mean_v, variance_v)

x (M,) are the candidates' shares, x_o that of the unlisted strings, w and V the moments of a random string, C_j `report_covariance`.
Estimator: `message_passing.py` on the whitened bits, twice: with C_j of an average population, then with C_j of the shares found.

    y_j = L_j^-1 t_j        A_j = L_j^-1        L_j L_j' = C_j / (n_j (q* - p*)**2)

Variance:  that of `message_passing.py`, as a share of a population; less x (1 - x) / N as a share among the reporters.
docs/explanation/mathematics.md, equations (3.2), (5.1) and (6.1).

Pattern counts, by their full likelihood. Filters are those of `model/pattern_likelihood.py`. Model, for cohort c with n_c reports and
pattern counts (2**k,):

    counts_c ~ Poisson(n_c R theta_c)        R = P(pattern | filter), (2**k, F)        theta_c,g = sum of x_v over strings with filter g in c

The number of reports is random too. Estimator: the efficient score, whitened, is linear in the shares, and is `message_passing.py`'s data:

    I_c = n_c R' diag(1/pi_c) R        y_c = I_c**-1/2 R' diag(1/pi_c) counts_c = I_c**1/2 theta_c + N(0, I)        pi_c = R theta_c

taken twice, at an average population and at the shares found: two steps of Newton's method. `message_passing.py` estimates all shares.
Variance:  Var of `message_passing.py`; less x**2 / N as a population's share, less x / N as a share among the reporters.
docs/explanation/mathematics.md, equations (7.1) and (7.2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hubbub.mechanisms.mechanism import Mechanism
from hubbub.metrics.params import Params
from hubbub.summary import PatternCounts
from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.estimators.fit_result import FitResult, compare_with_random_strings, sum_totals
from hubbub_decoder.estimators.message_passing import HashedCohorts, MessagePassingFit, pass_messages, too_crowded
from hubbub_decoder.inference.influence import Extremes
from hubbub_decoder.inference.intervals import poisson_variances, reporter_variance
from hubbub_decoder.model.bit_covariance import bit_shares_and_covariances
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.model.observations import Observations
from hubbub_decoder.model.pattern_likelihood import FilterTable, filter_indices, whiten_scores
from hubbub_decoder.model.random_string import RandomFilters


def fit_bits(evidence: Evidence, design: DesignMatrix) -> FitResult:
    """Estimate the shares of all candidates of the design, which may be more than there are bits.

    evidence : with at least one report
    """
    n, fit = evidence.num_all_clients, pass_bit_messages(evidence, design)
    filters = RandomFilters.from_params(evidence.params)
    tests = compare_with_random_strings(fit, fit.estimates, fit.cohorts.positions, filters)
    totals = fit.totals()
    sums, variances = sum_totals(totals.shares, totals.covariance)
    reports = evidence.counts.reports[evidence.used]
    rows = BitRows(evidence.params.mechanism, reports)
    return FitResult.from_mixed_model(
        fit.estimates,
        (fit.beliefs.unlisted_variance, fit.variance_error),
        tests,
        totals=(sums, variances, reporter_variance(variances, sums, n)),
        variances=lambda variance, share: (variance, reporter_variance(variance, share, n)),
        crowding=fit.crowding(totals),
        influence=lambda candidates: fit.influence(candidates, rows, reports),
    )


@dataclass(frozen=True, eq=False)
class BitRows:
    """Statistics of a report in bit counts: its debiased bits, over the reports (m,) of its cohort. The last position is no bit."""

    mechanism: Mechanism
    reports: NDArray[np.int64]
    # with .44 of the variance by other strings, attacks moved estimates by up to 1.43 bounds
    max_part_of_strings: float = 1 / 3

    def likely(self, cohort: int, candidates: Indices, weights: Floats) -> Floats:  # noqa: ARG002  (not of one candidate)
        """Infinite: every cohort is searched, which costs nothing."""
        return np.full(len(weights), np.inf)

    def extremes(self, cohort: int, weights: Floats) -> Extremes:
        """Extremes over all rows, bit by bit."""
        return Extremes.of_bits(weights[:, :-1] / self.reports[cohort], self.mechanism)


def is_crowded(evidence: Evidence, design: DesignMatrix) -> bool:
    """Whether there are too many candidates for so few cohorts to subtract any of them."""
    return too_crowded(evidence.num_used, len(design.groups), evidence.num_independent)


def pass_bit_messages(evidence: Evidence, design: DesignMatrix) -> MessagePassingFit:
    """Messages of the bits, weighted as those of an average population first, and then as at the shares found."""
    k, random_string = evidence.params.num_bits, evidence.random_string
    fixed_patterns, covariance = np.append(random_string.mean, 0)[:, None], np.zeros((k + 1, k + 1))
    covariance[:k, :k] = random_string.covariance  # position k is no bit
    positions = design.positions()[evidence.used].transpose(0, 2, 1)

    def cohorts(shares: Floats, unlisted: float) -> HashedCohorts:
        observations = whiten_bits(evidence, design, shares, unlisted)
        return HashedCohorts.from_observations(observations, positions, fixed_patterns, covariance, design.strata)

    first = pass_messages(cohorts(np.zeros(len(design.groups)), evidence.any_value_share))
    return pass_messages(cohorts(first.beliefs.means, float(first.estimates.fixed_effects[0])))


def whiten_bits(evidence: Evidence, design: DesignMatrix, shares: Floats, unlisted: float) -> Observations:
    """Whitened bit shares of each cohort with reports: y_j = L_j^-1 t_j, A_j = (L_j^-1, 0), the last column for position k."""
    responses, features = [], []
    for bit_shares, _, covariance in bit_shares_and_covariances(evidence, design.blocks(), shares, unlisted):
        whitener = np.linalg.inv(np.linalg.cholesky(covariance))
        responses.append(whitener @ bit_shares)
        features.append(np.pad(whitener, [(0, 0), (0, 1)]))
    whiteners = tuple(features)
    return Observations(tuple(responses), whiteners, whiteners)


_MIN_PROBABILITY = 1e-12  # of a pattern
_MIN_EXPECTED_SHARE = 1e-3  # of the unlisted strings, and of "no value", in the weights


def fit_patterns(evidence: Evidence, design: DesignMatrix) -> FitResult:
    """Estimate the shares of all candidates of the design, which may be more than the patterns have numbers.

    filters -> whitened scores -> messages -> whitened scores at the shares found -> messages -> tests and totals
    """
    counts, table = evidence.require(PatternCounts), FilterTable.from_params(design.params)
    filter_of = filter_indices(design, table)

    def cohorts(expected: Floats) -> HashedCohorts:
        observations = whiten_scores(counts, table, expected, evidence.repetition)
        fixed_patterns, covariance = table.fixed_patterns, table.covariance
        return HashedCohorts.from_observations(
            observations, filter_of[:, None], fixed_patterns, covariance, design.strata
        )

    average = np.tile(table.probabilities + _MIN_EXPECTED_SHARE * (table.filters == 0), (len(filter_of), 1))
    first = pass_messages(cohorts(average))
    expected = _expected_shares(first, table, filter_of)
    fit = pass_messages(cohorts(expected))
    filters = RandomFilters.from_probabilities(table.probabilities)
    totals = fit.totals()
    listed, unlisted, no_value = totals.shares
    n = evidence.num_clients

    reports = counts.counts.sum(axis=1)
    rows = PatternRows(table, expected, filter_of, design.params)
    return FitResult.from_mixed_model(
        fit.estimates,
        (fit.beliefs.unlisted_variance, fit.variance_error),
        compare_with_random_strings(fit, fit.estimates, filter_of[:, None], filters),
        totals=(
            np.array([listed, unlisted, 1 - no_value]),
            *poisson_variances(np.diag(totals.covariance), totals.shares, n),
        ),
        variances=lambda variance, share: poisson_variances(variance, share, n),
        crowding=fit.crowding(totals),
        influence=lambda candidates: fit.influence(candidates, rows, reports),
    )


@dataclass(frozen=True, eq=False)
class PatternRows:
    """Statistics of a report in pattern counts: the score R_s / pi_s of its pattern s.

    expected : (m, F) shares at which pi is taken      filter_of : (m, M) of the candidates
    """

    table: FilterTable
    expected: Floats
    filter_of: NDArray[np.int16]
    params: Params
    max_part_of_strings: float = 1.0

    def likely(self, cohort: int, candidates: Indices, weights: Floats) -> Floats:
        """Of the pattern with the bits of the candidate alone; its complement if p > q."""
        mechanism, k = self.params.mechanism, self.params.num_bits
        p, q = mechanism.p_star, mechanism.q_star
        filters = self.table.filters[:, None] >> np.arange(k) & 1
        patterns = filters[self.filter_of[cohort, candidates]] ^ int(q < p)
        chances = np.clip(np.where(filters, q, p), _MIN_PROBABILITY, 1 - _MIN_PROBABILITY)
        likelihood = np.exp(patterns @ np.log(chances).T + (1 - patterns) @ np.log(1 - chances).T)
        mixture = np.maximum(likelihood @ self.expected[cohort], _MIN_PROBABILITY)
        return np.asarray((likelihood * weights).sum(axis=1) / mixture)

    def extremes(self, cohort: int, weights: Floats) -> Extremes:
        """Extremes over all patterns."""
        pi = np.maximum(self.table.mixture(self.expected[cohort]), _MIN_PROBABILITY)
        of_patterns = np.empty((len(weights), len(pi)))
        for row, of_filters in zip(of_patterns, weights, strict=True):
            row[:] = self.table.mixture(of_filters) / pi
        largest = of_patterns.argmax(axis=1)
        rows = (largest[:, None] >> np.arange(self.params.num_bits) & 1).astype(np.uint8)
        return Extremes(of_patterns.min(axis=1), of_patterns.max(axis=1), rows)


def _expected_shares(fit: MessagePassingFit, table: FilterTable, filter_of: NDArray[np.int16]) -> Floats:
    """Share of each filter in each cohort, (m, F), from posterior means cut to possible shares."""
    shares = np.maximum(fit.beliefs.means, 0)
    unlisted, no_value = (max(float(effect), _MIN_EXPECTED_SHARE) for effect in fit.estimates.fixed_effects)
    nothing = no_value * (table.filters == 0)
    size = len(table.filters)
    found = np.array([np.bincount(filters, shares, size) for filters in filter_of])
    found = found + unlisted * table.probabilities + nothing
    return np.asarray(found / found.sum(axis=1, keepdims=True))
