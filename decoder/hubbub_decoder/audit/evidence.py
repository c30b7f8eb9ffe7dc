"""Tests of an audit: their p-values, their family level, and the smallest p-value of many comparisons.

All tests of a run share one level: a run refutes a client that has the declared law with probability at most `FAMILY_LEVEL`.

    level of one test = FAMILY_LEVEL / (MAX_TESTS * metrics of the run)                Bonferroni over tests
    p-value of a test = number of its comparisons * smallest p-value of a comparison    Bonferroni over comparisons

Binomial tails are exact: P(X >= x) = I_p(x, n - x + 1), the regularized incomplete beta function.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc

from hubbub_decoder.array_types import Floats

FAMILY_LEVEL = 1e-6
MAX_TESTS = 20
"""Tests of one metric, or fewer."""
LEVEL = FAMILY_LEVEL / MAX_TESTS


@dataclass(frozen=True, slots=True)
class NoiseTest:
    """Result of one test of an audit.

    Attributes
    ----------
    name
        What is compared.
    p_value
        Largest probability that a client with the declared law shows this much or more, in [0, 1]. It is 1 if the test did
        not run.
    finding
        Result in words.
    level
        Level of the test: a p-value of at most this refutes.
    """

    name: str
    p_value: float
    finding: str
    level: float = LEVEL

    @property
    def refuted(self) -> bool:
        """Whether the client does not have the declared law."""
        return self.p_value <= self.level


@dataclass(slots=True)
class Comparisons:
    """Comparisons of one test: their number, and the finding of the smallest p-value."""

    name: str
    number: float = 0
    smallest: float = 1.0
    finding: str = ""

    def add(self, p_values: ArrayLike, number: float | None = None) -> tuple[int, ...] | None:
        """Add comparisons, and return the index of their smallest p-value if it is the smallest so far: then describe it in `finding`.

        p_values : array of any shape, at least one
        number   : comparisons that they stand for. None: as many as there are
        """
        values = np.asarray(p_values, float)
        self.number += values.size if number is None else number
        at = np.unravel_index(int(values.argmin()), values.shape)
        if not values[at] < self.smallest:
            return None
        self.smallest = float(values[at])
        return tuple(int(i) for i in at)

    def result(self, passed: str, advice: str) -> NoiseTest:
        """Result of the test, in words for a client that passes, or with advice for one that does not."""
        p_value = min(1.0, max(self.number, 1.0) * self.smallest)
        test = NoiseTest(self.name, p_value, passed)
        return NoiseTest(self.name, p_value, f"{self.finding}. {advice}") if test.refuted else test


def binomial_tails(counts: Any, trials: Any, chances: Any) -> Floats:
    """Exact two-sided p-values of binomial counts: twice the smaller tail, at most 1.

    >>> binomial_tails([0, 5, 10, 1], 10, [0.5, 0.5, 0.5, 0]).round(4)
    array([0.002, 1.   , 0.002, 0.   ])
    """
    x, n, p = np.broadcast_arrays(*(np.asarray(array, float) for array in (counts, trials, chances)))
    upper = np.where(x > 0, betainc(np.maximum(x, 1), n - x + 1, p), 1.0)
    lower = np.where(x < n, betainc(np.maximum(n - x, 1), x + 1, 1 - p), 1.0)
    tails: Floats = np.minimum(1.0, 2 * np.minimum(upper, lower))
    return tails
