"""Accuracy of a metric with `discover`: the limit of a search without a list, and the held-out group's estimates."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

from hubbub.metrics.discovery import Discovery
from hubbub_decoder.array_types import Floats
from hubbub_decoder.discovery.discover import DEFAULT_BEAM
from hubbub_decoder.discovery.power import GroupNoise, detection_limit
from hubbub_decoder.planning.law.accuracy import Accuracy

_LARGEST_LIMIT = 0.3


@dataclass(frozen=True, eq=False, kw_only=True)
class DiscoveryAccuracy(Accuracy):
    """Law of a search and of the estimates of its strings.

    discover : groups of the cohorts; `clients` and the m of `size` are those of all groups
    beam     : number of prefixes that the search keeps after each group
    """

    discover: Discovery
    beam: int = DEFAULT_BEAM

    @cached_property
    def held_out(self) -> Accuracy:
        """Law of the estimates, from the reports of the held-out group."""
        k, h, m = self.size
        cohorts = len(self.discover.cohorts(len(self.discover.lengths), m))
        clients = self.clients * cohorts / m
        return Accuracy(self.kind, (k, h, cohorts), self.chain, clients, self.repetition, self.shares, self.data)

    @property
    def noise(self) -> GroupNoise:
        """Noise of a share's estimate from one client of a group."""
        k, h, _ = self.size
        chain, repetition, load = self.chain, self.repetition, h / k
        absent = float(chain.noise(load, repetition)) / (h * repetition.per_client)
        slope = float(chain.noise(1.0, repetition) - chain.noise(0.0, repetition)) / (h * repetition.per_client)
        p, q = float(chain.p_star), float(chain.q_star)
        ones = p + (q - p) * load
        skewness = (1 - 2 * ones) / math.sqrt(ones * (1 - ones)) / math.sqrt(h * repetition.per_client)
        return GroupNoise(absent, slope + 1, skewness * absent**1.5, k)

    def variance(self, share: Floats | float) -> Floats:
        """Variance of the share of a string that was found."""
        return self.held_out.variance(share)

    def detection_limit(self, power: float) -> float:
        """Smallest share of a string of `longest` symbols that is found with this probability; infinite if none up to .3 is."""
        longest = self.discover.longest
        return detection_limit(self.discover, self.size[2], self.noise, self.clients, power, longest, self.beam)

    def with_groups(self, discover: Discovery) -> DiscoveryAccuracy:
        """Return the law of other groups."""
        return replace(self, discover=discover)
