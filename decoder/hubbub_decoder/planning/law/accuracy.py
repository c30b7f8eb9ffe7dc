"""Law of the estimates of one metric: variances, detection limits, reports needed.

    Accuracy            what every law has: detection limit, reports needed, its rows in tables
      BitAccuracy       each share is that of one bit, as for categories, buckets and booleans
                        further laws of kinds are beside their planners, in `planning/kinds`
      StringAccuracy    candidates share bits: collisions, uneven load of the cohorts, likelihood of patterns and reports
        DiscoveryAccuracy                  strings that are found without a list

docs/explanation/mathematics.md, section 18.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np

from hubbub.metrics.discovery import Discovery
from hubbub_decoder.array_types import Floats
from hubbub_decoder.discovery.discover import DEFAULT_BEAM
from hubbub_decoder.discovery.power import GroupNoise, detection_limit, detection_probability
from hubbub_decoder.estimators.categories import count_law
from hubbub_decoder.estimators.message_passing import too_crowded
from hubbub_decoder.inference.error_law import ErrorLaw, Sampling, skewed_tail
from hubbub_decoder.inference.intervals import DETECTION_POWER, detection_level
from hubbub_decoder.model.distributions import norm
from hubbub_decoder.model.random_string import same_bits_probability
from hubbub_decoder.model.repetition import Repetition
from hubbub_decoder.planning.law.chain import Chain
from hubbub_decoder.planning.law.collisions import Shares, uneven_load_variance, unknown_squares
from hubbub_decoder.planning.law.likelihood import LikelihoodLaw

FDR = 0.05
CONFIDENCE = 0.95
_NUMBERS_PER_CANDIDATE = 20  # `use_fixed_effects`
_MIN_COHORTS_FOR_RANDOM_EFFECTS = 3
_MAX_LIMIT_STEPS = 60
_DIFFERENT_SHARES = 101  # of which the one that needs the most reports is taken
MAX_REPORTS = 10**12

Data = Literal["bits", "patterns", "reports"]
"""What is decoded: bit counts, pattern counts (k <= 16), or retained reports."""


class Population(NamedTuple):
    """Clients whose reports are decoded.

    clients    : N, reports of a period
    repetition : T reports of a client, R of a permanent response
    shares     : of the candidates, at most 1 together; the rest has no value
    """

    clients: float
    repetition: Repetition
    shares: Shares


FORGED_REPORTS, DETECTION_LIMIT = "forged reports that show an absent value", "detection limit"


@dataclass(frozen=True, eq=False, kw_only=True)
class Accuracy(ABC):
    """Law of the estimates of one metric.

    Attributes
    ----------
    chain
        Probabilities of both responses.
    clients
        N, the number of reports of a period.
    repetition
        T reports of a client, R of a permanent response.
    shares
        Shares of the candidates.
    data
        "bits", "patterns" or "reports": what is decoded.
    """

    chain: Chain
    clients: float
    repetition: Repetition
    shares: Shares
    data: Data = "bits"

    @property
    def searches(self) -> bool:
        """Whether strings are found without a list, so that no number of candidates plays a part."""
        return False

    @abstractmethod
    def variance(self, share: Floats | float) -> Floats:
        """Return the variance of the share of a candidate among the reporters.

        returns : variance, of the shape of `share`. It is infinite where the estimates diverge.
        """

    def std_error(self, share: float) -> float:
        """Return the standard error of the share of one candidate."""
        return math.sqrt(float(self.variance(share)))

    def mean_variance(self, smallest: float) -> float:
        """Return the variance that a plan makes small."""
        return (float(self.variance(smallest)) + self.shares.mean(self.variance(self.shares.values))) / 2

    def detection_limit(self) -> float:
        """Return the smallest share that is detected with probability .9, even if no other is.

        The limit x solves, with s(x), the standard error of the share x::

            x = z(.05 / M) s(0) + z(.9) s(x)

        Of shares with a bit of their own it is the limit of a decoding: quantiles are those of the count's law, and half a count is added.
        For categories, which are not tested, it is the smallest share that is distinguished from 0.
        """
        threshold = self._threshold()
        reach = float(norm.ppf(DETECTION_POWER))
        limit = threshold
        for _ in range(_MAX_LIMIT_STEPS):
            if not limit <= 1:
                return math.inf
            limit = threshold + reach * self.std_error(limit)
        return limit

    def power(self, share: float) -> float:
        """Return the probability that a share x is detected, which at the detection limit is .9::

            P = Phi((x - c) / s(x))        c = z(.05 / M) s(0)

        Of shares with a bit of their own the error is skewed as that of a decoding is.
        """
        error = self.std_error(share)
        return float(norm.cdf((share - self._threshold()) / error)) if math.isfinite(error) else 0.0

    def forged_reports(self) -> float:
        """Return about how many forged reports make a value detected that nobody has.

        With the threshold c of a detection, and the share g that the best forged report stands for in bit counts::

            r = N c / (g - c)        c = z(.05 / M) s(0)        g = (1 - p*) / (q* - p*), for strings 1 / (q* - p*)

        Where strings share bits, a decoding has up to a fifth less: some cohorts are easier to attack than others.
        """
        cut, forged = self._threshold(), self._forged_share()
        return math.ceil(self._reports_of_a_share() * cut / (forged - cut)) if cut < forged else math.inf

    def _threshold(self) -> float:
        """Estimate from which a candidate is detected, c."""
        return float(norm.isf(self._level)) * self.std_error(0.0)

    @property
    def _level(self) -> float:
        """Largest p-value of a detected candidate."""
        return detection_level(self.shares.count, FDR, CONFIDENCE)

    @property
    def interval_level(self) -> float:
        """Level of the two-sided interval whose lower end is above 0 where a share is detected, 1 - 2 (.05 / M)."""
        return 1 - 2 * self._level

    def _reports_of_a_share(self) -> float:
        """Reports of the period behind the estimate of one share."""
        return self.clients

    def _forged_share(self) -> float:
        """Share that the best forged report stands for, g."""
        p, q = float(self.chain.p_star), float(self.chain.q_star)
        return max((1 - p) / (q - p), -p / (q - p))

    def clients_needed(self, share: float) -> float:
        """Return the number of reports of a period that lowers the detection limit to a share."""
        return self._fewest_clients(lambda law: law.detection_limit() <= share)

    def clients_for_difference(self, difference: float, share: float | None, power: float) -> float:
        """Return the number of reports of a period, N, of each of two groups whose difference of shares an interval shows with a probability.

        The interval of 95 % is that of `compare` with target="population", for groups of different clients, who are random samples::

            d = (z(.975) + z(P)) sqrt(s(x)**2 + s(x + d)**2)        s(x)**2 = Var x + x (1 - x) / N

        share : x, of the group that has the smaller one; None: the one that needs the most reports
        """
        z = float(norm.isf((1 - CONFIDENCE) / 2) + norm.ppf(power))
        smaller = np.linspace(0, 1 - difference, _DIFFERENT_SHARES) if share is None else np.array([share])
        pair = np.stack([smaller, smaller + difference])

        def is_shown(law: Accuracy) -> bool:
            variances = law.variance(pair.ravel()).reshape(pair.shape) + pair * (1 - pair) / law.clients
            return bool(z**2 * variances.sum(axis=0).max() <= difference**2)

        return self._fewest_clients(is_shown)

    def _fewest_clients(self, is_enough: Callable[[Accuracy], bool]) -> float:
        """Smallest number of reports of a period, to .1 %, that is enough; infinite if MAX_REPORTS are not."""
        low, high = 1.0, float(MAX_REPORTS)
        if not is_enough(replace(self, clients=high)):
            return math.inf
        while high / low > 1.001:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if is_enough(replace(self, clients=middle)) else (middle, high)
        return math.ceil(high)

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield the figures in tables: standard error and detection limit, in the words of the metric's estimates."""
        yield "standard error of a small share", percent_text(self.std_error(0.0))
        yield FORGED_REPORTS, count_text(self.forged_reports())
        yield DETECTION_LIMIT, percent_text(self.detection_limit())

    def own_figures(self) -> dict[str, Any]:
        """Return the figures of JSON documents that only this law has."""
        return {}

    def notes(self) -> Iterator[str]:
        """Yield notes about estimates that are not shares."""
        yield from ()


@dataclass(frozen=True, eq=False, kw_only=True)
class BitAccuracy(Accuracy):
    """Law of shares that each have a bit of their own."""

    def variance(self, share: Floats | float) -> Floats:
        return np.asarray(self.chain.noise(share, self.repetition) / (self.clients * self.repetition.per_client))

    def detection_limit(self) -> float:
        (limit,) = self._error_law.detection_limits(self._level, DETECTION_POWER, on_grid=False).tolist()
        return limit if limit <= 1 else math.inf

    def power(self, share: float) -> float:
        law, x = self._error_law, np.array([share])
        return float(skewed_tail((self._threshold() - x) / law.std_errors(x), law.skewness(x))[0])

    def _threshold(self) -> float:
        return float(self._error_law.thresholds(self._level)[0])

    @property
    def _error_law(self) -> ErrorLaw:
        """Law of the decoder's estimate, (1,), of a value that nobody has."""
        return self._law_of_count(self.clients, Sampling())

    def _law_of_count(self, clients: float, sampling: Sampling) -> ErrorLaw:
        """Law of a bit that so many clients report, who are such a sample."""
        p, q = float(self.chain.p_star), float(self.chain.q_star)
        absent, present = (float(self.chain.noise(share, self.repetition)) * (q - p) ** 2 for share in (0.0, 1.0))
        reports = clients * self.repetition.per_client
        return count_law(np.array([p * reports]), reports, (p, q), (absent, present), sampling)


@dataclass(frozen=True, eq=False, kw_only=True)
class StringAccuracy(Accuracy):
    """Law of the shares of strings, whose candidates share bits.

    size : (k, h, m)
    """

    size: tuple[int, int, int]

    def _forged_share(self) -> float:
        return 1 / abs(float(self.chain.q_star - self.chain.p_star))

    def detection_limit(self) -> float:
        return math.inf if self.is_ambiguous else super().detection_limit()

    def power(self, share: float) -> float:
        return 0.0 if self.is_ambiguous else super().power(share)

    @property
    def is_ambiguous(self) -> bool:
        """Whether a random string has a candidate's bits in all cohorts too often for a detection to mean that the candidate was reported."""
        return self._same_bits > self._level

    @property
    def _same_bits(self) -> float:
        k, h, m = self.size
        return same_bits_probability(k, h, m)

    def notes(self) -> Iterator[str]:
        """Yield why there is no detection limit, where strings collide."""
        if self.is_ambiguous:
            yield (
                f"There is no detection limit, because a random string has the bits of a given candidate in all cohorts with probability {self._same_bits:.2g}. "
                "Use more cohorts (num_cohorts), or look for fewer candidates."
            )

    def variance(self, share: Floats | float) -> Floats:
        return self._variance(np.asarray(share, float), self.unknown)

    @cached_property
    def unknown(self) -> float:
        """t, sum of the squares of the unknown shares of other strings."""
        if self._is_crowded:
            return float(self.shares.numbers @ self.shares.values**2)
        k, _, m = self.size
        numbers = m * (k - 1) + 1
        few = 2 if m < _MIN_COHORTS_FOR_RANDOM_EFFECTS else _NUMBERS_PER_CANDIDATE
        fixed = self.data != "patterns" and self.shares.count <= numbers // few
        return unknown_squares(self.shares, lambda t: self._variance(self.shares.values, t), fixed_effects=fixed)

    def with_groups(self, discover: Discovery) -> DiscoveryAccuracy:
        """Return the law of a search by groups of the cohorts."""
        return DiscoveryAccuracy(**self._of_strings(), discover=discover)

    def _of_strings(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(StringAccuracy)}

    @property
    def _is_crowded(self) -> bool:
        """Whether the decoder subtracts no candidate, so that the shares of all others are noise."""
        k, h, m = self.size
        differ = math.comb(k, h) - 1 if self.data == "patterns" else k - 1
        return self.data != "reports" and too_crowded(m, round(self.shares.count), m * differ)

    @property
    def _likelihood(self) -> LikelihoodLaw:
        """Law of the reports; where no candidate is subtracted, the scores take every string for an average one."""
        probabilities = tuple(float(probability) for probability in self.chain)
        return _likelihood_law(
            probabilities, self.size[0], self.size[1], self.repetition, self.shares, self._is_crowded, self.data
        )

    def _variance(self, share: Floats, unknown: float) -> Floats:
        """Variance given t; where no candidate is subtracted, t has the candidate's own share, which is no noise to it."""
        if self._is_crowded and self.size[2] == 1:
            return np.full(np.shape(share), np.inf)
        if self._is_crowded:
            return self._even_variance(share, np.maximum(unknown - share**2, 0))
        own = np.atleast_1d(share)
        law = self._bit_variance if self.data == "bits" else self._likelihood_variance
        return law(own, unknown).reshape(np.shape(share))

    def _even_variance(self, share: Floats, unknown: Floats | float) -> Floats:
        """Variance where all cohorts have the same weight."""
        if self.data == "bits":
            return self._bit_count_variance(share, unknown)
        nodes, known = self._likelihood.by_share
        of_share = np.interp(share, nodes, known - known[0])
        return np.asarray(
            self._likelihood.absent_variance(self.size[2], self.clients, unknown) + of_share / self.clients
        )

    def _bit_count_variance(self, share: Floats | float, unknown: Floats | float) -> Floats:
        """Variance from bit counts, in closed form: equation (18.3).

        A candidate of share x sets h of k bits in each of m cohorts; other strings of total share s set random bits there. By symmetry the
        candidate's share is the mean of its own bits less the mean of the other k - h bits, averaged over the cohorts:

            Var x = (noise(x + s h/k) / h + noise(s h/k) / (k - h)) / (N T)  +  s / (N (k-1))  +  t / (m (k-1))

            s / (N (k-1))   : the clients with another string are in random cohorts
            t / (m (k-1))   : other strings share bits with the candidate

        Without collisions (k, m -> infinity) N Var is noise(x) / (h T).
        """
        (k, h, m), others, clients = self.size, np.maximum(self.shares.total - share, 0), self.clients
        own, of_others = (self.chain.noise(ones, self.repetition) for ones in (others * h / k + share, others * h / k))
        noise = (own / h + of_others / (k - h)) / (clients * self.repetition.per_client)
        return np.asarray(noise + others / (clients * (k - 1)) + unknown / (m * (k - 1)))

    def _bit_variance(self, own: Floats, unknown: float) -> Floats:
        """Variance (n,) from bit counts, with weights of the cohorts by the load of a bit.

        The clients of a cohort are a sample of all clients. A cohort whose bit has another string as well cannot count its own sample, so
        with one hash the candidate's share x is noise in v of each cohort, and x / N is subtracted from the mean over the cohorts, among
        the reporters. With several hashes the other bits count it.
        """
        k, h, _ = self.size
        sample = own if h == 1 else np.zeros_like(own)
        of_bit = h * self.clients * self._even_variance(own, unknown) + sample
        of_one, of_zero = (self.chain.noise(share, self.repetition) for share in (1.0, 0.0))
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


@dataclass(frozen=True, eq=False, kw_only=True)
class DiscoveryAccuracy(StringAccuracy):
    """Law of a search and of the estimates of its strings.

    discover : groups of the cohorts; `clients` and the m of `size` are those of all groups
    beam     : number of prefixes that the search keeps after each group
    """

    discover: Discovery
    beam: int = DEFAULT_BEAM

    @property
    def searches(self) -> bool:
        return True

    @cached_property
    def held_out(self) -> StringAccuracy:
        """Law of the estimates, from the reports of the held-out group."""
        k, h, m = self.size
        cohorts = len(self.discover.cohorts(len(self.discover.lengths), m))
        clients = self.clients * cohorts / m
        return StringAccuracy(**self._of_strings() | {"size": (k, h, cohorts), "clients": clients})

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

    def detection_limit(self) -> float:
        """Smallest share of a string of `longest` symbols that is found with probability .9; infinite if none up to .3 is."""
        longest = self.discover.longest
        return detection_limit(
            self.discover, self.size[2], self.noise, self.clients, DETECTION_POWER, longest, self.beam
        )

    def power(self, share: float) -> float:
        """Return the probability that a string of `longest` symbols with a share is found."""
        return detection_probability(
            self.discover, self.size[2], self.noise, self.clients, share, self.discover.longest, self.beam
        )

    def rows(self) -> Iterator[tuple[str, str]]:
        yield "standard error of a small share", percent_text(self.std_error(0.0))
        yield "prefixes kept after each group", f"{self.beam:,} (hubbub discover --beam)"
        yield FORGED_REPORTS, f"{count_text(self.held_out.forged_reports())}, once it was found"
        yield f"detection limit of {self.discover.longest} symbols", percent_text(self.detection_limit())

    def own_figures(self) -> dict[str, Any]:
        return {"beam": self.beam}


def count_text(number: float) -> str:
    """Number of reports with two significant digits.

    >>> count_text(12345), count_text(math.inf)
    ('about 12,000', 'no number is enough')
    """
    return f"about {float(f'{number:.2g}'):,.0f}" if math.isfinite(number) else "no number is enough"


def percent_text(share: float) -> str:
    """Share with three significant digits, as a percentage.

    >>> percent_text(0.00012345), percent_text(math.inf)
    ('0.0123 %', 'none up to 100 %')
    """
    return f"{100 * share:.3g} %" if share <= 1 else "none up to 100 %"


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
