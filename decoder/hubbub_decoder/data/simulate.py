"""A population -> its reports or their counts, with the client's distribution but numpy's speed.

For simulation only: numpy's generator is no source of privacy. Every person is a client with a secret of their own, so cohorts are
uniform and independent, and the noise of every bit is: PRR then IRR make a bit one with chance q* where it is truly one, p*
where it is not. These chances are exact here too (`draw_bits`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from hubbub.metrics.metric import Kind, Metric
from hubbub.summary import BitCounts, PatternCounts
from hubbub.summary.counting import count_patterns
from hubbub_decoder.errors import PopulationError
from hubbub_decoder.model.vectorized_hashing import bit_positions

_CELLS_AT_ONCE = 1 << 22

Population = Mapping[str, int]
"""How many people have each value. Of a boolean metric: "true" and "false"."""


def simulate_bit_counts(
    metric: Metric, population: Population, rng: np.random.Generator, *, no_value: int = 0
) -> BitCounts:
    """Draw the bit counts of one report of everybody, in time that does not depend on how many they are.

        c_ij = Binomial(T_ij, q*) + Binomial(n_j - T_ij, p*)        T_ij = people of cohort j whose value sets bit i

    without_value : people with nothing recorded
    """
    params = metric.params
    m, k = params.num_cohorts, params.num_bits
    reports = _spread(np.array([no_value]), m, rng)[0]
    true_ones = np.zeros((m, k + 1), np.int64)  # the last column takes the places of coincident hashes
    for positions, people in _chunks(metric, population):
        in_cohort = _spread(people, m, rng)
        reports = reports + in_cohort.sum(axis=0)
        cohort = np.broadcast_to(np.arange(m)[:, None], positions.shape)
        np.add.at(true_ones, (cohort, positions), np.broadcast_to(in_cohort[..., None], positions.shape))
    true_ones = true_ones[:, :k]
    ones = rng.binomial(true_ones, params.q_star) + rng.binomial(reports[:, None] - true_ones, params.p_star)
    return BitCounts(metric, reports, ones)


def simulate_pattern_counts(
    metric: Metric, population: Population, rng: np.random.Generator, *, no_value: int = 0
) -> PatternCounts:
    """Draw the pattern counts of one report of everybody, k <= 16."""
    counts = PatternCounts.empty(metric).counts.copy()
    for cohorts, rows in simulate_reports(metric, population, rng, no_value=no_value):
        counts += count_patterns(cohorts, rows, metric.params.num_cohorts, metric.params.num_bits)
    return PatternCounts(metric, counts)


def simulate_reports(
    metric: Metric, population: Population, rng: np.random.Generator, *, no_value: int = 0
) -> Iterator[tuple[NDArray[np.uint16], NDArray[np.uint8]]]:
    """Yield one report of everybody in chunks of cohorts (n,) and wire rows (n, ceil(k / 8)), not shuffled."""
    params = metric.params
    k = params.num_bits
    at_once = max(1, _CELLS_AT_ONCE // k)
    nothing = np.full((1, params.num_cohorts, params.num_hashes), k, np.int16)
    for positions, people in (*_chunks(metric, population), (nothing, np.array([no_value]))):
        value_of = np.repeat(np.arange(len(people)), people)
        for start in range(0, len(value_of), at_once):
            values = value_of[start : start + at_once]
            cohorts = rng.integers(params.num_cohorts, size=len(values), dtype=np.uint16)
            bits = draw_bits(params.p_star, (len(values), k + 1), rng)  # the last column takes coincident hashes
            true_bits = positions[values, cohorts].astype(np.intp)
            np.put_along_axis(bits, true_bits, draw_bits(params.q_star, true_bits.shape, rng), axis=1)
            yield cohorts, np.packbits(bits[:, :k], axis=1, bitorder="little")


def draw_bits(chance: float, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.bool_]:
    """Draw bits that are one with exactly this chance, at a random byte each.

    A uniform binary fraction is compared with the chance: its first 8 digits decide all but one in 256, and those take 53
    digits more. p* and q* have at most 48.

    >>> draw_bits(1.0, (3,), np.random.default_rng()).tolist()
    [True, True, True]
    """
    scaled = chance * 256
    whole = int(scaled)
    drawn = rng.integers(256, size=shape, dtype=np.uint8)
    bits = drawn < whole
    undecided = drawn == whole
    bits[undecided] = rng.random(np.count_nonzero(undecided)) < scaled - whole
    return bits


def _chunks(metric: Metric, population: Population) -> Iterator[tuple[NDArray[np.int16], NDArray[np.int64]]]:
    """Yield the bits of some values in every cohort, (M, m, h), and how many people have each."""
    people = np.array(list(population.values()), np.int64)
    if people.size and people.min() < 0:
        raise PopulationError(f"{metric.name}: a value cannot have {people.min()} people")
    params = metric.params
    values = list(population)
    at_once = max(1, _CELLS_AT_ONCE // (params.num_cohorts * params.num_hashes))
    for start in range(0, len(values), at_once):
        yield _positions(metric, values[start : start + at_once]), people[start : start + at_once]


def _positions(metric: Metric, values: list[str]) -> NDArray[np.int16]:
    if metric.kind is Kind.STRING:
        return bit_positions(values, metric.params)
    bit_of = {"true": 0, "false": 1} if metric.kind is Kind.BOOLEAN else {c: i for i, c in enumerate(metric.categories)}
    if metric.other is not None:
        bits = [bit_of.get(value, bit_of[metric.other]) for value in values]
    else:
        unknown = next((value for value in values if value not in bit_of), None)
        if unknown is not None:
            raise PopulationError(
                f"{metric.name}: {unknown!r} is none of {', '.join(list(bit_of)[:8])}"
                f"{', ...' if len(bit_of) > 8 else ''}: a {metric.kind} metric can only be asked for those"
            )
        bits = [bit_of[value] for value in values]
    return np.array(bits, np.int16).reshape(-1, 1, 1)


def _spread(people: NDArray[np.int64], num_cohorts: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw how many of each value's people are in each cohort: (values, m)."""
    return np.asarray(rng.multinomial(people, np.full(num_cohorts, 1 / num_cohorts)))
