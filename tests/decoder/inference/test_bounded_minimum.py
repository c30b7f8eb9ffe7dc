"""Minimum of a function of one variable on an interval."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from hubbub_decoder.inference.bounded_minimum import bounded_minimum

FUNCTIONS: list[Callable[[float], float]] = [
    lambda x: (x - 0.7) ** 2,
    lambda x: abs(x - 0.3),
    lambda x: x,
    lambda x: -x,
    lambda x: math.exp(-x) + 0.1 * x**2,
    lambda x: -math.exp(-100 * (x - 2.5) ** 2),
    lambda _: 1.0,
]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("tolerance", [1e-3, 1e-8])
def test_takes_the_steps_of_scipys_bounded_minimization(function: Callable[[float], float], tolerance: float) -> None:
    def counted(x: float) -> float:
        calls.append(x)
        return function(x)

    for low, high in ((-3.0, 4.0), (0.0, 1.0)):
        calls: list[float] = []
        theirs = minimize_scalar(function, bounds=(low, high), method="bounded", options={"xatol": tolerance})
        x, value = bounded_minimum(counted, low, high, tolerance)
        assert (x, value, len(calls)) == (theirs.x, theirs.fun, theirs.nfev)
        assert all(low <= call <= high for call in calls)


def test_finds_the_minimum_of_random_unimodal_functions(unseen_seed: int) -> None:
    rng = np.random.default_rng(unseen_seed)
    for centre, power in zip(rng.uniform(-9, 9, 100), rng.uniform(1.1, 4, 100), strict=True):
        x, value = bounded_minimum(lambda x, c=centre, k=power: abs(x - c) ** k, -10, 10, 1e-6)  # type: ignore[misc]
        assert value <= (10 * abs(x) * 1.5e-8 + 1e-5) ** power
