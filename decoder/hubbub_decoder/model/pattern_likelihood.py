"""Likelihood of pattern counts: the filters of strings, and the whitened score of the shares of each filter.

A string's *filter* in a cohort is the set of its true bits, as an integer; filter 0 is "no value". Only F filters exist (37 for k = 8,
h = 2, google-md5), so the 2**k counts of a cohort carry F numbers about shares. The (2**k, F) table R = P(pattern | filter) is never
built: bits are independent given the filter, so every sum over patterns is taken bit by bit (`bit_products.py`).

docs/explanation/mathematics.md, equations (7.1) to (7.3); decision 71.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import NDArray

from hubbub.metrics.params import Params
from hubbub.summary import PatternCounts
from hubbub.summary.pattern_counts import MAX_PATTERN_BITS
from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.model.bit_products import BitProductSums
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.observations import Observations
from hubbub_decoder.model.pattern_repetition import repeated_score_covariance
from hubbub_decoder.model.random_string import filter_probabilities
from hubbub_decoder.model.repetition import ONCE, Repetition

MAX_MULTIPLICATIONS = 1 << 34
"""Most multiplications, m F**3, to factor the information matrices of all cohorts: 645 filters in 64 cohorts."""

_SMALLEST = 1e-12


def supports_pattern_likelihood(params: Params) -> bool:
    """Whether patterns of these parameters can be fitted whole: at most 16 bits, and m F**3 at most 2**34 for F filters, m cohorts."""
    return (
        params.num_bits <= MAX_PATTERN_BITS and params.num_cohorts * count_filters(params) ** 3 <= MAX_MULTIPLICATIONS
    )


@dataclass(frozen=True, eq=False)
class FilterTable:
    """All F filters that a string can have, and sums over patterns of their probabilities R = P(pattern | filter), (2**k, F).

    filters       : (F,) ascending, 0 ("no value") first
    probabilities : (F,) that a random string has each; 0 for "no value"
    """

    filters: NDArray[np.int64]
    probabilities: Floats
    _mixtures: BitProductSums
    _scores: tuple[BitProductSums, ...]
    _information: BitProductSums
    _pairs: Indices

    @classmethod
    def from_params(cls, params: Params) -> FilterTable:
        """Enumerate the filters of the hash scheme.

        >>> params = Params(num_bits=8, num_hashes=2, num_cohorts=1, prob_p=0.25, prob_q=0.75, prob_f=0)
        >>> table = FilterTable.from_params(params)
        >>> len(table.filters), round(float(table.probabilities[1]), 6)  # no value, and 28 pairs
        (29, 0.035714)
        >>> round(float(table.mixture(np.eye(29)[0])[0]), 6) == round(0.75**8, 6)  # no value, no bit reported
        True
        """
        k, h, p, q = params.num_bits, params.num_hashes, params.mechanism.p_star, params.mechanism.q_star
        likely = filter_probabilities(params)
        filters = np.array([0, *sorted(likely)], np.int64)
        unset, set_ = np.array([1 - p, p]), np.array([1 - q, q])
        information = BitProductSums.of_functions(np.array([unset**2, unset * set_, set_**2]), k, 2 * h)
        ternary = (filters[:, None] >> np.arange(k) & 1) @ 3 ** np.arange(k)
        return cls(
            filters,
            np.array([likely.get(int(each), 0.0) for each in filters]),
            BitProductSums.of_functions(np.column_stack([unset, set_]), k, k),
            tuple(BitProductSums.of_functions(np.array([unset, set_]) ** power, k, h) for power in range(1, 5)),
            information,
            information.indices(ternary[:, None] + ternary),
        )

    def mixture(self, theta: Floats) -> Floats:
        """R theta, (2**k,): probabilities of the patterns where filters have shares theta (F,)."""
        shares = np.zeros(len(self._mixtures.digits))
        shares[self.filters] = theta
        return self._mixtures(shares)

    def score(self, weights: Floats, power: int = 1) -> Floats:
        """R' w, (F,), of weights (2**k,); power : 1 to 4, of each probability."""
        sums = self._scores[power - 1]
        return np.asarray(sums(weights)[sums.indices(self.filters)])

    def information(self, weights: Floats) -> Floats:
        """R' diag(w) R, (F, F), of weights (2**k,)."""
        return np.asarray(self._information(weights)[self._pairs])

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


def whiten_scores(
    counts: PatternCounts, table: FilterTable, expected: Floats, repetition: Repetition = ONCE
) -> Observations:
    """Whitened efficient score of each cohort's counts.

        I_c = n_c R' diag(1/pi_c) R        y_c = I_c**-1/2 R' diag(1/pi_c) counts_c        A_c = I_c**1/2        pi_c = R theta_c

    Repeated reports of a client add E_c to the covariance of y_c (`pattern_repetition.py`): L^-1 y_c and L^-1 A_c, L L' = 1 + E_c.

    expected : (m, F) theta_c at which pi_c is taken, with positive sums; efficient where it is the true one
    """
    params, responses, features, pi = counts.metric.params, [], [], None
    for cohort, theta, before in zip(counts.counts, expected, [None, *expected[:-1]], strict=True):
        if pi is None or not np.array_equal(theta, before):
            pi = np.maximum(table.mixture(theta), _SMALLEST)
            information = table.information(1 / pi)
            of_one_report, vectors = np.linalg.eigh(information)
            if repetition != ONCE:
                repeated = repeated_score_covariance(table.filters, theta, pi, information, params, repetition)
        values = cohort.sum() * of_one_report
        known = values > _SMALLEST * max(values[-1], _SMALLEST)
        root = np.sqrt(values[known])
        response, feature = (vectors[:, known].T @ table.score(cohort / pi)) / root, root[:, None] * vectors[:, known].T
        if repetition != ONCE:
            whitener = vectors[:, known] * (np.sqrt(cohort.sum()) / root)
            lower = np.linalg.cholesky(np.eye(len(root)) + whitener.T @ repeated @ whitener)
            response, feature = np.linalg.solve(lower, response), np.linalg.solve(lower, feature)
        responses.append(response)
        features.append(feature)
    return Observations(tuple(responses), tuple(features))
