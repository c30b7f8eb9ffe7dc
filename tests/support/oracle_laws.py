"""Exact count laws of frequency oracles: the variance in closed form, and drawn counts for the total variation.

In each oracle a report "supports" a value with probability p if it is the reporter's, and q elsewhere. So the count of a value with X of
N reports is Binomial(X, p) + Binomial(N - X, q), and with x = X / N

    estimate = (count / N - q) / (p - q)        N Var = (x p (1-p) + (1-x) q (1-q)) / (p - q)^2

Counts of different values are independent in unary encodings, and in local hashing with ideal hash functions. They are drawn exactly for
generalized randomized response too. In subset selection they are drawn from their exact marginal laws as if independent: only their sum
is fixed, and Norm-Sub removes an error that all values share.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tests.support.oracle_cells import Cell, Counts, Floats, Score, mean_and_error, norm_sub, total_variation


class Support(NamedTuple):
    """Probabilities that a report supports the reporter's value, and another value."""

    own: float
    other: float


def optimized_unary_encoding(epsilon: float, _values: int) -> Support:
    """Wang et al. 2017, section 4.3.2."""
    return Support(1 / 2, 1 / (math.exp(epsilon) + 1))


def symmetric_unary_encoding(epsilon: float, _values: int) -> Support:
    """Basic RAPPOR with one report: each of the two bits that differ has epsilon / 2."""
    return Support(1 / (math.exp(-epsilon / 2) + 1), 1 / (math.exp(epsilon / 2) + 1))


def optimized_local_hashing(epsilon: float, _values: int) -> Support:
    """Wang et al. 2017, section 4.4, with the rounded number of cells g."""
    cells = round(math.exp(epsilon)) + 1
    return Support(1 / (1 + (cells - 1) * math.exp(-epsilon)), 1 / cells)


def subset_selection(epsilon: float, values: int) -> Support:
    """Ye and Barg 2018; the size of the subsets has the smallest variance at share 1 / M."""

    def support(size: int) -> Support:
        own = size * math.exp(epsilon) / (size * math.exp(epsilon) + values - size)
        return Support(own, (size - own) / (values - 1))

    near = max(1, int(values / (math.exp(epsilon) + 1)))
    sizes = [size for size in (near, near + 1) if size < values]
    return min((support(size) for size in sizes), key=lambda law: mean_variance(law, values))


def generalized_randomized_response(epsilon: float, values: int) -> Support:
    """Direct encoding: the reporter's value, or one of the others (Kairouz et al. 2016)."""
    e = math.exp(epsilon)
    return Support(e / (e + values - 1), 1 / (e + values - 1))


LAWS: dict[str, Callable[[float, int], Support]] = {
    "OUE": optimized_unary_encoding,
    "OLH": optimized_local_hashing,
    "subset selection": subset_selection,
    "GRR": generalized_randomized_response,
    "SUE": symmetric_unary_encoding,
}


def mean_variance(support: Support, values: int) -> float:
    """N times the variance of an estimated share, mean over all values (module docstring).

    >>> round(mean_variance(optimized_unary_encoding(2, 1_000), 1_000) / Cell(2, 1_000, 10_000).optimum, 12)
    1.0
    """
    p, q = support
    return (p * (1 - p) / values + (1 - 1 / values) * q * (1 - q)) / (p - q) ** 2


def draw_estimates(name: str, support: Support, counts: Counts, rng: np.random.Generator) -> Floats:
    """Random estimates of all shares."""
    (p, q), reports = support, int(counts.sum())
    if name == "GRR":  # with probability p - q the value itself, else one of all values
        kept = rng.binomial(counts, p - q)
        supporting = kept + rng.multinomial(reports - kept.sum(), np.full(len(counts), 1 / len(counts)))
    else:
        supporting = rng.binomial(counts, p) + rng.binomial(reports - counts, q)
    return np.asarray((supporting / reports - q) / (p - q))


def score_law(name: str, cell: Cell) -> Score:
    """Exact error of an oracle in a cell, and the total variation of its estimates after Norm-Sub."""
    support = LAWS[name](cell.epsilon, cell.values)
    variations = []
    for run in range(cell.runs):
        counts = np.array(list(cell.population(run).values()), np.int64)
        estimates = draw_estimates(name, support, counts, cell.generator(name, run))
        variations.append(total_variation(norm_sub(estimates), counts / cell.reports))
    return Score(mean_variance(support, cell.values) / cell.optimum, 0.0, math.nan, mean_and_error(variations)[0])
