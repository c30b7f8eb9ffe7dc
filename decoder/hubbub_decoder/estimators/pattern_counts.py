"""Estimator for pattern counts: the full likelihood, as whitened scores.

A string's *filter* in a cohort is the set of its true bits, as an integer; filter 0 is "no value". Only F filters exist (37 for k = 8,
h = 2, google-md5), so the 2**k counts of a cohort carry F numbers about shares.

Model, for cohort c with n_c reports and pattern counts (2**k,):

    counts_c ~ Poisson(n_c R theta_c)        R = P(pattern | filter), (2**k, F)        theta_c,g = sum of x_v over strings with filter g in c

The number of reports is random too. Estimator: the efficient score, whitened, is linear in the shares, and is `message_passing.py`'s data:

    I_c = n_c R' diag(1/pi_c) R        y_c = I_c**-1/2 R' diag(1/pi_c) counts_c = I_c**1/2 theta_c + N(0, I)        pi_c = R theta_c

taken twice, at an average population and at the shares found: two steps of Newton's method. `message_passing.py` estimates all shares.
Variance:  Var of `message_passing.py`; less x**2 / N as a population's share, less x / N as a share among the reporters.
docs/explanation/mathematics.md, equations (7.1) and (7.2).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hubbub.summary import PatternCounts
from hubbub_decoder.array_types import Floats
from hubbub_decoder.estimators.fit_result import FitResult, compare_with_random_strings
from hubbub_decoder.estimators.message_passing import HashedCohorts, MessagePassingFit, pass_messages
from hubbub_decoder.inference.intervals import poisson_variances
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.model.pattern_likelihood import FilterTable, filter_indices, whiten_scores
from hubbub_decoder.model.random_string import RandomFilters

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
    fit = pass_messages(cohorts(_expected_shares(first, table, filter_of)))
    filters = RandomFilters.from_probabilities(table.probabilities)
    totals = fit.totals()
    listed, unlisted, no_value = totals.shares
    n = evidence.num_clients
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
    )


def _expected_shares(fit: MessagePassingFit, table: FilterTable, filter_of: NDArray[np.int16]) -> Floats:
    """Share of each filter in each cohort, (m, F), from posterior means cut to possible shares."""
    shares = np.maximum(fit.beliefs.means, 0)
    unlisted, no_value = (max(float(effect), _MIN_EXPECTED_SHARE) for effect in fit.estimates.fixed_effects)
    nothing = no_value * (table.filters == 0)
    size = len(table.filters)
    found = np.array([np.bincount(filters, shares, size) for filters in filter_of])
    found = found + unlisted * table.probabilities + nothing
    return np.asarray(found / found.sum(axis=1, keepdims=True))
