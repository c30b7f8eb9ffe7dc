"""Shares that are estimated from the count of one bit: coverage and width of their intervals at shares from 0 to 1, for every count.

The law of the count c of n reports is exact, so nothing here is random. K of N reporters have the value:

    c = Binomial(H, q*) + Binomial(n - H, p*)        H: of a set, hypergeometric, since n of N clients are asked; otherwise K, with n = N

As shares of a population, c is Binomial(n, p* + (q* - p*) x).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from scipy.stats import binom, hypergeom, norm

from hubbub import Buckets, Estimand, Metric, UnaryResponse
from hubbub.mechanisms.subset import SubsetSelection
from hubbub.metrics.kinds import CategoricalKind, SetKind
from hubbub.summary import BitCounts
from hubbub_decoder import decode
from hubbub_decoder.array_types import Floats
from hubbub_decoder.options import Target

SHARES = (0.0, 0.02, 0.5, 0.9, 0.98, 1.0)
TAIL = 0.025


def unary(epsilon: float) -> dict[str, float]:
    """Return the probabilities of symmetric noise with this epsilon of one bit."""
    p = 1 / (math.exp(epsilon) + 1)
    return {"prob_p": p, "prob_q": 1 - p, "prob_f": 0}


def rows_of(epsilon: float) -> SubsetSelection:
    """Return subset selection of two of six values."""
    weight = 2 * math.exp(epsilon)
    return SubsetSelection(num_values=6, num_ones=2, prob_q=weight / (weight + 4))


METRICS: dict[str, Callable[[float], Metric]] = {
    "boolean": lambda epsilon: Metric.boolean("b", UnaryResponse(**unary(epsilon))),
    "categorical": lambda epsilon: Metric.categorical(
        "c", tuple(f"c{i}" for i in range(40)), UnaryResponse(**unary(epsilon))
    ),
    "subset selection": lambda epsilon: Metric("r", CategoricalKind.one_hot(tuple("abcde"), None, rows_of(epsilon))),
    "ordinal": lambda epsilon: Metric.ordinal("o", Buckets(tuple(range(41))), UnaryResponse(**unary(epsilon))),
    "set of 40": lambda epsilon: Metric.set("s", [f"i{i}" for i in range(40)], UnaryResponse(**unary(epsilon))),
    "set of 2": lambda epsilon: Metric.set("s", ["i0", "i1"], UnaryResponse(**unary(epsilon))),
}


def intervals(metric: Metric, n: int, counts: Sequence[int], target: Target) -> tuple[Floats, Floats]:
    """Return the ends of the 95 % intervals of shares with these counts in n reports each, as many in a decoding as the metric has bits."""
    names, ends = metric.kind.estimated_values, []
    for start in range(0, len(counts), len(names)):
        some = [*counts[start : start + len(names)]]
        ones = np.resize(some, metric.num_bits * metric.num_cohorts).reshape(metric.num_cohorts, metric.num_bits)
        decoding = decode(BitCounts(metric, [n] * metric.num_cohorts, ones), target=target)
        ends += [(decoding[name].low, decoding[name].high) for name, _ in zip(names, some, strict=False)]
    low, high = np.array(ends).T
    return low, high


def law_of_count(metric: Metric, n: int, share: float, target: Target) -> tuple[float, Floats]:
    """Return the true share, on the grid of the reporters, and the probabilities (n + 1,) of a bit's counts in n reports."""
    p, q = metric.params.mechanism.p_star, metric.params.mechanism.q_star
    some = np.arange(n + 1)
    if target == "population":
        return share, binom.pmf(some, n, p + (q - p) * share)
    reporters = n * metric.num_cohorts
    with_it, law = round(share * reporters), np.zeros(n + 1)
    for h, chance in enumerate(hypergeom.pmf(some, reporters, with_it, n)):
        if chance > 1e-12:
            law += chance * np.convolve(binom.pmf(some[: h + 1], h, q), binom.pmf(some[: n - h + 1], n - h, p))
    return with_it / reporters, law


@pytest.mark.parametrize("target", ["reporters", "population"])
@pytest.mark.parametrize("n", [1, 5, 30, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize("epsilon", [1.0, 3.0, 5.0])
@pytest.mark.parametrize("kind", METRICS)
def test_intervals_miss_on_each_side_with_the_tail_probability(
    kind: str, epsilon: float, n: int, target: Target
) -> None:
    """At most .025 on either side, and .028 for an item with a single report, for which a shifted gamma is a rough law.

    With the standard deviation s of the count, mean widths in counts are at most `widest`. Counts that occur with probability below 1e-9 are
    left out.
    """
    metric = METRICS[kind](epsilon)
    if n == 300 and metric.num_bits * metric.num_cohorts < 10:
        pytest.skip("the same code as with more bits, in fifty times as many decodings")
    p, q = metric.params.mechanism.p_star, metric.params.mechanism.q_star
    laws = [law_of_count(metric, n, share, target) for share in SHARES]
    counts = np.flatnonzero(np.max([law for _, law in laws], axis=0) > 1e-9)
    low, high = intervals(metric, n, counts.tolist(), target)
    most = 0.028 if isinstance(metric.kind, SetKind) and n == 1 else TAIL + 1e-9
    for truth, law in laws:
        chances = law[counts]
        assert chances[low > truth + 1e-9].sum() <= most, (truth, "low")
        assert chances[high < truth - 1e-9].sum() <= most, (truth, "high")
        width, variance = chances @ (high - low) * n * (q - p), chances @ (counts - chances @ counts) ** 2
        assert width <= widest(math.sqrt(variance)), truth


def widest(s: float) -> float:
    """Return the largest width in counts that an interval should have at a share where the count has standard deviation s.

        1 + z s + (z**2 / 2 + z sqrt(s**2 + z**2 / 4))

    Half a count on either side, z s on one side, and on the other the end t = z sqrt(s**2 + t): the variance of a count grows by at most 1
    with each count of its mean. At a share of 0 or 1 it does so toward the inside alone, so nothing balances it. Where s < 3 the normal
    quantile is too small, and Clopper and Pearson's intervals have up to 2.0 (1 + 2 z s).
    """
    z = float(norm.isf(TAIL))
    return 1 + z * s + z**2 / 2 + z * math.sqrt(s**2 + z**2 / 4) if s >= 3 else 2.2 * (1 + 2 * z * s)


@pytest.mark.parametrize(("epsilon", "n"), [(1.0, 5), (3.0, 8), (5.0, 8)])
def test_mean_number_of_items_misses_on_each_side_with_the_tail_probability(epsilon: float, n: int) -> None:
    """Two items of n reports each, by enumeration: at most .025 on either side, whether the shares are equal or far apart."""
    metric, some = METRICS["set of 2"](epsilon), np.arange(n + 1)
    p, q = metric.params.mechanism.p_star, metric.params.mechanism.q_star
    low, high = np.zeros((2, n + 1, n + 1))
    for a, b in np.ndindex(low.shape):
        total = decode(BitCounts(metric, [n, n], [[max(a, b)], [min(a, b)]]), target="population").listed_total
        low[a, b], high[a, b] = total.low, total.high
    for shares in ((0, 0), (0.02, 0.02), (0.5, 0.5), (0.98, 0.9), (1, 1), (1, 0), (0.5, 0.02)):
        law = np.multiply.outer(*(binom.pmf(some, n, p + (q - p) * x) for x in shares))
        assert law[low > sum(shares) + 1e-9].sum() <= TAIL, shares
        assert law[high < sum(shares) - 1e-9].sum() <= TAIL, shares


@pytest.mark.parametrize("epsilon", [1.0, 3.0, 5.0])
def test_mean_of_numbers_misses_on_each_side_with_the_tail_probability(epsilon: float) -> None:
    """48 reports, too few for more than one group: the count is Binomial(48, p* + (q* - p*) u) for any numbers with mean u in [0, 1]."""
    buckets, n = Buckets((0, 1), default=0, estimate=Estimand.MEAN), 48
    metric, some = Metric.ordinal("u", buckets, UnaryResponse(**unary(epsilon))), np.arange(n + 1)
    p, q = metric.params.mechanism.p_star, metric.params.mechanism.q_star
    reports = np.full(metric.num_cohorts, n // metric.num_cohorts)
    low, high = np.zeros((2, n + 1))
    for count in some:
        ones = np.clip(count - np.arange(metric.num_cohorts) * reports[0], 0, reports[0])
        numbers = decode(BitCounts(metric, reports, ones[:, None]), target="population").numbers
        assert numbers is not None
        low[count], high[count] = numbers.mean.low, numbers.mean.high
    for mean in SHARES:
        law = binom.pmf(some, n, p + (q - p) * mean)
        assert law[low > mean + 1e-9].sum() <= TAIL, mean
        assert law[high < mean - 1e-9].sum() <= TAIL, mean
