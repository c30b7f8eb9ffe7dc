"""Populations to simulate: named distributions over v1 .. vS, or counts of values from a file."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.stats import norm

from hubbub.metrics.metric import Kind, Metric
from hubbub.text import shown
from hubbub_decoder.array_types import Floats
from hubbub_decoder.data.candidates import read_text
from hubbub_decoder.errors import CandidateError, PopulationError

DISTRIBUTIONS: dict[str, Callable[[Floats, int], Floats]] = {
    "uniform": lambda i, _: np.ones_like(i),
    "exp": lambda i, size: np.exp(-5 * i / size),
    "gauss": lambda i, size: norm.pdf(i, loc=size / 2, scale=size / 6),
    "zipf1": lambda i, _: 1 / i,
    "zipf1.5": lambda i, _: i**-1.5,
}
"""Weights of v1 .. vS, i = 1 .. S: the five of google/rappor's regression tests (tests/gen_counts.R)."""


def named_shares(distribution: str, num_values: int) -> dict[str, float]:
    """Return the share of each of v1 .. vS in a population of infinitely many.

    >>> named_shares("zipf1", 2)
    {'v1': 0.6666666666666666, 'v2': 0.3333333333333333}
    """
    if distribution not in DISTRIBUTIONS:
        raise PopulationError(f"distribution must be one of {', '.join(DISTRIBUTIONS)}, got {distribution!r}")
    if num_values < 1:
        raise PopulationError(f"a population has at least 1 value, got {num_values}")
    weights = DISTRIBUTIONS[distribution](np.arange(1, num_values + 1, dtype=np.float64), num_values)
    return {f"v{i}": share for i, share in enumerate((weights / weights.sum()).tolist(), start=1)}


def named_population(
    metric: Metric, distribution: str, num_values: int | None, num_reports: int, rng: np.random.Generator
) -> dict[str, int]:
    """Draw a population of a named distribution over what the metric can be asked for.

    num_values : of a string metric, 100 if None; a categorical or boolean metric has as many as it has
    """
    match metric.kind:
        case Kind.STRING:
            return draw_population(named_shares(distribution, num_values or 100), num_reports, rng)
        case Kind.CATEGORICAL:
            own = metric.categories
        case Kind.BOOLEAN:
            own = ("true", "false")
    if num_values not in (None, len(own)):
        raise PopulationError(
            f"{metric.name}: a {metric.kind} metric has {len(own)} values, asked were {num_values}: leave it out"
        )
    shares = named_shares(distribution, len(own)).values()
    return draw_population(dict(zip(own, shares, strict=True)), num_reports, rng)


def draw_population(shares: dict[str, float], num_reports: int, rng: np.random.Generator) -> dict[str, int]:
    """Draw how many people have each value; what the shares leave below 1 has none."""
    weights = np.array([*shares.values(), max(0.0, 1 - sum(shares.values()))])
    drawn = rng.multinomial(num_reports, weights / weights.sum())
    return dict(zip(shares, drawn[:-1].tolist(), strict=True))


def read_population(path: str | Path) -> dict[str, int]:
    """Read a CSV file with the columns `value` and `count`; counts of a value on several lines add up."""
    try:
        rows = csv.DictReader(io.StringIO(read_text(path), newline=""))
    except CandidateError as problem:
        raise PopulationError(str(problem)) from None
    if not {"value", "count"} <= set(rows.fieldnames or ()):
        named = shown(", ".join(rows.fieldnames)) if rows.fieldnames else "nothing"
        raise PopulationError(f"{path}: line 1 must name the columns value and count, it has {named}")
    population: dict[str, int] = {}
    for number, row in enumerate(rows, start=2):
        text = (row["count"] or "").strip()
        if not (text.isascii() and text.isdigit()):
            raise PopulationError(f"{path}: line {number}: count must be a whole number from 0, got {row['count']!r}")
        population[row["value"]] = population.get(row["value"], 0) + int(text)
    if not sum(population.values()):
        raise PopulationError(f"{path}: holds nobody: write lines of value,count")
    return population
