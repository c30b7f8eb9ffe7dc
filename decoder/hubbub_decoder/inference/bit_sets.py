"""Sums over the sets of bits that one or two random strings may have, and the most probable of these sets.

With A_i the log-likelihood ratio of bit i and r_g the probability of the set g of bits of a random string:

    log sum_g r_g prod_{i in g} exp A_i

For all sets of d bits the mean is e_d(exp A) / C(k, d), with e_d the elementary symmetric polynomial.

Two strings of shares s_1, s_2 have A_i(s_1), A_i(s_2), and A_i(s_1 + s_2) where they meet: coefficients of a polynomial in two variables.
docs/explanation/mathematics.md, equation (16.2).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from scipy.special import logsumexp

from hubbub.metrics.params import Params
from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.model.random_string import distinct_bit_probabilities

Ratios = dict[tuple[int, ...], Floats]
"""Log-likelihood ratios (k, c) of bits, by the strings that set them: a tuple with 0 or 1 for each string, in the order of
`itertools.product((0, 1), repeat=J)`."""


def _size_weights(params: Params) -> Floats:
    """Log of P(d distinct bits) / C(k, d), d = 0 .. min(h, k)."""
    chances = [0.0, *distinct_bit_probabilities(params)]
    return np.array([math.log(p / math.comb(params.num_bits, d)) if p else -math.inf for d, p in enumerate(chances)])


def _final_weights(params: Params, strings: int) -> Floats:
    """Log weights of the numbers of bits of J strings, (min(h, k) + 1,) * J + (1,)."""
    weights = _size_weights(params)
    total = np.zeros((1,))
    for _ in range(strings):
        total = np.add.outer(total, weights)
    return total.reshape(*total.shape[1:], 1)


def _shifted(setters: tuple[int, ...], size: int) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Slices of a table by numbers of bits: before and after these strings set one more bit."""
    return tuple(slice(0, size - one) for one in setters), tuple(slice(one, size) for one in setters)


def sum_over_sets(ratios: Ratios, params: Params) -> Floats:
    """Log of the mean over the random bits of all strings of the product of the bits' likelihood ratios, (c,).

    Sums by the strings' numbers of bits, of half of the bits and of the other half, are joined until one group is left.
    """
    strings = len(next(iter(ratios)))
    sums = np.stack(list(ratios.values()))  # in the order of the numbers of bits
    sums = sums.reshape((2,) * strings + sums.shape[1:])
    while sums.shape[-2] > 1:
        if sums.shape[-2] % 2:  # a bit that no string sets
            unset = np.full((*sums.shape[:-2], 1, sums.shape[-1]), -np.inf)
            unset[(0,) * strings] = 0.0
            sums = np.concatenate([sums, unset], axis=-2)
        sums = _joined(sums[..., ::2, :], sums[..., 1::2, :], max(params.possible_ones))
    return np.asarray(logsumexp(_final_weights(params, strings) + sums[..., 0, :], axis=tuple(range(strings))))


def _joined(left: Floats, right: Floats, most: int) -> Floats:
    """Log of the coefficients of the product of two polynomials, up to `most` bits of each string.

    left, right : log of their coefficients, (number of bits of each string, ..., groups, cohorts)
    """
    degrees = left.shape[:-2]
    sizes = tuple(min(2 * degree - 1, most + 1) for degree in degrees)

    def terms() -> Iterator[tuple[tuple[slice, ...], Floats]]:
        for number in np.ndindex(*degrees):
            ends = tuple(min(n + degree, size) for n, degree, size in zip(number, degrees, sizes, strict=True))
            target = tuple(slice(n, end) for n, end in zip(number, ends, strict=True))
            yield target, left[number] + right[tuple(slice(0, end - n) for n, end in zip(number, ends, strict=True))]

    largest = np.full((*sizes, *left.shape[-2:]), -np.inf)
    for target, term in terms():
        np.maximum(largest[target], term, out=largest[target])
    largest[largest == -np.inf] = 0.0  # so that no difference is undefined
    total = np.zeros_like(largest)
    for target, term in terms():
        total[target] += np.exp(term - largest[target])
    with np.errstate(divide="ignore"):
        return np.asarray(largest + np.log(total))


def most_probable_sets(ratios: Ratios, params: Params) -> tuple[Floats, Indices]:
    """Log weight of the most probable bits of all strings, (c,), and which string sets which bit there, (c, k, J) of 0 and 1."""
    strings, size = len(next(iter(ratios))), max(params.possible_ones) + 1
    k, cohorts = next(iter(ratios.values())).shape
    options = list(ratios)
    state = np.full((size,) * strings + (cohorts,), -np.inf)
    state[(0,) * strings] = 0
    choices = np.zeros((k, *state.shape), np.int8)
    for bit in range(k):
        after = np.full_like(state, -np.inf)
        for number, those in enumerate(options):
            source, target = _shifted(those, size)
            value = state[source] + ratios[those][bit]
            better = value > after[target]
            after[target] = np.where(better, value, after[target])
            choices[bit][target] = np.where(better, number, choices[bit][target])
        state = after
    weighted = (state + _final_weights(params, strings)).reshape(-1, cohorts)
    best = weighted.argmax(axis=0)
    at = np.stack(np.unravel_index(best, state.shape[:-1]), axis=1)
    chosen = np.zeros((cohorts, k, strings), np.intp)
    every = np.arange(cohorts)
    for bit in reversed(range(k)):
        chosen[:, bit] = np.array(options)[choices[(bit, *at.T, every)]]
        at = at - chosen[:, bit]
    return weighted[best, every], chosen
