"""Likelihood of pattern counts: the filters of strings, and the whitened score of the shares of each filter.

A string's *filter* in a cohort is the set of its true bits, as an integer; filter 0 is "no value". Only F filters exist (37 for k = 8,
h = 2, google-md5), so the 2**k counts of a cohort carry F numbers about shares. The (2**k, F) table R = P(pattern | filter) is never
built: bits are independent given the filter, so every sum over patterns is taken bit by bit (`BitProductSums`).

docs/explanation/mathematics.md, equations (7.1) to (7.3); decision 71.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import comb

import numpy as np
from numpy.typing import NDArray

from hubbub.metrics.params import Params
from hubbub.summary import PatternCounts
from hubbub.summary.pattern_counts import MAX_PATTERN_BITS
from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.observations import Observations
from hubbub_decoder.model.random_string import filter_probabilities
from hubbub_decoder.model.repetition import ONCE, Repetition

_BITS_AT_ONCE = 4


@dataclass(frozen=True, eq=False)
class BitProductSums:
    """Sums over all bit patterns of products over bits, for all digits t with a sum of at most a given degree.

    For functions f_0 .. f_r of one bit and a number v_s for each pattern s of k bits,

        S(t) = sum_s v_s prod_i f_(t_i)(s_i)        t : one digit 0 .. r for each bit

    The sum factors: bits are summed out four at a time, and of the digits so far only those with a sum of at most a given degree are kept.
    With non-negative functions and numbers nothing cancels, so S is exact to rounding also where probabilities are near 0 or 1.
    This is the fast Walsh-Hadamard transform for other functions than 1 and +-1. Source: Yates 1937, "The design and analysis of factorial
    experiments".

    digits : (n,) ascending, t as a number to base r + 1, that of bit 0 last
    steps  : matrix (products, 2**bits) of some bits' products of functions, and the rows to keep of all products so far
    """

    digits: NDArray[np.int64]
    steps: tuple[tuple[Floats, Indices], ...]

    @classmethod
    def of_functions(cls, functions: Floats, num_bits: int, degree: int) -> BitProductSums:
        """Sums for functions (r + 1, 2), row f, column the bit's value.

        >>> sums = BitProductSums.of_functions(np.array([[1.0, 1.0], [0.0, 1.0]]), 2, degree=1)
        >>> sums.digits.tolist(), sums(np.array([1.0, 10.0, 100.0, 1000.0])).tolist()  # all, with bit 0, with bit 1
        ([0, 1, 2], [1111.0, 1010.0, 1100.0])
        """
        base, digits, degrees = len(functions), np.zeros(1, np.int64), np.zeros(1, np.int64)
        steps = []
        for start in range(0, num_bits, _BITS_AT_ONCE):
            width = min(_BITS_AT_ONCE, num_bits - start)
            chosen = np.array(list(product(range(base), repeat=width)))
            total = (degrees[:, None] + chosen.sum(axis=1)).ravel()
            kept = np.flatnonzero(total <= degree)
            steps.append((_kronecker_power(functions, width), kept))
            digits = (digits[:, None] * base**width + np.arange(base**width)).ravel()[kept]
            degrees = total[kept]
        return cls(digits, tuple(steps))

    def __call__(self, values: Floats) -> Floats:
        """S (n,) of v (2**k,); bit i of the index is bit i of the pattern."""
        sums = values[None]
        for matrix, kept in self.steps:
            patterns = sums.reshape(len(sums), matrix.shape[1], -1)
            sums = (matrix @ patterns).reshape(len(sums) * len(matrix), -1)[kept]
        return np.asarray(sums[:, 0])

    def indices(self, digits: NDArray[np.int64]) -> Indices:
        """Positions in `digits` of some of them."""
        return np.searchsorted(self.digits, digits)


def repeated_score_covariance(
    filters: NDArray[np.int64], theta: Floats, pi: Floats, information: Floats, params: Params, repetition: Repetition
) -> Floats:
    """Covariance (F, F) that a report adds to its own information: (R_e - 1) E_B h h' + (T - R_e) E_v h h'.

    With R = P(pattern | filter), pi = R theta and the score w(s) = R_s / pi_s of a report s (`pattern_likelihood.py`), T reports of one client
    and value add to the counts' covariance (`repetition.py`):

        Cov sum_t w(r_t) = T (I + (R_e - 1) E_B h h' + (T - R_e) E_v h h')        second moments: the number of clients is random

        I       = E w w' = R' diag(1/pi) R                   h(v) = E(w | v), row v of I, so E_v h h' = I diag(theta) I
        h(B)    = E(w | B) = sum_s P(s | B) w(s)             B ~ P(B) = sum_v theta_v P(B | v), over all 2**k permanent responses
        T, R_e  reports of a client, and of a permanent response

    The bits of a response are independent given the filter, so sums over 2**k patterns are taken over two halves of the bits in turn.
    docs/explanation/mathematics.md, equation (15.5).

    filters     : (F,) bits of each filter as an integer      theta : (F,) their shares
    pi          : (2**k,) probabilities of the patterns        information : (F, F) I, of one report
    """
    k, mechanism = params.num_bits, params.mechanism
    values = np.zeros((1 << k, 1))
    values[filters, 0] = theta
    responses = _apply(_channel(mechanism.permanent_p, mechanism.permanent_q, k), values)
    scores = _columns(_channel(mechanism.p_star, mechanism.q_star, k), filters) / pi[:, None]
    high, low = _channel(mechanism.prob_p, mechanism.prob_q, k)
    expected = _apply((high.T, low.T), scores)
    of_response = (expected * responses).T @ expected
    of_client = (information * theta) @ information
    apart = repetition.per_client - repetition.per_response
    return np.asarray((repetition.per_response - 1) * of_response + apart * of_client)


def _channel(from_zero: float, from_one: float, num_bits: int) -> tuple[Floats, Floats]:
    """P(pattern out | pattern in) of the high and the low half of the bits, each (2**b, 2**b), bit by bit independent."""
    bit = np.array([[1 - from_zero, 1 - from_one], [from_zero, from_one]])
    low = num_bits // 2
    return _kronecker_power(bit, num_bits - low), _kronecker_power(bit, low)


def _kronecker_power(matrix: Floats, exponent: int) -> Floats:
    power: Floats = np.ones((1, 1))
    for _ in range(exponent):
        power = np.asarray(np.kron(power, matrix), np.float64)
    return power


def _apply(channel: tuple[Floats, Floats], columns: Floats) -> Floats:
    """Product of the whole channel (2**k, 2**k) with columns (2**k, n)."""
    high, low = channel
    halves = columns.reshape(len(high), len(low), -1)
    return np.tensordot(high, np.tensordot(low, halves, (1, 1)), (1, 1)).reshape(columns.shape)


def _columns(channel: tuple[Floats, Floats], patterns: NDArray[np.int64]) -> Floats:
    """Columns of the whole channel at some patterns, (2**k, n)."""
    high, low = channel
    product = high[:, None, patterns // len(low)] * low[None, :, patterns % len(low)]
    return np.asarray(product.reshape(-1, len(patterns)))


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
            np.array([likely.get(filter_, 0.0) for filter_ in filters.tolist()]),
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
    return sum(comb(params.num_bits, size) for size in params.possible_ones)


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

    Repeated reports of a client add E_c to the covariance of y_c (`repeated_score_covariance`): L^-1 y_c and L^-1 A_c, L L' = 1 + E_c.

    expected : (m, F) theta_c at which pi_c is taken, with positive sums; efficient where it is the true one
    """
    params, responses, features, transforms, pi = counts.metric.params, [], [], [], None
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
        transform, feature = vectors[:, known].T / root[:, None], root[:, None] * vectors[:, known].T
        if repetition != ONCE:
            whitener = vectors[:, known] * (np.sqrt(cohort.sum()) / root)
            lower = np.linalg.cholesky(np.eye(len(root)) + whitener.T @ repeated @ whitener)
            transform, feature = np.linalg.solve(lower, transform), np.linalg.solve(lower, feature)
        responses.append(transform @ table.score(cohort / pi))
        features.append(feature)
        transforms.append(transform)
    return Observations(tuple(responses), tuple(features), tuple(transforms))
