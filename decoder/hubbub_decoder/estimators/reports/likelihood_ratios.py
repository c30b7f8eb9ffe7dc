"""How much likelier each string makes a report than "no value" does.

Conventions: the M + 2 components of the mixture are the candidates (columns of the design), the average unlisted string, and "no
value"; z are their shares, which sum to one. r_v(s) = P(report s | v) / P(report s | no value) = prod over the bits i of v of
w_i, with w_i = q*/p* where bit i of s is set and (1-q*)/(1-p*) where it is not; r = 1 of no value. f = sum_v z_v r_v.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hubbub.metrics.params import Params
from hubbub_decoder.array_types import Bits, Floats, Indices
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.random_string import distinct_bit_probabilities

NO_NOISE = 1e-12
"""p* = 0 would make a ratio infinite."""


@dataclass(frozen=True, eq=False)
class Mixture:
    """Components as they set bits, and what turns reports into ratios.

    places  : (m, M, h) bits of each candidate, k where it has fewer
    average : (k + 1,) ratio of the average string to a report of so many ones
    """

    params: Params
    places: Indices
    average: Floats

    @classmethod
    def of(cls, design: DesignMatrix) -> Mixture:
        """Take the candidates of a design."""
        return cls(design.params, design.places(), _average_ratio(design.params))

    @property
    def size(self) -> int:
        """M + 2."""
        return int(self.places.shape[1]) + 2

    def ratios(self, bits: Bits, places: Indices) -> Floats:
        """Return r of the strings at `places`, the average string and no value for reports (k, n): (strings + 2, n)."""
        k = self.params.num_bits
        unset, set_ = _ratios(self.params)
        factors = np.ones((k + 1, bits.shape[1]))
        factors[:k] = np.where(bits, set_, unset)
        ratios = np.ones((len(places) + 2, bits.shape[1]))
        listed = ratios[:-2]
        for place in places.T:
            listed *= factors[place]
        ratios[-2] = self.average[bits.sum(axis=0, dtype=np.int32)]
        return ratios


def _ratios(params: Params) -> tuple[float, float]:
    """Return (1-q*)/(1-p*) and q*/p*, which a bit of the value contributes where the report's is unset, set."""
    p, q = (min(max(star, NO_NOISE), 1 - NO_NOISE) for star in (params.p_star, params.q_star))
    return (1 - q) / (1 - p), q / p


def _average_ratio(params: Params) -> Floats:
    """Return the mean of r over all strings for a report of t = 0 .. k ones, exactly: only how many matters.

        murmur3-v1 : e_h(t) / C(k, h)      google-md5 : sum_d P(d distinct bits of h) e_d(t) / C(k, d)
        e_d(t) = sum_l C(t, l) C(k-t, d-l) a**l b**(d-l)

    Where k does not divide 256, google-md5's slight preference for low bits is left out.
    """
    k = params.num_bits
    unset, set_ = _ratios(params)
    return np.array([
        math.fsum(
            chance * math.comb(t, ones) * math.comb(k - t, d - ones) / math.comb(k, d) * set_**ones * unset ** (d - ones)
            for d, chance in enumerate(distinct_bit_probabilities(params), start=1)
            if chance
            for ones in range(max(0, d - (k - t)), min(d, t) + 1)
        )
        for t in range(k + 1)
    ])  # fmt: skip
