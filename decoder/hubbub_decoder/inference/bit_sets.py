"""Sums and maxima over the random sets of bits of one or two strings, so that no bit has to be chosen.

With A_i the log-likelihood ratio of bit i and r_g the probability of the set g of bits of a random string:

    log sum_g r_g prod_{i in g} exp A_i        all sets of d bits: e_d(exp A) / C(k, d), e_d the elementary symmetric polynomial

Two strings of shares s_1, s_2 have A_i(s_1), A_i(s_2), and A_i(s_1 + s_2) where they meet: coefficients of a polynomial in two variables.
docs/mathematics.md, section 16.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np
from scipy.special import logsumexp

from hubbub.metrics.params import Params
from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.model.random_string import distinct_bit_probabilities

Ratios = dict[tuple[int, ...], Floats]
"""Log-likelihood ratios (k, c) of bits, by the strings that set them: a tuple with 0 or 1 for each string."""


def _size_weights(params: Params) -> Floats:
    """Log of P(d distinct bits) / C(k, d), d = 0 .. h."""
    chances = [0.0, *distinct_bit_probabilities(params)]
    return np.array([math.log(p / math.comb(params.num_bits, d)) if p else -math.inf for d, p in enumerate(chances)])


def _final_weights(params: Params, strings: int) -> Floats:
    """Log weights of the numbers of bits of all strings, (h + 1,) * J + (1,)."""
    weights = _size_weights(params)
    total = np.zeros((1,))
    for _ in range(strings):
        total = np.add.outer(total, weights)
    return total.reshape(*total.shape[1:], 1)


def _shifted(those: tuple[int, ...], size: int) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Numbers of bits before and after these strings set one more."""
    return tuple(slice(0, size - one) for one in those), tuple(slice(one, size) for one in those)


def sum_over_sets(ratios: Ratios, params: Params) -> Floats:
    """Log of the mean over the random bits of all strings of the product of the bits' likelihood ratios, (c,).

    Sums by the strings' numbers of bits, of half of the bits and of the other half, are joined until one group is left.
    """
    most = params.num_hashes
    sums: Ratios = dict(ratios)
    while (groups := len(next(iter(sums.values())))) > 1:
        if groups % 2:  # a bit that no string sets
            sums = {
                n: np.vstack([each, np.full((1, each.shape[1]), -np.inf if any(n) else 0.0)])
                for n, each in sums.items()
            }
        joined: Ratios = {}
        for (n, left), (o, right) in product(sums.items(), repeat=2):
            number = tuple(a + b for a, b in zip(n, o, strict=True))
            if max(number) <= most:
                term = left[::2] + right[1::2]
                joined[number] = np.logaddexp(joined[number], term) if number in joined else term
        sums = joined
    weights = _final_weights(params, len(next(iter(sums))))
    return np.asarray(logsumexp([weights[number] + each[0] for number, each in sums.items()], axis=0))


def most_probable_sets(ratios: Ratios, params: Params) -> tuple[Floats, Indices]:
    """Log weight of the most probable bits of all strings, (c,), and which string sets which bit there, (c, k, J) of 0 and 1."""
    strings, size = len(next(iter(ratios))), params.num_hashes + 1
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
