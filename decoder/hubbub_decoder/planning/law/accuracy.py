"""Accuracy of one mechanism for one population: variances, detection limits, reports needed."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np

from hubbub.metrics.kinds import KindWord
from hubbub_decoder.array_types import Floats
from hubbub_decoder.estimators.message_passing import too_crowded
from hubbub_decoder.model.distributions import norm
from hubbub_decoder.model.repetition import Repetition
from hubbub_decoder.planning.law.bit_counts import bit_count_variance
from hubbub_decoder.planning.law.chain import Chain
from hubbub_decoder.planning.law.collisions import Shares, unknown_squares
from hubbub_decoder.planning.law.likelihood import LikelihoodLaw
from hubbub_decoder.planning.law.uneven_load import uneven_load_variance

FDR = 0.05
_NUMBERS_PER_CANDIDATE = 20  # `use_fixed_effects`
_MIN_COHORTS_FOR_RANDOM_EFFECTS = 3
_MAX_LIMIT_STEPS = 60
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

    kind: KindWord
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
        if self.kind is not KindWord.STRING:
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
        """Law of the reports; where no candidate is subtracted, the scores take every string for an average one."""
        probabilities = tuple(float(each) for each in self.chain)
        return _likelihood_law(
            probabilities, self.size[0], self.size[1], self.repetition, self.shares, self._is_crowded, self.data
        )

    def _variance(self, share: Floats, unknown: float) -> Floats:
        """Variance given t; where no candidate is subtracted, t has the candidate's own share, which is no noise to it."""
        if self.kind is not KindWord.STRING:
            return self.chain.noise(share, self.repetition) / (self.clients * self.repetition.per_client)
        if not math.isfinite(unknown) or (self._is_crowded and self.size[2] == 1):
            return np.full(np.shape(share), np.inf)
        if self._is_crowded:
            return self._even_variance(share, np.maximum(unknown - share**2, 0))
        own = np.atleast_1d(share)
        law = self._bit_variance if self.data == "bits" else self._likelihood_variance
        return law(own, unknown).reshape(np.shape(share))

    def _even_variance(self, share: Floats, unknown: Floats | float) -> Floats:
        """Variance where all cohorts have the same weight."""
        if self.data == "bits":
            others = np.maximum(self.shares.total - share, 0)
            return bit_count_variance(self.chain, self.size, self.clients, self.repetition, share, others, unknown)
        nodes, known = self._likelihood.by_share
        of_share = np.interp(share, nodes, known - known[0])
        return np.asarray(
            self._likelihood.absent_variance(self.size[2], self.clients, unknown) + of_share / self.clients
        )

    def _bit_variance(self, own: Floats, unknown: float) -> Floats:
        """Variance (n,) from bit counts, with weights of the cohorts by the load of a bit.

        The clients of a cohort are a sample of all clients. A cohort whose bit has another string as well cannot count its own sample, so
        with one hash the candidate's share x is noise in v of each cohort, and x / N is subtracted from the mean over the cohorts, among
        the reporters. With several hashes the other bits count it.
        """
        k, h, _ = self.size
        sample = own if h == 1 else np.zeros_like(own)
        of_bit = h * self.clients * self._even_variance(own, unknown) + sample
        of_one, of_zero = (self.chain.noise(each, self.repetition) for each in (1.0, 0.0))
        slope = (of_one - of_zero) / self.repetition.per_client + 1
        alpha = of_bit - slope * h / k * np.maximum(self.shares.total - own, 0)
        return (uneven_load_variance(self.shares, own, alpha, slope, h / k) - sample) / (h * self.clients)

    def _likelihood_variance(self, own: Floats, unknown: float) -> Floats:
        """Variance (n,) from the likelihood: exact where all other shares are known, with collisions as noise of each cohort.

        v of a bit is taken for linear in its load; its slope is that by the candidate's own share, and 1 / E 1/v is the exact law.
        """
        (k, h, m), law = self.size, self._likelihood
        nodes, alpha, slope = law.unloaded_bit
        collisions = law.absent_variance(m, self.clients, unknown) - law.absent_variance(m, self.clients, 0.0)
        alpha = np.interp(own, nodes, alpha) + h * self.clients * collisions
        return (uneven_load_variance(self.shares, own, alpha, slope, h / k) - own) / (h * self.clients)


@lru_cache(maxsize=16)
def _likelihood_law(
    probabilities: tuple[float, ...],
    num_bits: int,
    num_hashes: int,
    repetition: Repetition,
    shares: Shares,
    is_crowded: bool,
    data: Data,
) -> LikelihoodLaw:
    """Law that is shared by all numbers of clients."""
    known = Shares.average(shares.total) if is_crowded else shares
    chain = Chain(*map(np.asarray, probabilities))
    return LikelihoodLaw(chain, num_bits, num_hashes, repetition, known, weighted=data == "patterns")
