"""Sums over all bit patterns of products over bits, without a table of the patterns.

For functions f_0 .. f_r of one bit and a number v_s for each pattern s of k bits,

    S(t) = sum_s v_s prod_i f_(t_i)(s_i)        t : one digit 0 .. r for each bit

The sum factors: bits are summed out four at a time, and of the digits so far only those with a sum of at most a given degree are kept.
With non-negative functions and numbers nothing cancels, so S is exact to rounding also where probabilities are near 0 or 1.
This is the fast Walsh-Hadamard transform for other functions than 1 and +-1. Source: Yates 1937, "The design and analysis of factorial
experiments".
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from hubbub_decoder.array_types import Floats, Indices

_BITS_AT_ONCE = 4


@dataclass(frozen=True, eq=False)
class BitProductSums:
    """S(t) for all digits t with a sum of at most a given degree.

    digits : (n,) ascending, t as a number to base r + 1, that of bit 0 last
    steps  : matrix (products, 2**bits) of some bits' products of functions, and the rows to keep of all products so far
    """

    digits: NDArray[np.int64]
    steps: tuple[tuple[Floats, Indices], ...]

    @classmethod
    def of_functions(cls, functions: Floats, num_bits: int, degree: int) -> BitProductSums:
        """Sums for functions (r + 1, 2), row f, column the bit's value.

        >>> sums = BitProductSums.of_functions(np.array([[1.0, 1.0], [0.0, 1.0]]), 2, degree=1)
        >>> sums.digits.tolist(), sums(np.array([1.0, 10.0, 100.0, 1000.0])).tolist()  # all, with bit 0, with bit 1
        ([0, 1, 2], [1111.0, 1010.0, 1100.0])
        """
        base, digits, degrees = len(functions), np.zeros(1, np.int64), np.zeros(1, np.int64)
        steps = []
        for start in range(0, num_bits, _BITS_AT_ONCE):
            width = min(_BITS_AT_ONCE, num_bits - start)
            chosen = np.array(list(product(range(base), repeat=width)))
            matrix: Floats = np.ones((1, 1))
            for _ in range(width):
                matrix = np.asarray(np.kron(matrix, functions))
            total = (degrees[:, None] + chosen.sum(axis=1)).ravel()
            kept = np.flatnonzero(total <= degree)
            steps.append((matrix, kept))
            digits = (digits[:, None] * base**width + np.arange(base**width)).ravel()[kept]
            degrees = total[kept]
        return cls(digits, tuple(steps))

    def __call__(self, values: Floats) -> Floats:
        """S (n,) of v (2**k,); bit i of the index is bit i of the pattern."""
        sums = values[None]
        for matrix, kept in self.steps:
            patterns = sums.reshape(len(sums), matrix.shape[1], -1)
            sums = (matrix @ patterns).reshape(len(sums) * len(matrix), -1)[kept]
        return np.asarray(sums[:, 0])

    def indices(self, digits: NDArray[np.int64]) -> Indices:
        """Positions in `digits` of some of them."""
        return np.searchsorted(self.digits, digits)
