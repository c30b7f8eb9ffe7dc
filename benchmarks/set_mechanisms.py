"""Other mechanisms for sets: the law of a report, a sampler of counts, and the unbiased estimate of a share.

Each client has at most m of M items, and sends one report. A report "supports" some of the items: an own item of the client with probability a,
and any other item with probability b, whatever else the client has. So c of the n reports support an item of share x, and

    estimate = (c / n - b) / (a - b)        n Var = (x a (1-a) + (1-x) b (1-b)) / (a - b)**2

The reports of `AskOne` are about one item each, so its estimate and its variance are its own.

Sets of n clients are an array (n, m) of the numbers of their items, with -1 for a missing item.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hubbub_decoder.model.distributions import binom

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
MISSING = -1


@dataclass(frozen=True)
class SetMechanism(ABC):
    """A mechanism for sets of at most `own` of `items` items, with this epsilon of a report."""

    name: ClassVar[str]

    items: int
    own: int
    epsilon: float

    @property
    @abstractmethod
    def support(self) -> tuple[float, float]:
        """a and b, the probabilities that a report supports an own item, and another item."""

    @abstractmethod
    def estimate(self, sets: Ints, rng: np.random.Generator) -> Floats:
        """Return the estimated shares, (M,), from one report of each client."""

    def variance(self, share: float, clients: int) -> float:  # noqa: ARG002  (n Var of AskOne alone depends on n)
        """Return n times the variance of an estimated share."""
        a, b = self.support
        return (share * a * (1 - a) + (1 - share) * b * (1 - b)) / (a - b) ** 2

    def owners(self, sets: Ints) -> Ints:
        """Return the number of clients with each item, (M,)."""
        return np.bincount(sets[sets != MISSING], minlength=self.items)


class SupportMechanism(SetMechanism):
    """A mechanism whose reports support items."""

    @abstractmethod
    def count(self, sets: Ints, rng: np.random.Generator) -> Ints:
        """Return how many of the clients' reports support each item, (M,)."""

    def estimate(self, sets: Ints, rng: np.random.Generator) -> Floats:
        a, b = self.support
        return np.asarray((self.count(sets, rng) / len(sets) - b) / (a - b))


class PrivSet(SupportMechanism):
    """A row of w of the M items and m blanks; rows that touch the client's set, filled up with blanks, are e**epsilon times as probable.

    With d = M, N = C(d + m, w) rows and N_0 = C(d, w) that do not touch the set, all rows have the weight W = N_0 + (N - N_0) e**eps, and

        a = e**eps C(d + m - 1, w - 1) / W        b = (w - m a) / d

    w has the smallest sum of the variances of d + m - 1 absent values and of one present value, as in the authors' program.

    Source: Wang et al. 2018, "PrivSet: set-valued data analyses with local differential privacy" (INFOCOM), the randomizer and the choice of the
    size of the subset; github.com/wangsw/ldplearn, `DistributionEstimation/setvalued/privset.py`, `bestSubsetSize`.
    """

    name = "PrivSet"

    @cached_property
    def num_ones(self) -> int:
        """w, number of values of a row."""

        def bound(w: int) -> float:
            a, b = self._support(w)
            return (a * (1 - a) + (self.items + self.own - 1) * b * (1 - b)) / (a - b) ** 2 if a > b else math.inf

        return min(range(1, self.items), key=bound)

    @property
    def support(self) -> tuple[float, float]:
        return self._support(self.num_ones)

    def _support(self, w: int) -> tuple[float, float]:
        d, m, e = self.items, self.own, math.exp(self.epsilon)
        rows, missing = math.comb(d + m, w), math.comb(d, w)
        a = w / (d + m) * e / (e - (e - 1) * (missing / rows))
        return a, (w - m * a) / d

    def count(self, sets: Ints, rng: np.random.Generator) -> Ints:
        """Draw random rows, and keep a row that does not touch the set with probability e**-epsilon."""
        w, k = self.num_ones, self.items + self.own
        full = np.where(sets == MISSING, self.items + np.arange(self.own), sets)
        counts = np.zeros(k, np.int64)
        while len(full):
            rows = np.sort(rng.integers(k, size=(len(full), w)), axis=1)
            touches = (rows[:, :, None] == full[:, None, :]).any(axis=(1, 2))
            kept = (np.diff(rows, axis=1) > 0).all(axis=1) & (
                touches | (rng.random(len(full)) < math.exp(-self.epsilon))
            )
            counts += np.bincount(rows[kept].ravel(), minlength=k)
            full = full[~kept]
        return counts[: self.items]


class Wheel(SupportMechanism):
    """A point of a circle of length 1, on which the client's hash function places every item at the start of an arc of length p.

    The arcs of the client's items cover a part l <= m p of the circle. With Omega = m p e**eps + 1 - m p the density of the point is

        e**eps / Omega on the arcs        (Omega - l e**eps) / ((1 - l) Omega) elsewhere, between 1 / Omega and e**eps / Omega

        a = p e**eps / Omega              b = p, over the random places of an item that the client does not have

    We choose the p with the smallest variance of a small share, so that any other choice has a larger one:

        p**2 m (m (e**eps - 1) - 2 e**eps) + p m (e**eps + 2) - 1 = 0

    Source: Wang et al. 2020, "Set-valued data publication with local privacy: tight error bounds and efficient mechanisms" (PVLDB 13, 8).
    """

    name = "Wheel"

    @property
    def arc(self) -> float:
        """p, length of an arc."""
        m, e = self.own, math.exp(self.epsilon)
        square, linear = m * (m * (e - 1) - 2 * e), m * (e + 2)
        return 2 / (linear + math.sqrt(linear**2 + 4 * square))

    @property
    def omega(self) -> float:
        """Omega, e**eps over the density on the arcs."""
        return 1 + self.own * self.arc * math.expm1(self.epsilon)

    @property
    def support(self) -> tuple[float, float]:
        return self.arc * math.exp(self.epsilon) / self.omega, self.arc

    def density(self, covered: Floats, *, on_arc: bool) -> Floats:
        """Return the density of the point where the arcs cover a part l of the circle."""
        e, omega = math.exp(self.epsilon), self.omega
        return np.full_like(covered, e / omega) if on_arc else (omega - covered * e) / ((1 - covered) * omega)

    def covered(self, places: Floats) -> Floats:
        """Return the part l of the circle that arcs cover, (n,), from their places (n, m); NaN is a missing item."""
        starts = np.sort(places, axis=1)
        first, number = starts[:, :1], (~np.isnan(starts)).sum(axis=1, keepdims=True)
        following = np.concatenate([starts[:, 1:], np.full_like(first, np.nan)], axis=1)
        following = np.where(np.arange(starts.shape[1]) == number - 1, first + 1, following)
        return np.asarray(np.nansum(np.minimum(following - starts, self.arc), axis=1))

    def count(self, sets: Ints, rng: np.random.Generator) -> Ints:
        clients = len(sets)
        places = rng.random((clients, self.items), np.float32)
        starts = np.where(
            sets == MISSING, np.nan, np.take_along_axis(places, np.maximum(sets, 0), axis=1).astype(float)
        )
        covered = self.covered(starts)
        on_arc = rng.random(clients) < covered * math.exp(self.epsilon) / self.omega
        points, left = np.zeros(clients), np.arange(clients)
        while len(left):
            points[left] = rng.random(len(left))
            inside = ((points[left, None] - starts[left]) % 1 < self.arc).any(axis=1)
            left = left[inside != on_arc[left]]
        places -= points[:, None].astype(np.float32)
        return np.asarray(((-places) % 1 < self.arc).sum(axis=0))


class PadAndSample(SupportMechanism):
    """One of m slots, in which the own items are and otherwise nothing, reported with optimized unary encoding.

        a = 1/(2 m) + (1 - 1/m) b        b = 1 / (e**eps + 1)

    Source: Wang, Li and Jha 2018, "Locally differentially private frequent itemset mining" (S&P), section IV, padding and sampling; Wang et al. 2017,
    section 4.3.2, for OUE. Sampling does not amplify the privacy of OUE.
    """

    name = "pad and sample, OUE"

    @property
    def support(self) -> tuple[float, float]:
        b = 1 / (math.exp(self.epsilon) + 1)
        return b + (1 / 2 - b) / self.own, b

    def count(self, sets: Ints, rng: np.random.Generator) -> Ints:
        sampled = sets[np.arange(len(sets)), rng.integers(self.own, size=len(sets))]
        chosen = self.owners(sampled)
        return rng.binomial(chosen, 1 / 2) + rng.binomial(len(sets) - chosen, self.support[1])


class AskOne(SetMechanism):
    """A random one of the M items, and with randomized response whether the client has it: `kind = "set"` without `max_items`.

    n_i clients answer for an item, and c_i of them say yes. With p = 1 / (e**eps + 1)

        estimate = (c_i / n_i - p) / (1 - 2 p)        n Var = n E[1 / n_i] p (1-p) / (1 - 2 p)**2 + x (1-x) (n E[1 / n_i] - 1) n / (n - 1)
    """

    name = "ask one"

    @property
    def support(self) -> tuple[float, float]:
        """Probabilities of yes, of a client that is asked about the item."""
        p = 1 / (math.exp(self.epsilon) + 1)
        return 1 - p, p

    def variance(self, share: float, clients: int) -> float:
        asked = np.arange(1, clients + 1)
        chances = binom.pmf(asked, clients, 1 / self.items)
        inverse = clients * float((chances / asked).sum() / chances.sum())
        sampling = share * (1 - share) * (inverse - 1) * clients / (clients - 1)
        return inverse * super().variance(0.0, clients) + sampling

    def estimate(self, sets: Ints, rng: np.random.Generator) -> Floats:
        a, b = self.support
        item = rng.integers(self.items, size=len(sets))
        asked, true = self.owners(item), self.owners(item[(sets == item[:, None]).any(axis=1)])
        yes = rng.binomial(true, a) + rng.binomial(asked - true, b)
        with np.errstate(invalid="ignore"):
            return np.asarray((yes / asked - b) / (a - b))


OTHERS: tuple[type[SetMechanism], ...] = (PrivSet, Wheel, PadAndSample, AskOne)
