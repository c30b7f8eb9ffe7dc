"""A second mechanism, for tests of the interface: subset selection without a permanent response, whose bits depend on each other."""

# ruff: noqa: ARG002  (arguments of the interface)

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.mechanisms.blanket import CERTAIN, Blanket, Part
from hubbub.mechanisms.mechanism import MECHANISMS, Mechanism
from hubbub.randomness import RandomBytes


@dataclass(frozen=True, slots=True, init=False)
class SubsetSelection(Mechanism):
    """Row of k bits with exactly w ones; the one true bit is among them with probability q (Ye and Barg 2018, arXiv 1702.00610).

    num_values : k        num_ones : w        prob_q : q
    """

    word = "subset"
    required_fields = ("num_values", "num_ones", "prob_q")
    optional_fields = ()

    num_values: int
    num_ones: int
    prob_p: float
    prob_q: float
    permanent_p: float
    permanent_q: float

    def __init__(self, num_values: int, num_ones: int, prob_q: float) -> None:
        prob_p = (num_ones - prob_q) / (num_values - 1)
        fields = (num_values, num_ones, prob_p, prob_q, 0.0, 1.0)
        for name, value in zip(self.__slots__, fields, strict=True):
            object.__setattr__(self, name, value)

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any]) -> SubsetSelection:
        return cls(**fields)

    @property
    def fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.required_fields}

    @property
    def probabilities(self) -> dict[str, float]:
        return {"w": self.num_ones, "q": self.prob_q}

    @property
    def digest_fields(self) -> dict[str, Any]:
        return self.fields

    def check_num_bits(self, num_bits: int) -> None:
        assert num_bits == self.num_values

    def require_collectable(self, name: str) -> None:
        assert self.prob_p < self.prob_q < 1, name

    @property
    def has_permanent_noise(self) -> bool:
        return False

    def permanent_response(self, num_bits: int) -> tuple[int, Callable[[int, bytes], int]]:
        return 0, lambda bits, _: bits

    def instantaneous_response(self, num_bits: int, random_bytes: RandomBytes) -> Callable[[int], int]:
        def respond(bits: int) -> int:
            rng = np.random.default_rng(int.from_bytes(random_bytes(16), "little"))
            row = next(self.simulate(np.array([[bits.bit_length() - 1]]), num_bits, 1, rng))[0]
            return sum(1 << int(position) for position in np.flatnonzero(row))

        return respond

    def simulate(
        self, true_bits: NDArray[np.intp], num_bits: int, reports: int, rng: np.random.Generator
    ) -> Iterator[NDArray[np.bool_]]:
        for _ in range(reports):
            order = rng.random((len(true_bits), num_bits))
            kept = rng.random(len(true_bits)) < self.prob_q
            order[np.arange(len(order)), true_bits[:, 0]] = np.where(kept, -1, 2)
            rows = np.zeros(order.shape, bool)
            np.put_along_axis(rows, order.argsort(axis=1)[:, : self.num_ones], values=True, axis=1)
            yield rows

    def epsilon(self, num_bits: int, possible_ones: Iterable[int], reports: float) -> float:
        odds = self.prob_q * (num_bits - self.num_ones) / ((1 - self.prob_q) * self.num_ones)
        return reports * math.log(odds)

    def blanket(self, num_bits: int, possible_ones: Iterable[int], epochs: Sequence[float]) -> Blanket:
        """The blanket of one report is the uniform distribution over rows; P_x / w depends on whether x is among the ones."""
        if tuple(epochs) != (1,):
            return Blanket(0.0, ())
        k, w = num_bits, self.num_ones
        ratios = ((1 - self.prob_q) * k / (k - w), self.prob_q * k / w)
        chances = {(1, 1): w * (w - 1), (1, 0): w * (k - w), (0, 1): w * (k - w), (0, 0): (k - w) * (k - w - 1)}
        parts = tuple(
            Part(chance / (k * (k - 1)), CERTAIN, ((1.0, ratios[first]),), ((1.0, ratios[second]),))
            for (first, second), chance in chances.items()
        )
        return Blanket(ratios[0], (parts,))

    def mutual_information(self, num_bits: int, possible_ones: Iterable[int], reports: float) -> float:
        return 0.0

    def ones_distribution(self, num_bits: int, true_ones: int) -> NDArray[np.float64]:
        return np.asarray(np.eye(num_bits + 1)[self.num_ones])

    def log_collision(self, num_bits: int, true_ones: int, reports: int) -> float:
        k, w, q = num_bits, self.num_ones, self.prob_q
        return reports * math.log(q**2 / math.comb(k - 1, w - 1) + (1 - q) ** 2 / math.comb(k - 1, w))

    def noise_covariances(self) -> tuple[tuple[float, float], tuple[float, float]]:
        k, w, p, q = self.num_values, self.num_ones, self.prob_p, self.prob_q
        both_false = (q * (w - 1) * (w - 2) + (1 - q) * w * (w - 1)) / ((k - 1) * (k - 2))
        return (both_false - p * p, q * (w - 1) / (k - 1) - q * p), (0.0, 0.0)


del MECHANISMS["subset"]  # a test that reads definitions with it registers it again
