"""Attack on values that change: exact odds between two histories, for hashes to few bits or cells and for large filters.

Values with equal bits or cells have one permanent response, which an observer of linked reports sees. So two histories of values that
change, and return to earlier values, at the same times may still differ in their pattern of equal responses. docs/decisions/0083.

generalized_response      matrix of generalized randomized response
largest_enumerated_losses largest loss of histories of cells, by enumeration
shared_response_loss      loss of two cells against one, any number of reports
ResponseAttack, FilterAttack, shares_above : simulated attack
pattern_differs           probability that two histories have different patterns
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import logsumexp

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]

_TINY = 1e-300
_ROUNDING_SLACK = 1e-9


def generalized_response(cells: int, keep: float) -> Floats:
    """Return the matrix of generalized randomized response: `keep` on the diagonal."""
    matrix = np.full((cells, cells), (1 - keep) / (cells - 1))
    np.fill_diagonal(matrix, keep)
    return matrix


def bit_loss(one: float, zero: float) -> float:
    """Return epsilon of a bit vector in which two inputs differ in two bits."""
    return math.log(one / zero * (1 - zero) / (1 - one)) if zero > 0 and one < 1 else math.inf


def shared_response_loss(permanent: Floats, instantaneous: Floats, reports: int) -> float:
    """Return a lower bound of the loss between values v, w in two cells and values v, x in one cell, with T reports of each value.

    It is ln of the ratio of the reports "cell 0, T times; then cell 1, T times".
    """
    own, other = instantaneous[:, 0] ** reports, instantaneous[:, 1] ** reports
    apart = math.log(permanent[0] @ own) + math.log(permanent[1] @ other)
    together = float(permanent[0] @ (own * other))
    return apart - math.log(together) if together > 0 else math.inf


def largest_enumerated_losses(permanent: Floats, instantaneous: Floats, periods: int) -> tuple[float, float]:
    """Return the largest loss between two histories of cells: any two, and two with equal cells in the same pairs of periods. By enumeration."""
    cells = len(permanent)
    histories = list(itertools.product(range(cells), repeat=periods))
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log([_output_chances(history, permanent, instantaneous) for history in histories])
        losses = np.nanmax(logs[:, None] - logs[None], axis=2)
    changes = [tuple(map(history.index, history)) for history in histories]
    same = np.array([[first == second for second in changes] for first in changes])
    return float(losses.max()), float(losses[same].max())


def _output_chances(history: tuple[int, ...], permanent: Floats, instantaneous: Floats) -> Floats:
    """Return the probability of every sequence of reports; periods of one cell share its permanent response."""
    joint: Floats = np.ones((len(permanent),) * len(history))
    for cell in set(history):
        at = [period for period, reported in enumerate(history) if reported == cell]
        group = permanent[cell]
        for _ in at:
            group = group[..., None] * instantaneous.reshape(len(permanent), *(1,) * (group.ndim - 1), -1)
        shape = [len(permanent) if period in at else 1 for period in range(len(history))]
        joint = joint * group.sum(axis=0).reshape(shape)
    return joint.ravel()


@dataclass(frozen=True)
class ResponseAttack:
    """Attack on a mechanism of few inputs: a permanent response of each input, reports with the counts of all outputs.

    permanent : (inputs, responses)      instantaneous : (responses, outputs)
    """

    permanent: Floats
    instantaneous: Floats

    @property
    def inputs(self) -> int:
        """Number of bits or cells of a hash."""
        return len(self.permanent)

    def draw(self, history: Indices, reports: int, rng: np.random.Generator) -> Floats:
        """Draw the counts of outputs (V, outputs) of a history of inputs (V,), with `reports` of each."""
        responses = [rng.choice(len(self.instantaneous), p=row) for row in self.permanent]
        return np.array([rng.multinomial(reports, self.instantaneous[responses[value]]) for value in history], float)

    def log_likelihood(self, counts: Floats, history: Indices, reports: int) -> float:  # noqa: ARG002
        """Return ln P(counts | history), up to a constant."""
        log_once = np.log(np.maximum(self.instantaneous, _TINY))
        with np.errstate(divide="ignore"):
            log_permanent = np.log(self.permanent)
        return sum(
            float(logsumexp(log_permanent[value] + log_once @ counts[history == value].sum(axis=0)))
            for value in np.unique(history)
        )


@dataclass(frozen=True)
class FilterAttack:
    """Attack on a large filter with one hash, of which each bit is independent given the permanent response's true bits.

    permanent : (2, 2) P(permanent bit | true bit)      instantaneous : (2, 2) P(reported bit | permanent bit)      inputs : bits, k
    by_value  : whether each value has its own permanent response; False: values with equal bits share one
    """

    permanent: Floats
    instantaneous: Floats
    inputs: int
    by_value: bool

    def draw(self, history: Indices, reports: int, rng: np.random.Generator) -> Floats:
        """Draw the ones (V, k) in `reports` reports of each filter of a history (V,)."""
        response_of, bits = self._responses(history)
        responses = (rng.random(bits.shape) < self.permanent[bits, 1]).astype(np.intp)
        chances = self.instantaneous[responses[response_of], 1]
        return np.asarray(rng.binomial(reports, chances), np.float64)

    def log_likelihood(self, counts: Floats, history: Indices, reports: int) -> float:
        """Return ln P(counts | history), up to a constant."""
        log_permanent, log_once = (
            np.log(np.maximum(chances, _TINY)) for chances in (self.permanent, self.instantaneous)
        )
        response_of, bits = self._responses(history)
        ones = np.zeros(bits.shape)
        np.add.at(ones, response_of, counts)
        zeros = reports * np.bincount(response_of)[:, None] - ones
        parts = log_permanent[bits] + ones[..., None] * log_once[:, 1] + zeros[..., None] * log_once[:, 0]
        return float(np.logaddexp(parts[..., 0], parts[..., 1]).sum())

    def _responses(self, history: Indices) -> tuple[Indices, Indices]:
        """Return the permanent response of each value (V,), and the true bits of each response (n, k)."""
        key = np.arange(len(history)) if self.by_value else history
        _, first, response_of = np.unique(key, return_index=True, return_inverse=True)
        return response_of, (np.arange(self.inputs) == history[first][:, None]).astype(np.intp)


def shares_above(
    attack: ResponseAttack | FilterAttack,
    lifetime: float,
    values: int,
    reports: int,
    clients: int,
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Return the shares of clients above the lifetime: one other value, all other values. Hashes are uniform and independent."""
    above = np.zeros(2)
    for _ in range(clients):
        first, second = rng.integers(attack.inputs, size=(2, values))
        counts = attack.draw(first, reports, rng)
        own = attack.log_likelihood(counts, first, reports)
        for column, other in enumerate((np.append(second[:1], first[1:]), second)):
            above[column] += own - attack.log_likelihood(counts, other, reports) > lifetime + _ROUNDING_SLACK
    one, every = above / clients
    return float(one), float(every)


def pattern_differs(values: int, filters: int) -> tuple[float, float]:
    """Return the probabilities that two histories differ in which of V values share a filter or cell: one other value, all other.

    All filters are equally likely. Where the patterns differ, the ratio of the histories has no bound as T grows.

    >>> [round(chance, 4) for chance in pattern_differs(2, 3)]  # one of the two pairs in one cell, 2 x 1/3 x 2/3
    [0.4444, 0.4444]
    """

    def distinct(number: int) -> list[float]:
        chances = [1.0]
        for _ in range(number):
            chances = [
                (chances[d] * d if d < len(chances) else 0.0) / filters
                + (chances[d - 1] * (filters - d + 1) / filters if d else 0.0)
                for d in range(len(chances) + 1)
            ]
        return chances

    new = [((filters - d) / filters) ** 2 + d / filters**2 for d in range(values)]
    one = 1 - math.fsum(map(math.prod, zip(distinct(values - 1), new, strict=True)))
    same = 0.0
    for blocks, chance in enumerate(distinct(values)):
        if chance > 0:
            same += chance * math.exp(sum(math.log(filters - i) for i in range(blocks)) - values * math.log(filters))
    return one, 1 - same


def filter_attack(num_bits: int, epsilon: float, permanent_epsilon: float, *, by_value: bool) -> FilterAttack:
    """Return the attack on L-OSUE: P(permanent 1 | 1) = 1/2, q = 1 - p."""
    b = 1 / (math.exp(permanent_epsilon) + 1)

    def excess(p: float) -> float:
        return bit_loss(0.5, (1 - b) * p + b * (1 - p)) - epsilon

    p = 0.0 if epsilon >= permanent_epsilon else brentq(excess, 0.0, 0.5 - 1e-9)
    return FilterAttack(np.array([[1 - b, b], [0.5, 0.5]]), np.array([[1 - p, p], [p, 1 - p]]), num_bits, by_value)
