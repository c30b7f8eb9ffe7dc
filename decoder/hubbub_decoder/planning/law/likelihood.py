"""Variance of a candidate's share from the full likelihood of reports: pattern counts (k <= 16), and retained reports.

A report is a candidate's (v), another string's (u) or has no value (0). With r_u(s) = P_u(s) / P_0(s) and f = x r_v + sum_u x_u r_u + z, the
information about (v, a string on average, no value) is that of the scores w = r / f, averaged over the hashing of the other strings:

    I = E w w' = E_0 r r' E[1/f]          Cov sum_t w_t = T (I + E),  E = (R - 1) E_B h(B) h(B)' + (T - R) E_u h(u) h(u)'
    Var x = (I^-1 (I + E) I^-1)_vv / (N T) - x / N          numbers of clients are random in I, so x / N leaves the reporters'

r_u depends on the set bits among the h of u. Given a report with n ones they are hypergeometric, independently for each u, so

    E[1/f | n, ones of v] = integral over z > 0 of exp(-z (x r_v + z_0)) prod_u E[exp(-z x_u r_u) | n] dz

Frequent strings make f uneven, which tells the reports of other strings from theirs. h is the expected score given the permanent response B,
and given the client's string u. By symmetry B is two numbers, and u the number of bits that it shares with v. (In E, 1/f has its mean.)

Other strings that share bits with v are noise, t V. Scores of all strings commute with the permutations of the bits, so I and E have one
eigenvalue for each i = 0 .. h ("Johnson scheme", Delsarte 1973). With mult_i = C(k, i) - C(k, i - 1) and F = C(k, h) strings,

    1 / Var = m sum_{i >= 1} mult_i / F / (m (1 + e_i) / (N T l_i) + t / F)          l_i, l_i e_i eigenvalues of I, E

at x = 0 (docs/explanation/mathematics.md, sections 7, 15 and 18).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import comb

import numpy as np
from numpy.typing import NDArray
from scipy import special

from hubbub_decoder.array_types import Floats
from hubbub_decoder.model.repetition import Repetition
from hubbub_decoder.planning.law.chain import Chain
from hubbub_decoder.planning.law.collisions import Shares, least_variance

_MIN_RATIO_PROBABILITY = 1e-12  # of p* and 1 - q*, as in `estimators/reports/likelihood_ratios.py`
_MIN_PROBABILITY = 1e-200  # of a report; rarer ones tell nothing, and their ratios overflow
_MIN_NO_VALUE = 1e-3  # as in the weights of `estimators/counts.py`
_MIN_LOG = -700.0
_SHARE_NODES = (0.0, 0.01, 0.04, 0.1, 0.2, 0.4, 1.0)
_MIN_VARIANCE = 1e-9  # N Var of one bit; without noise that of a string which all have is 0, less a rounding error
_STEP = 0.5  # of ln z; the trapezoidal rule for 1/f has a relative error of 2e-8
_LOG_ENDS = (-12.0, 3.0)  # of ln z f, where the integrand is below 1e-5 of its sum


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
    """Law of one mechanism and one population.

    shares   : of all strings, of which the scores know the share; the rest has no value
    weighted : whether cohorts are weighted by the covariance of all reports of a client, as with patterns, or by that of one report
    """

    chain: Chain
    num_bits: int
    num_hashes: int
    repetition: Repetition
    shares: Shares
    weighted: bool = True

    def variance(self, share: float) -> float:
        """N Var of a share x among the reporters, where all other shares are known; a listed string is not one of the others."""
        return sum(self._parts(share)) - share

    def _parts(self, share: float) -> tuple[float, float]:
        """N Var of a share in a population: I^-1 / T, and I^-1 E I^-1 / T."""
        shares, scores = self._scores(share)
        moments = np.einsum("ads,bds->ab", scores, self._reported.components)  # E(w | v), a column of each component
        information = moments[:, :3]
        t, r = self.repetition.per_client, self.repetition.per_response
        extra = np.zeros((3, 3))
        if t > 1:
            expected, responses = self._expected(scores), np.tensordot(shares, self._responses.components[:3], 1)
            extra = (r - 1) * np.einsum("axy,bxy,xy->ab", expected, expected, responses, optimize=True)
            clients = np.array([shares[0], 0, shares[2], *(shares[1] * self._reported.overlaps)])
            extra += (t - r) * (moments * clients) @ moments.T
        inverse = np.linalg.pinv(information, rcond=1e-12, hermitian=True)
        return float((inverse @ information @ inverse)[0, 0] / t), float((inverse @ extra @ inverse)[0, 0] / t)

    @cached_property
    def by_share(self) -> tuple[Floats, Floats]:
        """Shares (n,), and `variance` of each, between which it is nearly linear."""
        nodes, parts = self._parts_by_share
        return nodes, parts.sum(axis=1) - nodes

    @cached_property
    def unloaded_bit(self) -> tuple[Floats, Floats, float]:
        """Shares x (n,); N Var of one bit without a load at each, alpha (n,); its slope beta.

        A bit has the variance v = h N Var + x, alpha + beta L. beta is the slope of v by the candidate's own share, from 0 to the largest
        one, and alpha the number for which 1 / E 1/v is the law of one report.
        E is linear in x + L, so what it adds to v is e_0 + e_1 (x + L), and h/k of all other shares is the mean of L.
        """
        (nodes, parts), h, t = self._parts_by_share, self.num_hashes, self.repetition.per_client
        chance = h / self.num_bits
        of_report = h * parts[:, 0] - (h - 1) * nodes / t
        of_repetition = h * parts[:, 1] - (h - 1) * nodes * (1 - 1 / t)
        if not self.weighted:
            of_report, of_repetition = of_report + of_repetition, np.zeros_like(nodes)
        largest = self.shares.values[-1]
        slope, added = (
            max(float(np.interp(largest, nodes, curve) - curve[0]) / largest, 0.0)
            for curve in (of_report, of_repetition)
        )
        alpha = least_variance(self.shares, nodes, np.maximum(of_report, _MIN_VARIANCE), slope, chance)
        unloaded = max(float(of_repetition[0]) - added * chance * self.shares.total, 0.0)
        return nodes, alpha + unloaded + added * nodes, slope + added

    @cached_property
    def _parts_by_share(self) -> tuple[Floats, Floats]:
        nodes = np.union1d(_SHARE_NODES, self.shares.values)
        return nodes, np.array([self._parts(float(node)) for node in nodes])

    def absent_variance(self, num_cohorts: int, num_clients: float, unknown: Floats | float) -> Floats:
        """Variance of the share of a string without reports; unknown : t, of any shape."""
        k, h = self.num_bits, self.num_hashes
        noise, sizes = self._eigenvalues
        spread = num_cohorts * noise / num_clients + np.expand_dims(unknown, -1) / comb(k, h)
        return np.asarray(1 / (num_cohorts * np.sum(sizes / comb(k, h) / spread, axis=-1)))

    @cached_property
    def _eigenvalues(self) -> tuple[Floats, Floats]:
        """Variance (1 + e_i) / (T l_i) of a client, and number of dimensions, of each eigenspace i >= 1, (h,)."""
        k, h, t, r = self.num_bits, self.num_hashes, self.repetition.per_client, self.repetition.per_response
        shares, scores = self._scores(0.0)
        density = np.divide(self._reported.components[2], scores[2], out=np.zeros_like(scores[2]), where=scores[2] > 0)
        information = johnson_eigenvalues(self._products(scores[0], density), k)[1:]
        extra = np.zeros(h)
        if t > 1:
            responses = np.tensordot(shares, self._responses.components[:3], 1)
            extra = (r - 1) * johnson_eigenvalues(self._products(self._expected(scores)[0], responses), k)[1:]
            extra += (t - r) * information**2 * shares[1] / comb(k, h)
        sizes = np.array([comb(k, i) - comb(k, i - 1) for i in range(1, h + 1)], float)
        return (information + extra) / (t * information**2), sizes

    def _scores(self, share: float) -> tuple[Floats, Floats]:
        """Shares (3,) of own reports, others and no value; scores P / f of the three, (3, h + 1, k - h + 1), with the mean of 1/f."""
        group, is_listed = (column[0] for column in self.shares.groups_of(np.array([share])))
        others = self.shares.total - (self.shares.values[group] if is_listed else 0.0)
        scale = max(min(1.0, (1 - share) / others), _MIN_NO_VALUE) if others > 0 else 1.0
        no_value = max(1 - share - scale * others, _MIN_NO_VALUE)
        z, of_string, all_strings = self._transforms
        log = all_strings - of_string[:, :, group] if is_listed else all_strings
        k, h = self.num_bits, self.num_hashes
        rest = np.exp(log - z * no_value / scale) * z * _STEP
        inverse = rest @ np.exp(-z[:, None] * self._ratios * share / scale) / scale  # E(1/f | n, c), (k + 1, h + 1)
        own, apart = np.indices((h + 1, k - h + 1))
        shares = np.array([share, scale * others, no_value])
        total = shares.sum()
        none = self._reported.components[2]
        known = none > _MIN_PROBABILITY
        of_ratio = np.divide(self._reported.components[:3], none, out=np.zeros((3, *none.shape)), where=known)
        return shares / total, of_ratio * inverse[own + apart, own] * total

    @cached_property
    def _ratios(self) -> Floats:
        """Likelihood ratio of a string with c = 0 .. h of its bits set, relative to no value, (h + 1,)."""
        set_bits = np.arange(self.num_hashes + 1)
        p, q = self._stars
        return np.asarray((q / p) ** set_bits * ((1 - q) / (1 - p)) ** (self.num_hashes - set_bits))

    @cached_property
    def _transforms(self) -> tuple[Floats, Floats, Floats]:
        """Nodes z; ln E(exp(-z x r) | n ones) of a string of each group, (k + 1, nodes, groups); its sum over all strings."""
        k, h, ratios = self.num_bits, self.num_hashes, self._ratios
        low, high = (end - np.log(ratio) for end, ratio in zip(_LOG_ENDS, (ratios[-1], ratios[0]), strict=True))
        z = np.exp(np.arange(low, high + _STEP, _STEP))
        n, c = np.arange(k + 1)[:, None], np.arange(h + 1)
        possible = (c <= n) & (h - c <= k - n)
        with np.errstate(invalid="ignore"):
            log = _log_choose(n, c) + _log_choose(k - n, h - c) - _log_choose(k, np.array(h))
        chance = np.where(possible, np.exp(np.where(possible, log, 0)), 0)
        decay = np.expm1(-z[:, None] * self.shares.values * ratios[:, None, None])
        of_string = np.tensordot(chance, decay, 1)
        with np.errstate(divide="ignore"):
            of_string = np.maximum(np.log1p(np.maximum(of_string, -1)), _MIN_LOG)
        return z, of_string, of_string @ self.shares.numbers

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

    @property
    def _stars(self) -> tuple[float, float]:
        """p* and q*, neither 0 nor 1."""
        p, q = np.clip(
            [float(self.chain.p_star), float(self.chain.q_star)], _MIN_RATIO_PROBABILITY, 1 - _MIN_RATIO_PROBABILITY
        )
        return float(p), float(q)

    @cached_property
    def _reported(self) -> TwoCounts:
        return TwoCounts(self.num_bits, self.num_hashes, *self._stars)

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


def _log_choose(n: int | NDArray[np.int64], chosen: NDArray[np.int64]) -> Floats:
    return np.asarray(special.gammaln(n + 1) - special.gammaln(chosen + 1) - special.gammaln(n - chosen + 1))
