"""Printed detection limits: the probability that such a share is detected, by enumeration of the counts of one bit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom, hypergeom

from hubbub import Metric, UnaryResponse
from hubbub.summary import BitCounts
from hubbub_decoder import Decoding, decode
from hubbub_decoder.options import Target
from tests.calibration.test_single_bits import unary

LEAST, MOST = 0.88, 0.93
REPORTS = (20, 50, 300, 5_000, 1_000_000)


def set_of(items: int, epsilon: float) -> Metric:
    """Return a set, each item of which is one bit with symmetric noise."""
    return Metric.set("s", [f"i{i}" for i in range(items)], UnaryResponse(**unary(epsilon)))


def decode_counts(metric: Metric, reports: int, ones: int, target: Target) -> Decoding:
    """Return the decoding in which the first item has this count, and the others that of an item that nobody uses."""
    counts = np.full(metric.num_cohorts, round(reports * metric.params.mechanism.p_star))
    counts[0] = ones
    return decode(BitCounts(metric, [reports] * metric.num_cohorts, counts[:, None]), target=target)


def least_detected(metric: Metric, reports: int, target: Target) -> int:
    """Return the least count with which the first item is detected, up to 10 standard deviations above that of nobody; above it if none is."""
    p = metric.params.mechanism.p_star
    low = math.floor(reports * p)
    high = min(reports, math.ceil(reports * p + 10 * (1 + math.sqrt(reports * p * (1 - p))))) + 1
    while low < high:
        middle = (low + high) // 2
        found = decode_counts(metric, reports, middle, target)["i0"].detected
        low, high = (low, middle) if found else (middle + 1, high)
    return low


def power(metric: Metric, reports: int, share: float, least: int, target: Target) -> float:
    """Return the probability of at least so many ones of a bit with this share, interpolated on the grid of the reporters."""
    p, q = metric.params.mechanism.p_star, metric.params.mechanism.q_star
    if target == "population":
        return float(binom.sf(least - 1, reports, p + (q - p) * share))
    grid, chances = reports * metric.num_cohorts, []
    users = np.array([math.floor(share * grid), math.ceil(share * grid)])
    for number in users.tolist():
        asked = hypergeom(grid, number, reports)
        h = np.arange(int(asked.ppf(1e-6)), int(asked.isf(1e-6)) + 1)[:, None]
        own = np.arange(int(h.max()) + 1)
        chances.append(
            asked.pmf(h[:, 0]) @ (binom.pmf(own, h, q) * binom.sf(least - 1 - own, reports - h, p)).sum(axis=1)
        )
    return float(np.interp(share, users / grid, chances))


@pytest.mark.parametrize("target", ["reporters", "population"])
@pytest.mark.parametrize("reports", REPORTS)
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("items", [2, 40])
def test_an_item_at_the_limit_is_detected_with_the_printed_probability(
    items: int, epsilon: float, reports: int, target: Target
) -> None:
    """Between .88 and .93, whatever the noise; a limit above 1 says that even a share of 1 has less."""
    if target == "reporters" and reports > 5_000:
        pytest.skip("the reporters of so many are like a population")
    metric = set_of(items, epsilon)
    limit, least = decode_counts(metric, reports, 0, target).detection_limit, least_detected(metric, reports, target)
    if limit > 1:
        assert power(metric, reports, 1.0, least, target) < MOST
    else:
        assert LEAST <= power(metric, reports, limit, least, target) <= MOST, (limit, least)
