"""Distribution of t reports, by enumeration of the mechanism.

No closed form is used: the PRR of a bit is enumerated over (mask, fair coin) or over its two masks, its IRR over p and q.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from hubbub import Params

Floats = NDArray[np.float64]


def permanent_kernel(params: Params) -> Floats:
    """(2, 2): P(permanent bit | true bit), over the mask of f and the fair coin, or over the masks of permanent_p and permanent_q."""
    kernel = np.zeros((2, 2))
    if params.mechanism.prob_f is None:
        b, a = params.mechanism.permanent_p, params.mechanism.permanent_q
        for true, mask_b, mask_a in itertools.product((0, 1), repeat=3):
            kernel[true, mask_a if true else mask_b] += (b if mask_b else 1 - b) * (a if mask_a else 1 - a)
        return kernel
    for true, masked, coin in itertools.product((0, 1), repeat=3):
        chance = (params.mechanism.prob_f if masked else 1 - params.mechanism.prob_f) / 2
        kernel[true, coin if masked else true] += chance
    return kernel


def instantaneous_kernel(params: Params) -> Floats:
    """(2, 2): P(reported bit | permanent bit)."""
    return np.array(
        [[1 - params.mechanism.prob_p, params.mechanism.prob_p], [1 - params.mechanism.prob_q, params.mechanism.prob_q]]
    )


def of_all_bits(kernel: Floats, num_bits: int) -> Floats:
    """(2**k, 2**k): independent bits; index i's bit b is bit b of the pattern."""
    joint: Floats = np.ones((1, 1))
    for _ in range(num_bits):
        joint = np.kron(joint, kernel).astype(np.float64)
    return joint


def report_distribution(params: Params, filters: list[int], reports: int) -> Floats:
    """(filters, 2**(k t)): P(all t reports | the Bloom bits, one PRR behind all of them)."""
    k = params.num_bits
    permanent = of_all_bits(permanent_kernel(params), k)[filters]
    once = of_all_bits(instantaneous_kernel(params), k)
    all_reports = once
    for _ in range(reports - 1):
        all_reports = np.einsum("po,pr->por", all_reports, once).reshape(len(once), -1)
    return permanent @ all_reports


def bloom_filters(num_bits: int, sizes: set[int]) -> list[int]:
    """Return all filters with a number of ones."""
    return [bits for bits in range(1 << num_bits) if bits.bit_count() in sizes]


def largest_loss(distribution: Floats) -> float:
    """The largest ln(P(o | a) / P(o | b)) over outputs o and rows a, b."""
    with np.errstate(divide="ignore"):
        logs = np.log(distribution)
    possible = np.isfinite(logs)
    if (possible.any(axis=0) & ~possible.all(axis=0)).any():
        return np.inf
    spread = logs[:, possible.all(axis=0)]
    return float((spread.max(axis=0) - spread.min(axis=0)).max())
