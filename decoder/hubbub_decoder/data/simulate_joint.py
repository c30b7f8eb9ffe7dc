"""Simulate reports of joint metrics with the distribution of the client's encoder.

Model: every client draws one cohort; given the cohort and its values, the bits of the parts are independent, each with the law of
`simulate.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.metrics.metric import Metric
from hubbub.summary import Reports
from hubbub_decoder.data.simulate import draw_bits, value_positions
from hubbub_decoder.errors import PopulationError

_CELLS_PER_BLOCK = 1 << 22

JointPopulation = Mapping[Any, int]
"""Number of clients with each combination of values, a tuple; None: no value of the part. Values of a boolean part are "true" and "false"."""


def simulate_joint_reports(metric: Metric, population: JointPopulation, rng: np.random.Generator) -> Reports:
    """Random reports of one period, of clients with these combinations of values, in the order of the population.

    Raises PopulationError for a metric that is not joint, a combination of the wrong length and a negative number.
    """
    _check(metric, population)
    counts = np.array(list(population.values()), np.int64)
    combination_of = np.repeat(np.arange(len(counts)), counts)
    cohorts = rng.integers(metric.params.num_cohorts, size=len(combination_of), dtype=np.uint16)
    rows = np.empty((len(combination_of), metric.params.row_bytes), np.uint8)
    positions = [
        _part_positions(part, [combination[index] for combination in population])
        for index, part in enumerate(metric.parts)
    ]
    block = max(1, _CELLS_PER_BLOCK // metric.params.num_bits)
    for start in range(0, len(rows), block):
        chosen = slice(start, start + block)
        bits = [
            _noisy_bits(part, of_part, combination_of[chosen], cohorts[chosen], rng)
            for part, of_part in zip(metric.parts, positions, strict=True)
        ]
        rows[chosen] = np.packbits(np.hstack(bits), axis=1, bitorder="little")
    return Reports(metric, cohorts, rows)


def _part_positions(part: Metric, values: list[str | None]) -> NDArray[np.int16]:
    """True bits of each combination's value of a part, (combinations, m or 1, h); k for no bit."""
    listed = sorted({value for value in values if value is not None})
    nothing = np.full((1, part.params.num_cohorts, part.params.num_hashes), part.params.num_bits, np.int16)
    of_value = np.concatenate([value_positions(part, listed), nothing]) if listed else nothing
    index = {value: i for i, value in enumerate(listed)}
    return of_value[[len(listed) if value is None else index[value] for value in values]]


def _noisy_bits(
    part: Metric,
    positions: NDArray[np.int16],
    combinations: NDArray[np.int64],
    cohorts: NDArray[np.uint16],
    rng: np.random.Generator,
) -> NDArray[np.bool_]:
    """Bits (n, k) of a part after both responses."""
    params = part.params
    in_cohort = cohorts if params.num_cohorts > 1 else np.zeros_like(cohorts)
    true_bits = positions[combinations, in_cohort].astype(np.intp)
    bits = draw_bits(params.mechanism.p_star, (len(true_bits), params.num_bits + 1), rng)
    np.put_along_axis(bits, true_bits, draw_bits(params.mechanism.q_star, true_bits.shape, rng), axis=1)
    return bits[:, : params.num_bits]


def _check(metric: Metric, population: JointPopulation) -> None:
    if not metric.parts:
        raise PopulationError(
            f"{metric.name}: the metric is a {metric.kind} one and has no parts. Use `simulate_reports`."
        )
    for combination, count in population.items():
        if not isinstance(combination, tuple) or len(combination) != len(metric.parts):
            raise PopulationError(
                f"{metric.name}: a combination must have {len(metric.parts)} values, got {combination!r}. Use None for no value."
            )
        if not isinstance(count, Integral) or count < 0:
            raise PopulationError(
                f"{metric.name}: the number of clients of a combination must be an integer >= 0, got {count!r}."
            )
