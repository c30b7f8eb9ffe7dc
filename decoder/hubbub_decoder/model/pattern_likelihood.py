"""Likelihood of pattern counts: the filters of strings, and the whitened score of the shares of each filter.

A string's *filter* in a cohort is the set of its true bits, as an integer; filter 0 is "no value". Only F filters exist (37 for k = 8,
h = 2, google-md5), so the 2**k counts of a cohort carry F numbers about shares. docs/mathematics.md, section 7.
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
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.observations import Observations
from hubbub_decoder.model.random_string import filter_probabilities

MAX_TABLE_CELLS = 1 << 25
"""Largest table P(pattern | filter) to build."""

_SMALLEST = 1e-12


def supports_pattern_likelihood(params: Params) -> bool:
    """Whether patterns of these parameters can be fitted whole: at most 16 bits, and a table of at most 2**25 cells."""
    k = params.num_bits
    return k <= MAX_PATTERN_BITS and count_filters(params) << k <= MAX_TABLE_CELLS


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
