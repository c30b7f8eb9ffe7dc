"""Random numbers that are the same with every version of numpy.

The methods of numpy.random.Generator may draw other numbers after an update of numpy: `binomial` does from numpy 2.5 on. The other numbers of
numpy.random.RandomState are frozen, and so are the bits of a bit generator. Source: NEP 19 of numpy, "Random Number Generator Policy".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import ParameterError
from hubbub_decoder.array_types import Floats


def seeded(seed: int | Sequence[int] | None) -> np.random.RandomState:
    """Return a source of random numbers; without a seed, the operating system seeds it.

    >>> int(seeded(1).binomial(15_000, 0.1))
    1481
    """
    return np.random.RandomState(np.random.PCG64(seed))


def frozen(rng: np.random.Generator) -> np.random.RandomState:
    """Return a source that draws the bits of a generator, which it advances.

    >>> generator = np.random.default_rng(1)
    >>> int(frozen(generator).binomial(15_000, 0.1))
    1481
    """
    if not isinstance(rng, np.random.Generator):
        raise ParameterError(
            "rng must be a numpy.random.Generator", f"{type(rng).__name__}: pass numpy.random.default_rng(seed)"
        )
    return np.random.RandomState(rng.bit_generator)


def multinomial(counts: NDArray[np.int64], weights: Floats, rng: np.random.RandomState) -> NDArray[np.int64]:
    """Return how many of each count (V,) fall into each of m categories, (V, m); the weights (m,) need not add up to 1.

    Each half of the categories gets a binomial number, then each half of a half. `RandomState.multinomial` is not frozen: it
    draws other numbers from numpy 2.5 on.

    >>> multinomial(np.array([0, 10]), np.array([0.0, 2.0, 0.0]), seeded(1)).tolist()
    [[0, 0, 0], [0, 10, 0]]
    >>> multinomial(np.zeros(0, np.int64), np.ones(3), seeded(1)).shape
    (0, 3)
    """
    size = 1 << (len(weights) - 1).bit_length()
    padded, drawn = np.append(weights, np.zeros(size - len(weights))), counts[:, None]
    while drawn.shape[1] < size:
        halves = padded.reshape(drawn.shape[1], 2, -1).sum(axis=2)
        both = halves.sum(axis=1)
        chance = np.divide(halves[:, 0], both, out=np.zeros_like(both), where=both > 0)
        first = rng.binomial(drawn, chance)
        drawn = np.stack([first, drawn - first], axis=2).reshape(len(counts), 2 * drawn.shape[1])
    return drawn[:, : len(weights)]
