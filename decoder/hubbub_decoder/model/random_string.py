"""Distribution of the bits of a random string: the model of every string that is not in the candidate list.

In each cohort, independently, a hash scheme sets these bits of k:

    murmur3-v1 : h bits, every set with probability 1 / C(k, h)
    google-md5 : bit (byte modulo k) of each of h uniform bytes, or pairs of bytes above 256 bits; equal bits count once

Symbols: b (k,) the indicator of a random string's bits; w = E b; W = E b b'; V = W - w w'. docs/explanation/mathematics.md, sections 2, 3 and 7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from hubbub.metrics.kinds.strings import Md5Filter
from hubbub.metrics.params import Params
from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.random_state import seeded

_MAX_SETS = 2_500  # sets of h bits to enumerate; of more, so many are drawn


def md5_bit_probabilities(num_bits: int) -> Floats:
    """Probability that one hash of google-md5 hits each bit: the share of the hashes that are i modulo k, (k,).

    >>> md5_bit_probabilities(3).tolist() == [86 / 256, 85 / 256, 85 / 256]
    True
    """
    hashes = _md5_hashes(num_bits)
    return np.bincount(np.arange(hashes) % num_bits, minlength=num_bits) / hashes


def _md5_hashes(num_bits: int) -> int:
    """Return the number of different hashes of google-md5."""
    return int(1 << 8 * Md5Filter.bytes_per_hash(num_bits))


@dataclass(frozen=True, eq=False)
class RandomStringMoments:
    """First and second moments of the bits of a random string in one cohort.

    mean          : (k,)   w = E b
    second_moment : (k, k) W = E b b'
    """

    mean: Floats
    second_moment: Floats

    @cached_property
    def covariance(self) -> Floats:
        """V = W - w w', (k, k)."""
        return self.second_moment - np.outer(self.mean, self.mean)

    def trace_of_product(self, root: Floats) -> float:
        """tr(A V A') for A (r, k), in O(r k): bits of equal probability are exchangeable, so V is diagonal but for one number a pair of classes.

        V = diag(d) + Z B Z'        tr(A V A') = sum_i d_i |A_i|**2 + sum((Z'A'A Z) * B)        Z (k, c) classes of the bits, B (c, c)
        """
        k = len(self.mean)
        _, first, classes = np.unique(self.mean, return_index=True, return_inverse=True)
        last = k - 1 - np.unique(self.mean[::-1], return_index=True)[1]
        between = self.covariance[np.ix_(first, last)]
        own = self.covariance.diagonal() - between.diagonal()[classes]
        sums = root @ np.eye(len(first))[classes]
        return float(own @ np.einsum("ri,ri->i", root, root) + np.sum((sums.T @ sums) * between))

    @classmethod
    def from_params(cls, params: Params) -> RandomStringMoments:
        """Moments under the hash scheme.

            murmur3-v1 : w_i = h/k                   W_ij = h (h-1) / (k (k-1))
            google-md5 : w_i = 1 - (1-a_i)**h        W_ij = 1 - (1-a_i)**h - (1-a_j)**h + (1-a_i-a_j)**h
                         a = md5_bit_probabilities(k)
            W_ii = w_i in both

        >>> params = Params(num_bits=8, num_hashes=2, num_cohorts=1, prob_p=0.25, prob_q=0.75, prob_f=0)
        >>> RandomStringMoments.from_params(params).second_moment[0, :2].round(4).tolist()  # 2/8, and 2/56
        [0.25, 0.0357]
        """
        k, h = params.num_bits, params.num_hashes
        if params.hash_scheme == "google-md5":
            hit = md5_bit_probabilities(k)
            miss = (1 - hit) ** h
            mean = 1 - miss
            both_missed = np.maximum(1 - hit[:, None] - hit, 0) ** h
            second = 1 - miss[:, None] - miss + both_missed
        else:
            mean = np.full(k, h / k)
            second = np.full((k, k), h * (h - 1) / (k * (k - 1)))
        np.fill_diagonal(second, mean)
        return cls(mean, second)


def filter_probabilities(params: Params) -> dict[int, float]:
    """Probability of each filter, the set of a random string's bits as an integer."""
    k, h = params.num_bits, params.num_hashes
    if params.hash_scheme == "google-md5":
        hit = md5_bit_probabilities(k)
        probabilities = {0: 1.0}
        for _ in range(h):
            longer: dict[int, float] = {}
            for bits, probability in probabilities.items():
                for bit in range(k):
                    longer[bits | 1 << bit] = longer.get(bits | 1 << bit, 0.0) + probability * float(hit[bit])
            probabilities = longer
        return probabilities
    subsets = {0}
    for _ in range(h):
        subsets = {bits | 1 << bit for bits in subsets for bit in range(k) if not bits >> bit & 1}
    return dict.fromkeys(subsets, 1 / len(subsets))


def distinct_bit_probabilities(params: Params) -> list[float]:
    """Probabilities that a random string sets 1, 2, .., min(h, k) distinct bits.

        google-md5 : P_i(d) = P_{i-1}(d) d / k + P_{i-1}(d-1) (k-d+1) / k after i hashes      murmur3-v1 : P(h) = 1

    The slight preference of google-md5 for low bits, where k does not divide 256, is left out.
    """
    k, h = params.num_bits, params.num_hashes
    if params.hash_scheme != "google-md5":
        return [0.0] * (h - 1) + [1.0]
    most = min(h, k)
    distinct = [0.0] * most
    distinct[0] = 1.0
    for _ in range(h - 1):
        distinct = [distinct[d] * (d + 1) / k + (distinct[d - 1] * (k - d) / k if d else 0) for d in range(most)]
    return distinct


def probability_within(num_given: int, params: Params) -> float:
    """Probability that all bits of a random string are among so many given ones."""
    chances = enumerate(distinct_bit_probabilities(params), start=1)
    return sum(p * math.comb(num_given, d) / math.comb(params.num_bits, d) for d, p in chances if p)


def same_bits_probability(num_bits: int, num_hashes: int, cohorts: int) -> float:
    """Probability C(k, h)**-m that a random string has a given string's bits in each of m cohorts.

    >>> same_bits_probability(16, 1, 2)
    0.00390625
    """
    return float(math.comb(num_bits, num_hashes)) ** -cohorts


def draw_bit_positions(params: Params, size: int, rng: np.random.RandomState) -> Indices:
    """Draw the bits of random strings: (size, h) positions, each bit once; k fills the place of a repeated bit."""
    k, h = params.num_bits, params.num_hashes
    if params.hash_scheme != "google-md5":
        return np.argsort(rng.random((size, k)), axis=1)[:, :h]
    positions = np.sort(rng.randint(_md5_hashes(k), size=(size, h)) % k, axis=1).astype(np.intp)
    positions[:, 1:][positions[:, 1:] == positions[:, :-1]] = k
    return positions


@dataclass(frozen=True, eq=False)
class RandomFilters:
    """Filters (sets of positions) that a random string can have in one cohort.

    sets                  : (n, s) positions: one filter's index (s = 1), or h bits (s = h); the position k is no bit
    probabilities         : (n,) of each set; None: all equal
    identical_probability : that a random string has the same set as a given candidate, for the candidate for which it is largest
    """

    sets: Indices
    probabilities: Floats | None
    identical_probability: float

    @classmethod
    def from_probabilities(cls, probabilities: Floats) -> RandomFilters:
        """Filters by index, with these probabilities (n,)."""
        return cls(np.arange(len(probabilities))[:, None], probabilities, float(probabilities.max()))

    @classmethod
    def from_params(cls, params: Params) -> RandomFilters:
        """All sets of bits that a string can have; of more than 2,500 sets, 2,500 are drawn.

        murmur3-v1 : h bits        google-md5 : d <= h bits with probability P(d) / C(k, d) each
        """
        k, h = params.num_bits, params.num_hashes
        chances = {
            d: chance / math.comb(k, d)
            for d, chance in enumerate(distinct_bit_probabilities(params), start=1)
            if chance
        }
        identical = max(chances.values())
        if sum(math.comb(k, d) for d in chances) > _MAX_SETS:
            return cls(draw_bit_positions(params, _MAX_SETS, seeded(0)), None, identical)
        sets = [(*bits, *[k] * (h - d)) for d in chances for bits in combinations(range(k), d)]
        probabilities = np.repeat(list(chances.values()), [math.comb(k, d) for d in chances])
        return cls(np.array(sets, np.intp), probabilities if len(chances) > 1 else None, identical)

    def collision_probability(self, cohorts: int) -> float:
        """Probability that a random string has a given candidate's set in each of so many cohorts."""
        return float(self.identical_probability**cohorts)

    def scores(self, position_scores: Floats) -> Floats:
        """Score of each set, (n,): the sum of the scores of its positions."""
        return np.asarray(np.append(position_scores, 0.0)[self.sets].sum(axis=1))
