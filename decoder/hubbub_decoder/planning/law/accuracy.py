"""Accuracy of one mechanism for one population: variances, detection limits, reports needed."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np

from hubbub.metrics.metric import Kind
from hubbub_decoder.array_types import Floats
from hubbub_decoder.estimators.message_passing import too_crowded
from hubbub_decoder.model.distributions import norm
from hubbub_decoder.model.repetition import Repetition
from hubbub_decoder.planning.law.bit_counts import bit_count_variance
from hubbub_decoder.planning.law.chain import Chain
from hubbub_decoder.planning.law.collisions import Shares, unknown_squares
from hubbub_decoder.planning.law.likelihood import LikelihoodLaw
from hubbub_decoder.planning.law.uneven_load import uneven_load_ratio, uneven_load_variance

FDR = 0.05
_NUMBERS_PER_CANDIDATE = 20  # `use_fixed_effects`
_MIN_COHORTS_FOR_RANDOM_EFFECTS = 3
_MAX_LIMIT_STEPS = 60
_LIKELIHOOD_NODES = (0.0, 0.01, 0.04, 0.1, 0.2, 0.4, 1.0)  # shares between which the variance is nearly linear
MAX_REPORTS = 10**12

Data = Literal["bits", "patterns", "reports"]
"""What is decoded: bit counts, pattern counts (k <= 16), or retained reports."""


@dataclass(frozen=True, eq=False)
class Accuracy:
    """Law of the estimates of one metric.

    kind, size : of the values; (k, h, m)
    chain      : probabilities of both responses
    clients    : N, reports of a period
    repetition : T reports of a client, R of a permanent response
    shares     : of the candidates, at most 1 together; the rest has no value
    data       : what is decoded
    """

    kind: Kind
    size: tuple[int, int, int]
    chain: Chain
    clients: float
    repetition: Repetition
    shares: Shares
    data: Data = "bits"

    def variance(self, share: Floats | float) -> Floats:
        """Variance of the share of a candidate among the reporters; infinite where the estimates diverge."""
        return self._variance(np.asarray(share, float), self.unknown)

    def std_error(self, share: float) -> float:
        """Standard error of the share of one candidate."""
        return math.sqrt(float(self.variance(share)))

    @cached_property
    def unknown(self) -> float:
        """t, sum of the squares of the unknown shares of other strings; 0 for categories, which share no bits."""
        if self.kind is not Kind.STRING:
            return 0.0
        if self._is_crowded:
            return float(self.shares.numbers @ self.shares.values**2)
        k, _, m = self.size
        numbers = m * (k - 1) + 1
        few = 2 if m < _MIN_COHORTS_FOR_RANDOM_EFFECTS else _NUMBERS_PER_CANDIDATE
        fixed = self.data != "patterns" and self.shares.count <= numbers // few
        return unknown_squares(self.shares, lambda t: self._variance(self.shares.values, t), fixed_effects=fixed)

    def mean_variance(self, smallest: float) -> float:
        """Mean over half the smallest share that matters and half the candidates."""
        return (float(self.variance(smallest)) + self.shares.mean(self.variance(self.shares.values))) / 2

    def detection_limit(self, power: float) -> float:
        """Smallest share that is detected with this probability, even if no other is; for categories that is distinguished from 0.

        x = z(.05 / M) s(0) + z(power) s(x)          infinite if no share up to 1 is
        """
        threshold = float(norm.isf(FDR / self.shares.count)) * self.std_error(0.0)
        reach = float(norm.ppf(power))
        limit = threshold
        for _ in range(_MAX_LIMIT_STEPS):
            if not limit <= 1:
                return math.inf
            limit = threshold + reach * self.std_error(limit)
        return limit

    def clients_needed(self, share: float, power: float) -> float:
        """Reports of a period that lower the detection limit to a share; infinite if 1e12 do not suffice."""
        low, high = 1.0, float(MAX_REPORTS)
        if replace(self, clients=high).detection_limit(power) > share:
            return math.inf
        while high / low > 1.001:
            middle = math.sqrt(low * high)
            enough = replace(self, clients=middle).detection_limit(power) <= share
            low, high = (low, middle) if enough else (middle, high)
        return math.ceil(high)

    @property
    def _is_crowded(self) -> bool:
        """Whether the decoder subtracts no candidate, so that the shares of all others are noise."""
        k, h, m = self.size
        differ = math.comb(k, h) - 1 if self.data == "patterns" else k - 1
        return self.data != "reports" and too_crowded(m, round(self.shares.count), m * differ)

    @property
    def _likelihood(self) -> LikelihoodLaw:
        probabilities = tuple(float(each) for each in self.chain)
        return _likelihood_law(probabilities, self.size[0], self.size[1], self.repetition)

    def _variance(self, share: Floats, unknown: float) -> Floats:
        """Variance given t; where no candidate is subtracted, t has the candidate's own share, which is no noise to it."""
        if self.kind is not Kind.STRING:
            return self.chain.noise(share, self.repetition) / (self.clients * self.repetition.per_client)
        k, h, m = self.size
        if self._is_crowded and m == 1:
            return np.full(np.shape(share), np.inf)
        of_others = np.maximum(unknown - share**2, 0) if self._is_crowded else np.asarray(unknown)
        if self.data != "bits" and h == 1 and not self._is_crowded:
            return self._one_hash_variance(share, unknown)
        if self.data == "bits":
            others = np.maximum(self.shares.total - share, 0)
            even = bit_count_variance(self.chain, self.size, self.clients, self.repetition, share, others, of_others)
            per_share = (self.chain.noise(1.0, self.repetition) - self.chain.noise(0.0, self.repetition)) / h
            per_share /= self.repetition.per_client
        else:
            slopes = _likelihood_slopes(self._likelihood, self.shares.total)
            absent = self._likelihood.absent_variance(self.shares.total, m, self.clients, of_others)
            even = absent + np.interp(share, _LIKELIHOOD_NODES, slopes) / self.clients
            per_share = slopes[1] / _LIKELIHOOD_NODES[1]
        if self._is_crowded:
            return np.asarray(even)
        of_bit = h * (self.clients * even)
        ratio = uneven_load_ratio(self.shares, share, of_bit, h * per_share + 1, h / k)
        return np.asarray(even * ratio.reshape(np.shape(even)))

    def _one_hash_variance(self, share: Floats, unknown: float) -> Floats:
        """Variance from the likelihood where a string has one of k filters: that of its own, and of the mean of the others.

        Var x = (1 / E 1/v(x + L) + 1 / ((k-1) E 1/v(L)) - x) / N        v includes collisions, N t / (m k)
        """
        k, _, m = self.size
        of_load = _filter_variances(self._likelihood, self.shares.total)
        collisions = self.clients * unknown / (m * k)

        def of_filter(load: Floats) -> Floats:
            return np.asarray(np.interp(load, _LIKELIHOOD_NODES, of_load) + collisions)

        found = uneven_load_variance(self.shares, np.append(share, 0.0), of_filter, 1 / k)
        own, other = found[:-1].reshape(np.shape(share)), found[-1]
        return np.asarray((own + other / (k - 1) - share) / self.clients)


@lru_cache(maxsize=16)
def _likelihood_law(
    probabilities: tuple[float, ...], num_bits: int, num_hashes: int, repetition: Repetition
) -> LikelihoodLaw:
    """Law that is shared by all numbers of clients."""
    return LikelihoodLaw(Chain(*map(np.asarray, probabilities)), num_bits, num_hashes, repetition)


@lru_cache(maxsize=16)
def _filter_variances(law: LikelihoodLaw, total: float) -> Floats:
    """N times the variance of the share of a filter in a population, at the nodes; the other strings do not have it."""
    return np.array([law.variance(load, max(total - load, 0), apart=True) + load for load in _LIKELIHOOD_NODES])


@lru_cache(maxsize=16)
def _likelihood_slopes(law: LikelihoodLaw, total: float) -> Floats:
    """N times the variance that a share adds to that of an absent string, at the nodes; total : sum of all shares."""
    nodes = [law.variance(share, max(total - share, 0)) for share in _LIKELIHOOD_NODES]
    return np.array(nodes) - nodes[0]
