"""Brent's method against scipy's, on random functions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from hubbub_decoder.inference.maximum import maximum


def test_steps_are_those_of_scipy(unseen_seed: int) -> None:
    """The places at which the function is evaluated agree, for maxima inside the limits, at a limit, and of kinked functions."""
    rng = np.random.default_rng(unseen_seed)
    for _ in range(300):
        low, high = sorted(rng.normal(0, 5, 2).tolist())
        top, width, kink = rng.normal(0, 5), math.exp(rng.normal()), rng.uniform(0, 1)

        def function(x: float, top: float = top, width: float = width, kink: float = kink) -> float:
            return -math.log(math.cosh((x - top) / width)) - kink * abs(x - top)

        ours: list[float] = []
        theirs: list[float] = []
        place, value = maximum(lambda x: ours.append(x) or function(x), low, high)  # type: ignore[func-returns-value]  # noqa: B023
        options = {"xatol": 1e-3}
        found = minimize_scalar(
            lambda x: theirs.append(x) or -function(x),  # type: ignore[func-returns-value]  # noqa: B023
            bounds=(low, high),
            method="bounded",
            options=options,
        )
        assert ours == pytest.approx(theirs, rel=1e-6, abs=1e-6)
        assert (place, value) == pytest.approx((found.x, -found.fun), rel=1e-6, abs=1e-6)
