"""Privacy loss of a client's reports over many periods, by enumeration from the parameters, without closed forms.

A history is the Bloom filter of each period. The permanent response of a period is that of:

    hold = E      the epoch of E periods; its first filter is reported in all of them
    noise         the filter; equal filters share one
    f = 0         the report; each has its own instantaneous noise only

Bits are independent given the filters. So the loss of two histories is a sum over bits of the largest log-likelihood ratio
of a sequence of outputs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Sequence

import numpy as np

from hubbub import Metric
from tests.support.enumerate_mechanism import Floats, instantaneous_kernel, permanent_kernel

MAX_PERIODS = 10


def filters_of(metric: Metric) -> list[int]:
    """Return every Bloom filter that a value, or no value, can have."""
    k, h = metric.num_bits, metric.params.num_hashes
    if not metric.kind.needs_candidates:
        return [0, *(1 << bit for bit in range(k))]
    return [0, *(sum(1 << bit for bit in bits) for bits in itertools.combinations(range(k), h))]


def responses_of(metric: Metric, history: Sequence[int], start: int = 0) -> list[tuple[Hashable, int]]:
    """Return the permanent response of each period, and its filter."""
    reported: list[tuple[Hashable, int]] = []
    held: dict[int, int] = {}
    for period, bloom in enumerate(history, start):
        if metric.hold is not None:
            epoch = period // metric.hold
            reported.append((epoch, held.setdefault(epoch, bloom)))
        else:
            reported.append((period if metric.params.mechanism.prob_f == 0 else bloom, bloom))
    return reported


def bit_outputs(metric: Metric, reported: Sequence[tuple[Hashable, int]], bit: int) -> Floats:
    """(2**T,): P(outputs of one bit over all T periods | the history), summed over every permanent response."""
    assert len(reported) <= MAX_PERIODS
    permanent, once = permanent_kernel(metric.params), instantaneous_kernel(metric.params)
    joint = np.ones((2,) * len(reported))
    for response in dict.fromkeys(response for response, _ in reported):
        periods = [at for at, (used, _) in enumerate(reported) if used == response]
        true = reported[periods[0]][1] >> bit & 1
        group: Floats = np.zeros((2,) * len(periods))
        for drawn in (0, 1):
            part = np.array(permanent[true, drawn])
            for _ in periods:
                part = np.multiply.outer(part, once[drawn])
            group = group + part
        shape = [2 if at in periods else 1 for at in range(len(reported))]
        joint = joint * group.reshape(shape)
    return joint.ravel()


def outputs(metric: Metric, history: Sequence[int], start: int = 0) -> Floats:
    """(k, 2**T): `bit_outputs` of every bit."""
    reported = responses_of(metric, history, start)
    return np.array([bit_outputs(metric, reported, bit) for bit in range(metric.num_bits)])


def losses(distributions: Sequence[Floats]) -> Floats:
    """(n, n): the largest ln(P(o | a) / P(o | b)) over all outputs of all bits, for every pair of histories."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(np.array(distributions))
        ratios = logs[:, None] - logs[None, :]
    ratios[np.isnan(ratios)] = -np.inf  # an output that neither history can have
    worst: Floats = ratios.max(axis=-1).sum(axis=-1)
    return worst


def largest_loss_while_unchanged(metric: Metric, reports: int) -> float:
    """Return the largest loss between two filters of t reports from one permanent response, over all pairs and outputs.

    The output of one bit is its number of ones, 0 .. t.
    """
    params = metric.params
    ones = np.arange(reports + 1)
    with np.errstate(divide="ignore"):
        of_zero, of_one = (
            _times(ones, np.log(p)) + _times(reports - ones, np.log1p(-p))
            for p in (params.mechanism.prob_p, params.mechanism.prob_q)
        )
        kernel = np.log(permanent_kernel(params))
        # without the common factor: beside the logs of thousands of reports, the ratio loses 12 digits
        larger = np.maximum(of_zero, of_one)
        of_zero, of_one = (logs - np.where(np.isfinite(larger), larger, 0) for logs in (of_zero, of_one))
        log_true = np.array([np.logaddexp(kernel[true, 0] + of_zero, kernel[true, 1] + of_one) for true in (0, 1)])
    possible = np.isfinite(log_true).any(axis=0)
    first, second = log_true[:, possible]
    one_to_zero, zero_to_one = float((second - first).max()), float((first - second).max())
    bits = np.array([[bloom >> bit & 1 for bit in range(params.num_bits)] for bloom in filters_of(metric)])
    only_first, only_second = bits @ (1 - bits).T, (1 - bits) @ bits.T
    pairs = _times(only_first, np.float64(one_to_zero)) + _times(only_second, np.float64(zero_to_one))
    return float(pairs.max())


def _times(count: Floats | np.ndarray[tuple[int, ...], np.dtype[np.int64]], loss: np.floating) -> Floats:
    """Return the product, with 0 x infinity = 0."""
    return np.where(count == 0, 0.0, np.where(count == 0, 1, count) * loss)


def pattern_of(history: Sequence[Hashable]) -> tuple[int, ...]:
    """Return the first period of each value: two histories with the same change, and return to earlier values, at the same times."""
    return tuple(map(history.index, history))


def same_patterns(histories: Sequence[Sequence[int]]) -> Floats:
    """(n, n) bool: whether two histories are equal to themselves in the same pairs of periods."""
    patterns = list(map(pattern_of, histories))
    return np.array([[a == b for b in patterns] for a in patterns], float)


def is_close(printed: float, exact: float) -> bool:
    return printed == exact or math.isclose(printed, exact, abs_tol=1e-9)
