"""Attacks on individual reports: simulated observers, and losses as sums over bits."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hubbub import Params
from tests.support.enumerate_mechanism import Floats


def counts(t: int, rate: float) -> Floats:
    """Return the probability of each number of ones in t reports."""
    return np.array([math.comb(t, s) * rate**s * (1 - rate) ** (t - s) for s in range(t + 1)])


def permanent(params: Params, true: int) -> tuple[float, float]:
    """Return the probabilities that a permanent bit is zero and one."""
    one = params.mechanism.permanent_q if true else params.mechanism.permanent_p
    return 1 - one, one


def one_bit(params: Params, t: int, true: int) -> Floats:
    """Return the probability of each number of ones in t reports of a true bit."""
    zero, one = permanent(params, true)
    return zero * counts(t, params.mechanism.prob_p) + one * counts(t, params.mechanism.prob_q)


def one_bit_twice(params: Params, t: int, true: int) -> Floats:
    """Return the joint probabilities of the numbers of ones in t reports and t later reports with the same permanent bit."""
    chances = zip(
        permanent(params, true), (counts(t, params.mechanism.prob_p), counts(t, params.mechanism.prob_q)), strict=True
    )
    return np.asarray(sum(chance * np.outer(law, law) for chance, law in chances))


def share_matched(params: Params, people: int, t: int, rng: np.random.Generator) -> float:
    """Return the share of clients, all with one value, with t reports linked correctly to their t other reports."""
    k, h = params.num_bits, params.num_hashes
    true = np.arange(k) < h
    chance_of_one = np.where(true, permanent(params, 1)[1], permanent(params, 0)[1])
    prr = rng.random((people, k)) < chance_of_one
    before, after = (rng.binomial(t, np.where(prr, params.mechanism.prob_q, params.mechanism.prob_p)) for _ in range(2))
    score = np.zeros((people, people))
    for bits, bit in ((np.flatnonzero(true), 1), (np.flatnonzero(~true), 0)):
        alone, both = one_bit(params, t, bit), one_bit_twice(params, t, bit)
        ratio = np.log(np.maximum(both, 1e-300)) - np.log(np.maximum(np.outer(alone, alone), 1e-300))
        for s in range(t + 1):
            score += (before[:, bits] == s).astype(float) @ ratio[s][after[:, bits]].T
    return float(np.mean(score.argmax(axis=1) == np.arange(people)))


@dataclass(frozen=True)
class Loss:
    """Largest log-likelihood ratio of any output, and its mean under each hypothesis."""

    worst: float
    mean: float


def loss_of_a_change(params: Params, t: int) -> Loss:
    """Return the loss of 2t linked reports between "v, then w" and "v, then v" (t each).

    All k permanent bits are drawn again, or not. The mean is over the outputs of a client with a changed value.
    """
    k, h = params.num_bits, params.num_hashes
    worst = [0.0, 0.0]
    mean = 0.0
    for before, after, bits in ((1, 0, h), (0, 1, h), (0, 0, k - 2 * h)):
        stayed = one_bit_twice(params, t, before)
        changed = np.outer(one_bit(params, t, before), one_bit(params, t, after))
        ratio = np.log(changed) - np.log(stayed)
        worst[0] += bits * ratio.max()
        worst[1] -= bits * ratio.min()
        mean += bits * float(np.sum(changed * ratio))
    return Loss(max(worst), mean)


def bits_that_differ(params: Params) -> float:
    """Return the mean number of permanent bits in which two values without a common true bit differ."""
    b, a, k, h = params.mechanism.permanent_p, params.mechanism.permanent_q, params.num_bits, params.num_hashes
    return (k - 2 * h) * 2 * b * (1 - b) + 2 * h * (a * (1 - b) + b * (1 - a))
