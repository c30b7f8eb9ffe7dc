"""Estimator for pattern counts: the full likelihood, as whitened scores.

A string's *filter* in a cohort is the set of its true bits, as an integer; filter 0 is "no value". Only F filters exist (37 for k = 8,
h = 2, google-md5), so the 2**k counts of a cohort carry F numbers about shares.

Model, for cohort c with n_c reports and pattern counts (2**k,):

    counts_c ~ Poisson(n_c R theta_c)        R = P(pattern | filter), (2**k, F)        theta_c,g = sum of x_v over strings with filter g in c

The number of reports is random too. Estimator: the efficient score, whitened, is linear in the shares, and is `message_passing.py`'s data:

    I_c = n_c R' diag(1/pi_c) R        y_c = I_c**-1/2 R' diag(1/pi_c) counts_c = I_c**1/2 theta_c + N(0, I)        pi_c = R theta_c

taken twice, at an average population and at the shares found: two steps of Newton's method. `message_passing.py` estimates all shares.
Variance:  Var of `message_passing.py`; less x**2 / N as a population's share, less x / N as a share among the reporters.
docs/mathematics.md, section 7.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import NDArray

from hubbub.metrics.params import Params
from hubbub.summary import PatternCounts
from hubbub.summary.pattern_counts import MAX_PATTERN_BITS
from hubbub_decoder.array_types import Floats
from hubbub_decoder.estimators.fit_result import FitResult, compare_with_random_strings
from hubbub_decoder.estimators.message_passing import HashedCohorts, MessagePassingFit, pass_messages
from hubbub_decoder.estimators.mixed_model import Observations
from hubbub_decoder.inference.intervals import poisson_variances
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.random_string import RandomFilters, filter_probabilities

MAX_TABLE_CELLS = 1 << 25
"""Largest table P(pattern | filter) to build."""

_MIN_EXPECTED_SHARE = 1e-3  # of the unlisted strings, and of "no value", in the weights
_SMALLEST = 1e-12


def supports_pattern_likelihood(params: Params) -> bool:
    """Whether patterns of these parameters can be fitted whole: at most 16 bits, and a table of at most 2**25 cells."""
    k = params.num_bits
    return k <= MAX_PATTERN_BITS and count_filters(params) << k <= MAX_TABLE_CELLS


def fit_patterns(counts: PatternCounts, design: DesignMatrix) -> FitResult:
    """Estimate the shares of all candidates of the design, which may be more than the patterns have numbers.

    filters -> whitened scores -> messages -> whitened scores at the shares found -> messages -> tests and totals
    """
    table = FilterTable.from_params(design.params)
    filter_of = filter_indices(design, table)

    def cohorts(expected: Floats) -> HashedCohorts:
        observations = whiten_scores(counts, table, expected)
        return HashedCohorts.from_observations(observations, filter_of[:, None], table.fixed_patterns, table.covariance)

    average = np.tile(table.probabilities + _MIN_EXPECTED_SHARE * (table.filters == 0), (len(filter_of), 1))
    first = pass_messages(cohorts(average))
    fit = pass_messages(cohorts(_expected_shares(first, table, filter_of)), first.beliefs)
    filters = RandomFilters.from_probabilities(table.probabilities)
    totals = fit.totals()
    listed, unlisted, no_value = totals.shares
    n = counts.num_reports
    return FitResult.from_mixed_model(
        fit.estimates,
        (fit.beliefs.unlisted_variance, fit.overdispersion.error),
        compare_with_random_strings(fit, fit.estimates, filter_of[:, None], filters),
        totals=(
            np.array([listed, unlisted, 1 - no_value]),
            *poisson_variances(np.diag(totals.covariance), totals.shares, n),
        ),
        variances=lambda variance, share: poisson_variances(variance, share, n),
    )


@dataclass(frozen=True, eq=False)
class FilterTable:
    """All F filters that a string can have, and the probability of each pattern under each.

    filters               : (F,) ascending, 0 ("no value") first
    probabilities         : (F,) that a random string has each; 0 for "no value"
    pattern_probabilities : (2**k, F) R = P(pattern reported | filter)
    """

    filters: NDArray[np.int64]
    probabilities: Floats
    pattern_probabilities: Floats

    @classmethod
    def from_params(cls, params: Params) -> FilterTable:
        """Enumerate the filters of the hash scheme.

        >>> params = Params(num_bits=8, num_hashes=2, num_cohorts=1, prob_p=0.25, prob_q=0.75, prob_f=0)
        >>> table = FilterTable.from_params(params)
        >>> table.pattern_probabilities.shape, round(float(table.probabilities[1]), 6)  # no value, and 28 pairs
        ((256, 29), 0.035714)
        """
        likely = filter_probabilities(params)
        filters = np.array([0, *sorted(likely)], np.int64)
        probabilities = np.array([likely.get(int(each), 0.0) for each in filters])
        of_patterns = np.ones((1 << params.num_bits, len(filters)))
        patterns = np.arange(1 << params.num_bits)[:, None]
        for bit in range(params.num_bits):
            one = np.where(filters >> bit & 1, params.q_star, params.p_star)
            of_patterns *= np.where(patterns >> bit & 1, one, 1 - one)
        return cls(filters, probabilities, of_patterns)

    @property
    def fixed_patterns(self) -> Floats:
        """Filters of a random string on average, and of "no value": (F, 2)."""
        return np.column_stack([self.probabilities, self.filters == 0])

    @property
    def covariance(self) -> Floats:
        """Covariance of the indicator of a random string's filter, V = diag(r) - r r', (F, F)."""
        return np.diag(self.probabilities) - np.outer(self.probabilities, self.probabilities)


def count_filters(params: Params) -> int:
    """Number F of filters that a string can have, "no value" included, without building the table."""
    k, h = params.num_bits, params.num_hashes
    sizes = range(1, h + 1) if params.hash_scheme == "google-md5" else [h]
    return 1 + sum(comb(k, size) for size in sizes)


def filter_indices(design: DesignMatrix, table: FilterTable) -> NDArray[np.int16]:
    """Index in `table.filters` of each candidate's filter in each cohort: (m, M)."""
    params = design.params
    k, (rows, columns) = params.num_bits, design.matrix.shape
    bits = np.zeros((rows // k, columns), np.int64)
    entries = design.matrix.tocoo()
    np.add.at(bits, (entries.row // k, entries.col), np.int64(1) << (entries.row % k).astype(np.int64))
    return np.searchsorted(table.filters, bits).astype(np.int16)


def whiten_scores(counts: PatternCounts, table: FilterTable, expected: Floats) -> Observations:
    """Whitened efficient score of each cohort's counts.

        I_c = n_c R' diag(1/pi_c) R        y_c = I_c**-1/2 R' diag(1/pi_c) counts_c        A_c = I_c**1/2        pi_c = R theta_c

    expected : (m, F) theta_c at which pi_c is taken, with positive sums; efficient where it is the true one
    """
    responses, features = [], []
    for cohort, theta in zip(counts.counts, expected, strict=True):
        pi = np.maximum(table.pattern_probabilities @ theta, _SMALLEST)
        weighted = table.pattern_probabilities / pi[:, None]
        information = cohort.sum() * (table.pattern_probabilities.T @ weighted)
        values, vectors = np.linalg.eigh(information)
        known = values > _SMALLEST * max(values[-1], _SMALLEST)
        root = np.sqrt(values[known])
        responses.append((vectors[:, known].T @ (weighted.T @ cohort)) / root)
        features.append(root[:, None] * vectors[:, known].T)
    return Observations(tuple(responses), tuple(features))


def _expected_shares(fit: MessagePassingFit, table: FilterTable, filter_of: NDArray[np.int16]) -> Floats:
    """Share of each filter in each cohort, (m, F), from posterior means cut to possible shares."""
    shares = np.maximum(fit.beliefs.means, 0)
    unlisted, no_value = (max(float(effect), _MIN_EXPECTED_SHARE) for effect in fit.estimates.fixed_effects)
    nothing = no_value * (table.filters == 0)
    size = len(table.filters)
    found = np.array([np.bincount(filters, shares, size) for filters in filter_of])
    found = found + unlisted * table.probabilities + nothing
    return np.asarray(found / found.sum(axis=1, keepdims=True))
