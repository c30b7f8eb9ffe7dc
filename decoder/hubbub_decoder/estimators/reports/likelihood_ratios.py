"""Likelihood ratio of a report under each string, relative to "no value".

Model: a report s comes from a mixture of M + 2 components: the candidates (columns of the design), the average unlisted string, and "no
value", with shares z (M + 2,) that sum to 1. For a component v with bits b_v:

    r_v(s) = P(s | v) / P(s | no value) = product over the bits i of v of w_i        f(s) = sum_v z_v r_v(s)
    w_i = q*/p* where bit i of s is set, (1-q*)/(1-p*) where it is not        r = 1 for "no value"

docs/explanation/mathematics.md, section 11.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hubbub.metrics.params import Params
from hubbub_decoder.array_types import Bits, Floats, Indices
from hubbub_decoder.inference.shrinkage import posterior_shares
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.random_string import distinct_bit_probabilities

MIN_PROBABILITY = 1e-12
"""Lower bound of p*, 1 - q* and so on: p* = 0 would make a ratio infinite."""

_MIN_EXPECTED_SHARE = 1e-3  # of the unlisted strings, of "no value", and of all candidates together, in the weights


@dataclass(frozen=True, eq=False)
class Mixture:
    """Components of the mixture, and the ratios of reports under them.

    positions : (m, M, h) bits of each candidate in each cohort, k where it has fewer
    average   : (k + 1,) ratio of the average unlisted string for a report with t = 0 .. k ones
    """

    params: Params
    positions: Indices
    average: Floats

    @classmethod
    def from_design(cls, design: DesignMatrix) -> Mixture:
        """Mixture of the candidates of a design."""
        return cls(design.params, design.positions(), _average_ratio(design.params))

    @property
    def size(self) -> int:
        """Number of components, M + 2."""
        return int(self.positions.shape[1]) + 2

    def ratios(self, bits: Bits, positions: Indices) -> Floats:
        """Ratios r, (strings + 2, n), of strings, the average unlisted string and "no value".

        bits : (k, n) of n reports      positions : (strings, h)
        """
        k = self.params.num_bits
        unset, set_ = _bit_ratios(self.params)
        factors = np.ones((k + 1, bits.shape[1]))
        factors[:k] = np.where(bits, set_, unset)
        ratios = np.ones((len(positions) + 2, bits.shape[1]))
        listed = ratios[:-2]
        for column in positions.T:
            listed *= factors[column]
        ratios[-2] = self.average[bits.sum(axis=0, dtype=np.int32)]
        return ratios


def plausible_shares(shares: Floats, std_errors: Floats, no_value: float, unlisted: float | None = None) -> Floats:
    """Shares z (M + 2,) that a population can have, and that leave every report possible, from estimates.

    Candidates have their posterior medians, which are 0 for most: a mean would put weight on the few reports that look like an absent
    candidate. Every share is at least 1e-3, that of a candidate 1e-3 / M, before the sum is scaled to 1.

    unlisted : share of the unlisted strings; None: the remainder to 1
    """
    medians = np.maximum(posterior_shares(shares, std_errors).medians, _MIN_EXPECTED_SHARE / max(1, len(shares)))
    none = max(no_value, _MIN_EXPECTED_SHARE)
    rest = 1 - medians.sum() - none if unlisted is None else unlisted
    z = np.append(medians, [max(rest, _MIN_EXPECTED_SHARE), none])
    return np.asarray(z / z.sum())


def _bit_ratios(params: Params) -> tuple[float, float]:
    """Ratios of a bit of the value: (1-q*)/(1-p*) where the report's bit is unset, and q*/p* where it is set."""
    p, q = (
        min(max(star, MIN_PROBABILITY), 1 - MIN_PROBABILITY)
        for star in (params.mechanism.p_star, params.mechanism.q_star)
    )
    return (1 - q) / (1 - p), q / p


def _average_ratio(params: Params) -> Floats:
    """Mean of r over all strings, for a report with t = 0 .. k ones, (k + 1,): exact, since only their number matters.

        murmur3-v1 : e_h(t) / C(k, h)      google-md5 : sum_d P(d distinct bits) e_d(t) / C(k, d)
        e_d(t) = sum_l C(t, l) C(k-t, d-l) a**l b**(d-l)        a = q*/p*, b = (1-q*)/(1-p*)

    The slight preference of google-md5 for low bits, where k does not divide 256, is left out.
    """
    k = params.num_bits
    unset, set_ = _bit_ratios(params)
    distinct = distinct_bit_probabilities(params)
    return np.array([
        math.fsum(
            chance * math.comb(t, ones) * math.comb(k - t, d - ones) / math.comb(k, d) * set_**ones * unset ** (d - ones)
            for d, chance in enumerate(distinct, start=1)
            if chance
            for ones in range(max(0, d - (k - t)), min(d, t) + 1)
        )
        for t in range(k + 1)
    ])  # fmt: skip
