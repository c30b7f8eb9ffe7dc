"""Distribution of the bits of a random string: the model of every string that is not in the candidate list.

In each cohort, independently, a hash scheme sets these bits:

    murmur3-v1 : h of the k bits, every set with probability 1 / C(k, h)
    google-md5 : bit (byte modulo k) for each of h uniform bytes; equal bits count once
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from hubbub.metrics.params import Params
from hubbub.summary import BitCounts
from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.model.debias import bit_shares

_MAX_SETS = 2_500


def md5_bit_probabilities(num_bits: int) -> Floats:
    """Probability that one hash of google-md5 hits each bit: the share of the 256 bytes that are i modulo k, (k,).

    >>> md5_bit_probabilities(3).tolist() == [86 / 256, 85 / 256, 85 / 256]
    True
    """
    return np.bincount(np.arange(256) % num_bits, minlength=num_bits) / 256


@dataclass(frozen=True, eq=False)
class RandomString:
    """The bits of a string that hashes anywhere: what stands for every string that is on no list.

    mean   : (k,)   w = E b
    second : (k, k) W = E b b'
    """

    mean: Floats
    second: Floats

    @property
    def covariance(self) -> Floats:
        """V = W - w w'."""
        return self.second - np.outer(self.mean, self.mean)

    def share_of_all(self, counts: BitCounts) -> float:
        """Return the share of the reports that have a value, were every value such a string: what their ones add up to."""
        used = counts.reports > 0
        ones = bit_shares(counts)[used].sum(axis=1)
        return float(np.average(ones, weights=counts.reports[used]) / self.mean.sum())

    @classmethod
    def of(cls, params: Params) -> RandomString:
        """Return the moments under the hash scheme.

            murmur3-v1 : w_i = h/k                   W_ij = h (h-1) / (k (k-1))
            google-md5 : w_i = 1 - (1-a_i)**h        W_ij = 1 - (1-a_i)**h - (1-a_j)**h + (1-a_i-a_j)**h
                         a_i = the probability that one hash hits bit i (`md5_bit_probabilities`)
            W_ii = w_i in both

        >>> params = Params(num_bits=8, num_hashes=2, num_cohorts=1, prob_p=0.25, prob_q=0.75, prob_f=0)
        >>> RandomString.of(params).second[0, :2].round(4).tolist()  # 2/8, and 2/56
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
    """Return how likely each filter is for a string that hashes anywhere."""
    k, h = params.num_bits, params.num_hashes
    if params.hash_scheme == "google-md5":
        hit = md5_bit_probabilities(k)
        likely = {0: 1.0}
        for _ in range(h):
            more: dict[int, float] = {}
            for bits, chance in likely.items():
                for bit in range(k):
                    more[bits | 1 << bit] = more.get(bits | 1 << bit, 0.0) + chance * float(hit[bit])
            likely = more
        return likely
    subsets = {0}
    for _ in range(h):
        subsets = {bits | 1 << bit for bits in subsets for bit in range(k) if not bits >> bit & 1}
    return dict.fromkeys(subsets, 1 / len(subsets))


def distinct_bit_probabilities(params: Params) -> list[float]:
    """Probability that a random string sets 1, 2, .., h distinct bits.

        google-md5 : P_i(d) = P_{i-1}(d) d / k + P_{i-1}(d - 1) (k - d + 1) / k after i hashes      murmur3-v1 : always h

    Where k does not divide 256, google-md5's slight preference for low bits is left out.
    """
    k, h = params.num_bits, params.num_hashes
    if params.hash_scheme != "google-md5":
        return [0.0] * (h - 1) + [1.0]
    distinct = [0.0] * h
    distinct[0] = 1.0
    for _ in range(h - 1):
        distinct = [distinct[d] * (d + 1) / k + (distinct[d - 1] * (k - d) / k if d else 0) for d in range(h)]
    return distinct


def random_places(params: Params, size: int, rng: np.random.Generator) -> Indices:
    """Draw the bits of strings that hash anywhere: (size, h), coincident ones replaced by k."""
    k, h = params.num_bits, params.num_hashes
    if params.hash_scheme != "google-md5":
        return np.argsort(rng.random((size, k)), axis=1)[:, :h]
    places = np.sort(rng.integers(256, size=(size, h)) % k, axis=1).astype(np.intp)
    places[:, 1:][places[:, 1:] == places[:, :-1]] = k
    return places


@dataclass(frozen=True, eq=False)
class RandomPlaces:
    """What a string that hashes anywhere takes in a cohort: one filter, or h bits.

    sets    : (n, h) places, each set as likely as `chances` says      chances : (n,); None: all alike
    same    : how often it has a given candidate's very set
    """

    sets: Indices
    chances: Floats | None
    same: float

    @classmethod
    def of_filters(cls, chances: Floats) -> RandomPlaces:
        """Return one of so many filters."""
        likeliest = float(chances.max())
        return cls(np.arange(len(chances))[:, None], chances, likeliest)

    @classmethod
    def of_bits(cls, params: Params) -> RandomPlaces:
        """Return all sets of h of k bits, or so many drawn at random as are enough."""
        k, h = params.num_bits, params.num_hashes
        number = math.comb(k, h)
        if number <= _MAX_SETS:
            sets = np.array(list(combinations(range(k), h)), np.intp)
        else:
            sets = np.argsort(np.random.default_rng(0).random((_MAX_SETS, k)), axis=1)[:, :h]
        return cls(sets, None, 1 / number)

    def alike(self, cohorts: int) -> float:
        """Return how often it has a candidate's places in so many cohorts."""
        return float(self.same**cohorts)

    def scores(self, places: Floats) -> Floats:
        """Return what each set scores, (n,), from what each place does."""
        return np.asarray(places[self.sets].sum(axis=1))
