"""Variance of a candidate's share from the full likelihood of reports: pattern counts (k <= 16), and retained reports.

A report is a candidate's (v), another string's (o) or has no value (0). By symmetry its likelihood depends on two numbers: the ones among
the h bits of v, and among the other k - h. With P the probability of both, f = x P_v + s P_o + z P_0 and the score w = (P_v, P_o, P_0) / f,

    I = E w w'          Cov sum_t w_t = T (I + E),  E = (R - 1) E_B h(B) h(B)' + (T - R) E_u h(u) h(u)'
    Var x = (I^-1 (I + E) I^-1)_vv / (N T) - x / N          numbers of clients are random in I, so x / N leaves the reporters'

h is the expected score given the permanent response B, and given the client's string u. By symmetry B is two numbers as well, and u the
number of bits that it shares with v (docs/mathematics.md, sections 7 and 15).

Other strings that share bits with v are noise, t V. Scores of all strings commute with the permutations of the bits, so I and E have one
eigenvalue for each i = 0 .. h ("Johnson scheme", Delsarte 1973). With mult_i = C(k, i) - C(k, i - 1) and F = C(k, h) strings,

    1 / Var = m sum_{i >= 1} mult_i / F / (m (1 + e_i) / (N T l_i) + t / F)          l_i, l_i e_i eigenvalues of I, E

at x = 0, from which a share x adds what it adds above.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import comb

import numpy as np
from numpy.typing import NDArray
from scipy import special

from hubbub_decoder.array_types import Floats
from hubbub_decoder.model.repetition import Repetition
from hubbub_decoder.planning.law.chain import Chain

_RANDOM, _APART = [0, 1, 2], [0, 3, 2]  # components: the candidate, random strings or those without its bits, no value
_MIN_PROBABILITY = 1e-200  # of a report; rarer ones tell nothing, and their ratios overflow
_MIN_NO_VALUE = 1e-3  # as in the weights of `estimators/pattern_counts.py`


def ones_given(num_ones: NDArray[np.int64], size: int, from_zero: float, from_one: float) -> Floats:
    """Distribution of the number of ones among `size` bits after noise, given those before, (len(num_ones), size + 1).

    By the characteristic function at the roots of unity.
    """
    roots = np.exp(2j * np.pi * np.arange(size + 1) / (size + 1))
    set_, unset = 1 - from_one + from_one * roots, 1 - from_zero + from_zero * roots
    values = set_ ** num_ones[:, None] * unset ** (size - num_ones[:, None])
    return np.asarray(np.maximum(np.fft.fft(values, axis=1).real / (size + 1), 0))


@dataclass(frozen=True, eq=False)
class TwoCounts:
    """Distributions of the ones among the h bits of a string and among the others, after independent noise of each bit."""

    num_bits: int
    num_hashes: int
    from_zero: float
    from_one: float

    @cached_property
    def overlaps(self) -> Floats:
        """Probability that a random string shares 0 .. h bits with the string, (h + 1,)."""
        k, h = self.num_bits, self.num_hashes
        return np.array([comb(h, c) * comb(k - h, h - c) / comb(k, h) for c in range(h + 1)])

    @cached_property
    def components(self) -> Floats:
        """Distributions of reports of the string, of a random string, of no value, and of strings that share 0 .. h of its bits.

        (4 + h, h + 1, k - h + 1)
        """
        k, h = self.num_bits, self.num_hashes
        own = ones_given(np.arange(h + 1), h, self.from_zero, self.from_one)
        rest = ones_given(np.arange(min(h, k - h) + 1), k - h, self.from_zero, self.from_one)
        of_overlaps = np.array([np.outer(own[c], rest[min(h - c, k - h)]) for c in range(h + 1)])
        random = np.tensordot(self.overlaps, of_overlaps, 1)
        return np.array([of_overlaps[h], random, np.outer(own[0], rest[0]), *of_overlaps])


@dataclass(frozen=True, eq=False)
class LikelihoodLaw:
    """Law of one mechanism. Shares are x of the candidate and s of the other strings; the rest has no value."""

    chain: Chain
    num_bits: int
    num_hashes: int
    repetition: Repetition

    def variance(self, share: float, others: float, *, apart: bool = False) -> float:
        """N Var of a share x among the reporters, where all other shares are known; others : s.

        apart : whether the others share no bit with the candidate; otherwise they share as many as random strings
        """
        kinds = _APART if apart else _RANDOM
        shares, _, scores = self._scores(share, others, kinds)
        moments = np.einsum("ads,bds->ab", scores, self._reported.components)  # E(w | v), a column of each component
        information = moments[:, kinds]
        t, r = self.repetition.per_client, self.repetition.per_response
        extra = np.zeros((3, 3))
        if t > 1:
            expected, responses = self._expected(scores), np.tensordot(shares, self._responses.components[kinds], 1)
            extra = (r - 1) * np.einsum("axy,bxy,xy->ab", expected, expected, responses, optimize=True)
            overlaps = np.eye(1, self.num_hashes + 1)[0] if apart else self._reported.overlaps
            clients = np.array([shares[0], 0, shares[2], *(shares[1] * overlaps)])
            extra += (t - r) * (moments * clients) @ moments.T
        inverse = np.linalg.pinv(information, rcond=1e-12, hermitian=True)
        return float((inverse @ (information + extra) @ inverse)[0, 0] / t - share)

    def absent_variance(self, others: float, num_cohorts: int, num_clients: float, unknown: Floats | float) -> Floats:
        """Variance of the share of a string without reports; others : s, unknown : t, of any shape."""
        k, h = self.num_bits, self.num_hashes
        noise, sizes = self._eigenvalues(others)
        spread = num_cohorts * noise / num_clients + np.expand_dims(unknown, -1) / comb(k, h)
        return np.asarray(1 / (num_cohorts * np.sum(sizes / comb(k, h) / spread, axis=-1)))

    @lru_cache(maxsize=4)  # noqa: B019, the law is as short-lived as its cache
    def _eigenvalues(self, others: float) -> tuple[Floats, Floats]:
        """Variance (1 + e_i) / (T l_i) of a client, and number of dimensions, of each eigenspace i >= 1, (h,)."""
        k, h, t, r = self.num_bits, self.num_hashes, self.repetition.per_client, self.repetition.per_response
        shares, mixture, scores = self._scores(0.0, others)
        information = johnson_eigenvalues(self._products(scores[0], mixture), k)[1:]
        extra = np.zeros(h)
        if t > 1:
            responses = np.tensordot(shares, self._responses.components[:3], 1)
            extra = (r - 1) * johnson_eigenvalues(self._products(self._expected(scores)[0], responses), k)[1:]
            extra += (t - r) * information**2 * shares[1] / comb(k, h)
        sizes = np.array([comb(k, i) - comb(k, i - 1) for i in range(1, h + 1)], float)
        return (information + extra) / (t * information**2), sizes

    def _scores(self, share: float, others: float, kinds: Sequence[int] = _RANDOM) -> tuple[Floats, Floats, Floats]:
        """Shares (3,) of own reports, others and no value; distribution f of all reports, and scores P / f of the three."""
        shares = np.array([share, others, max(1 - share - others, _MIN_NO_VALUE)])
        shares /= shares.sum()
        components = self._reported.components[kinds]
        mixture = np.tensordot(shares, components, 1)
        scores = np.divide(components, mixture, out=np.zeros_like(components), where=mixture > _MIN_PROBABILITY)
        return shares, mixture, scores

    def _expected(self, scores: Floats) -> Floats:
        """E(w | B) by the ones of B among the own bits and among the others, (3, h + 1, k - h + 1)."""
        own, rest = self._given_response
        return np.asarray(np.einsum("xd,cds,ys->cxy", own, scores, rest, optimize=True))

    def _products(self, numbers: Floats, density: Floats) -> Floats:
        """E of the product of the numbers of two strings that share 0 .. h bits, (h + 1,).

        numbers : of a string, by the ones among its bits and among the others      density : of both counts in a report
        """
        k, h = self.num_bits, self.num_hashes
        own, rest = np.indices(density.shape)
        totals = np.bincount((own + rest).ravel(), density.ravel(), k + 1)
        products = np.zeros(h + 1)
        for shared in range(max(0, 2 * h - k), h + 1):
            apart, outside = h - shared, k - 2 * h + shared
            both, first, second, neither = np.ogrid[: shared + 1, : apart + 1, : apart + 1, : outside + 1]
            number = both + first + second + neither
            log = _log_choose(shared, both) + _log_choose(apart, first) + _log_choose(apart, second)
            chance = np.exp(log + _log_choose(outside, neither) - _log_choose(k, number)) * totals[number]
            products[shared] = np.sum(
                chance * numbers[both + first, second + neither] * numbers[both + second, first + neither]
            )
        return products

    @cached_property
    def _reported(self) -> TwoCounts:
        return TwoCounts(self.num_bits, self.num_hashes, float(self.chain.p_star), float(self.chain.q_star))

    @cached_property
    def _responses(self) -> TwoCounts:
        return TwoCounts(self.num_bits, self.num_hashes, float(self.chain.b), float(self.chain.a))

    @cached_property
    def _given_response(self) -> tuple[Floats, Floats]:
        k, h, p, q = self.num_bits, self.num_hashes, float(self.chain.p), float(self.chain.q)
        return ones_given(np.arange(h + 1), h, p, q), ones_given(np.arange(k - h + 1), k - h, p, q)


def johnson_eigenvalues(by_overlap: Floats, num_bits: int) -> Floats:
    """Eigenvalues of a matrix over all sets of h of k bits, of which an entry depends on the number of shared bits, (h + 1,).

        sum_j g_(h-j) sum_a (-1)**a C(i, a) C(h-i, j-a) C(k-h-i, j-a)          i = 0 .. h

    by_overlap : g (h + 1,), by the number of shared bits 0 .. h

    >>> johnson_eigenvalues(np.array([1.0, 5.0]), 4).tolist()  # 5 on the diagonal, 1 elsewhere
    [8.0, 4.0]
    """
    h = len(by_overlap) - 1
    values = [
        sum(
            by_overlap[h - j] * (-1) ** a * comb(i, a) * comb(h - i, j - a) * comb(num_bits - h - i, j - a)
            for j in range(h + 1)
            for a in range(j + 1)
        )
        for i in range(h + 1)
    ]
    return np.array(values)


def _log_choose(n: int, chosen: NDArray[np.int64]) -> Floats:
    return np.asarray(special.gammaln(n + 1) - special.gammaln(chosen + 1) - special.gammaln(n - chosen + 1))
