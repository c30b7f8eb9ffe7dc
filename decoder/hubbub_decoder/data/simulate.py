"""Simulate reports, or their counts, with the distribution of the client's encoder.

For simulation only: numpy's generator does not protect privacy. Every client has its own secret. So cohorts are uniform, and cohorts
and the noise of every bit are independent. After PRR and IRR a bit is one with probability q* if it is truly one, and p* otherwise.
`draw_bits` draws with exactly these probabilities.

In several periods every client keeps its value, its cohort and, within an epoch of `hold`, its permanent response
(`model/repetition.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from hubbub.metrics.buckets import Buckets, finite_number, format_number
from hubbub.metrics.kinds import CategoricalKind, MeanKind
from hubbub.metrics.metric import Metric
from hubbub.metrics.periods import Period
from hubbub.summary import BitCounts, PatternCounts
from hubbub.summary.counting import count_patterns
from hubbub_decoder.array_types import Indices
from hubbub_decoder.data.populations import count_values
from hubbub_decoder.errors import PopulationError
from hubbub_decoder.model.repetition import epoch_sizes
from hubbub_decoder.model.vectorized_hashing import bit_positions, discovery_positions

_CELLS_PER_BLOCK = 1 << 22

Population = Mapping[str, int] | Iterable[str | None]
"""Number of clients with each value, or the value of each client (`populations.count_values`). The values of a boolean metric are "true" and "false", those of an ordinal metric numbers as text
or labels of its buckets."""

Transitions = Mapping[tuple[str | None, str | None], int] | Mapping[tuple[str, str], int]
"""Number of clients with each pair of values in two periods; None: no value."""


def simulate_bit_counts(
    metric: Metric, population: Population, rng: np.random.Generator, *, no_value: int = 0, periods: Sequence[str] = ()
) -> BitCounts:
    """Random bit counts of a population; the time does not depend on the number of reports.

        c_ij = Binomial(X_ij, q*) + Binomial(n_j - X_ij, p*)                         one report of each client
        c_ij = Binomial(t B_ij, q) + Binomial(t (n_j - B_ij), p)                     t reports of each client in one epoch
        B_ij = Binomial(X_ij, a) + Binomial(n_j - X_ij, b)                           a, b: permanent_q, permanent_p

    X_ij of the n_j clients of cohort j have a value that sets bit i.

    population : number of clients with each value; or the value of each client, None for no value, as a list, a Series or an array
    no_value   : number of further clients without a value
    periods    : first days; each client reports once in each. (): in one period without a date

    Raises PopulationError for arguments of the wrong type, for negative numbers, and for values that a categorical or boolean metric
    does not have.
    """
    counts_of, no_value = _clients_by_value(metric, population, no_value)
    params = metric.params
    m, k = params.num_cohorts, params.num_bits
    reports = _draw_cohorts(np.array([no_value]), m, rng)[0]
    true_ones = np.zeros((m, k + 1), np.int64)  # the last column collects missing positions of coincident hashes
    for positions, counts in _blocks(metric, counts_of, rng):
        in_cohort = _draw_cohorts(counts, m, rng)
        reports = reports + in_cohort.sum(axis=0)
        cohort = np.broadcast_to(np.arange(m)[:, None], positions.shape)
        np.add.at(true_ones, (cohort, positions), np.broadcast_to(in_cohort[..., None], positions.shape))
    true_ones = true_ones[:, :k]
    clients = np.broadcast_to(reports[:, None], true_ones.shape)
    ones = np.zeros_like(true_ones)
    for size in epoch_sizes(metric, periods):
        if size == 1:
            ones += _draw_ones(true_ones, clients, params.mechanism.q_star, params.mechanism.p_star, rng)
        else:
            permanent = _draw_ones(true_ones, clients, params.mechanism.permanent_q, params.mechanism.permanent_p, rng)
            ones += _draw_ones(size * permanent, size * clients, params.mechanism.prob_q, params.mechanism.prob_p, rng)
    return BitCounts(metric, max(1, len(periods)) * reports, ones, periods)


def simulate_two_periods(
    metric: Metric, transitions: Transitions, rng: np.random.Generator, *, periods: Sequence[str] = ()
) -> tuple[BitCounts, BitCounts]:
    """Random bit counts of the same clients in two periods, of which some change their value.

        A_ij = Binomial(B_ij, q) + Binomial(s_j - B_ij, p) + (clients with another value in the other period, as for one report)

    B_ij of the s_j clients of cohort j with the same value in both periods have a permanent response with bit i. It is the same in both
    periods if both are in one epoch of `hold`. A client that changes its value keeps its cohort, and draws another permanent response.

    transitions : number of clients with each pair of values; (None, None) are those that report "no value" twice
    periods     : first days of the two periods; (): in one epoch, without dates

    Raises PopulationError as `simulate_bit_counts` does, and for another number of periods.
    """
    if isinstance(metric.kind, MeanKind):
        raise PopulationError(
            f'{metric.name}: two periods of a metric with estimate = "mean" cannot be simulated. Use `simulate_bit_counts`.'
        )
    if len(periods) not in (0, 2):
        raise PopulationError(f"{metric.name}: periods must be two first days, or (), got {len(periods)}.")
    _check_arguments(metric, {value or "": 0 for pair in transitions for value in pair}, 0)
    _check_arguments(metric, {str(pair): number for pair, number in transitions.items()}, 0)
    params, one_epoch = metric.params, len(epoch_sizes(metric, periods)) == 1
    m, k = params.num_cohorts, params.num_bits
    values = sorted({value for pair in transitions for value in pair if value is not None})
    positions = np.full((len(values) + 1, m, params.num_hashes), k, np.int64)
    if values:
        positions[:-1] = value_positions(metric, values)
    index = {None: len(values)} | {value: i for i, value in enumerate(values)}
    clients = np.zeros((2, m, k), np.int64)  # of those that keep their value, and of those that change it
    true_ones = np.zeros((3, m, k + 1), np.int64)  # of those that keep it, and in each period of those that change it
    for (before, after), number in transitions.items():
        in_cohort = _draw_cohorts(np.array([number]), m, rng)[0]
        kept = before == after and one_epoch
        clients[0 if kept else 1] += in_cohort[:, None]
        for row, value in ((0, before),) if kept else ((1, before), (2, after)):
            np.add.at(true_ones[row], (np.arange(m)[:, None], positions[index[value]]), in_cohort[:, None])
    permanent = _draw_ones(
        true_ones[0, :, :k], clients[0], params.mechanism.permanent_q, params.mechanism.permanent_p, rng
    )
    ones = [
        _draw_ones(permanent, clients[0], params.mechanism.prob_q, params.mechanism.prob_p, rng)
        + _draw_ones(true_ones[row, :, :k], clients[1], params.mechanism.q_star, params.mechanism.p_star, rng)
        for row in (1, 2)
    ]
    reports = clients.sum(axis=0)[:, 0]
    first, second = (BitCounts(metric, reports, each, periods[i : i + 1]) for i, each in enumerate(ones))
    return first, second


def _draw_ones(
    of_ones: NDArray[np.int64], total: NDArray[np.int64], from_one: float, from_zero: float, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Random numbers of ones after a bit's noise, of `total` bits of which `of_ones` are one."""
    return np.asarray(rng.binomial(of_ones, from_one) + rng.binomial(total - of_ones, from_zero))


def simulate_pattern_counts(
    metric: Metric, population: Population, rng: np.random.Generator, *, no_value: int = 0, periods: Sequence[str] = ()
) -> PatternCounts:
    """Random pattern counts of a population, k <= 16; parameters and errors as for `simulate_bit_counts`."""
    counts_of, no_value = _clients_by_value(metric, population, no_value)
    counts = PatternCounts.empty(metric).counts.copy()
    for cohorts, rows in simulate_reports(metric, counts_of, rng, no_value=no_value, periods=periods):
        counts += count_patterns(cohorts, rows, metric.params.num_cohorts, metric.params.num_bits)
    return PatternCounts(metric, counts, periods)


def simulate_reports(
    metric: Metric, population: Population, rng: np.random.Generator, *, no_value: int = 0, periods: Sequence[str] = ()
) -> Iterator[tuple[NDArray[np.uint16], NDArray[np.uint8]]]:
    """Yield random reports of a population in blocks, in the order of the values; the periods of a block follow each other.

    yields : cohorts (n,) uint16, packed bits (n, ceil(k / 8)) uint8
    Parameters and errors as for `simulate_bit_counts`.
    """
    counts_of, no_value = _clients_by_value(metric, population, no_value)
    params = metric.params
    k, epochs = params.num_bits, epoch_sizes(metric, periods)
    block_size = max(1, _CELLS_PER_BLOCK // k)
    nothing = np.full((1, params.num_cohorts, params.num_hashes), k, np.int16)
    for positions, counts in (*_blocks(metric, counts_of, rng), (nothing, np.array([no_value]))):
        value_of = np.repeat(np.arange(len(counts)), counts)
        for start in range(0, len(value_of), block_size):
            values = value_of[start : start + block_size]
            cohorts = rng.integers(params.num_cohorts, size=len(values), dtype=np.uint16)
            true_bits = positions[values, cohorts].astype(np.intp)
            for size in epochs:
                if size == 1:
                    yield (
                        cohorts,
                        _pack(_randomize(true_bits, k, params.mechanism.q_star, params.mechanism.p_star, rng)),
                    )
                    continue
                permanent = _randomize(true_bits, k, params.mechanism.permanent_q, params.mechanism.permanent_p, rng)
                for _ in range(size):
                    ones, zeros = (
                        draw_bits(chance, permanent.shape, rng)
                        for chance in (params.mechanism.prob_q, params.mechanism.prob_p)
                    )
                    yield cohorts, _pack(np.where(permanent, ones, zeros))


def _randomize(
    true_bits: Indices, num_bits: int, from_one: float, from_zero: float, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Noisy bits (n, k) of clients with these true bits (n, h); position k is no bit."""
    bits = draw_bits(from_zero, (len(true_bits), num_bits + 1), rng)
    np.put_along_axis(bits, true_bits, draw_bits(from_one, true_bits.shape, rng), axis=1)
    return bits[:, :num_bits]


def _pack(bits: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Bits (n, k) of reports as they are sent, (n, ceil(k / 8))."""
    return np.packbits(bits, axis=1, bitorder="little")


def consecutive_periods(metric: Metric, number: int) -> tuple[str, ...]:
    """First days of so many consecutive periods of a metric, the first of them with 1 January 2000.

    >>> consecutive_periods(Metric.boolean("dark", prob_p=0, prob_q=1, prob_f=0.5, period="month"), 2)
    ('2000-01-01', '2000-02-01')
    """
    periods = [Period.containing(metric.period, date(2000, 1, 1))]
    while len(periods) < number:
        periods.append(periods[-1].next())
    return tuple(map(str, periods))


def draw_bits(probability: float, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.bool_]:
    """Random bits that are one with exactly the given probability, from about one random byte per bit.

    A uniform binary fraction is compared with the probability. Its first 8 digits decide 255 of 256 bits; the others use 53 more
    digits. p* and q* have at most 48 digits.

    >>> draw_bits(1.0, (3,), np.random.default_rng()).tolist()
    [True, True, True]
    """
    scaled = probability * 256
    whole = int(scaled)
    drawn = rng.integers(256, size=shape, dtype=np.uint8)
    bits = drawn < whole
    undecided = drawn == whole
    bits[undecided] = rng.random(np.count_nonzero(undecided)) < scaled - whole
    return bits


def _clients_by_value(metric: Metric, population: Population, no_value: int) -> tuple[Mapping[str, int], int]:
    """Return the number of clients with each value and without one, after the checks and with the default of an ordinal metric."""
    counts_of, missing = count_values(population)
    _check_arguments(metric, counts_of, no_value)
    return _with_default(metric, counts_of, no_value + missing)


def _check_arguments(metric: Metric, population: Mapping[str, int], no_value: int) -> None:
    """Raise PopulationError for an argument of the wrong type and for a negative number of reports."""
    if not isinstance(metric, Metric):
        raise PopulationError(
            f"metric must be a Metric, got {type(metric).__name__}. Pass Metric.string(...), for example."
        )
    if metric.parts:
        raise PopulationError(
            f"{metric.name}: a joint metric needs a population of combinations. Use `simulate_joint_reports`, or `hubbub simulate` with "
            "--population of one column for each part."
        )
    for value in population:
        if not isinstance(value, str):
            raise PopulationError(f"{metric.name}: a value of the population must be a string, got {value!r}.")
    for name, number in (
        *(("the number of reports of a value", each) for each in population.values()),
        ("no_value", no_value),
    ):
        if not isinstance(number, Integral):
            raise PopulationError(f"{metric.name}: {name} must be an integer, got {number!r}.")
        if number < 0:
            raise PopulationError(f"{metric.name}: {name} must not be negative, got {number}.")


def _with_default(metric: Metric, population: Mapping[str, int], no_value: int) -> tuple[Mapping[str, int], int]:
    """Population and number of clients without a value, after those report the `default` of an ordinal metric."""
    if metric.buckets is None or metric.buckets.default is None or not no_value:
        return population, no_value
    text = format_number(metric.buckets.default)
    return {**population, text: population.get(text, 0) + no_value}, 0


def _blocks(
    metric: Metric, population: Mapping[str, int], rng: np.random.Generator
) -> Iterator[tuple[NDArray[np.int16], NDArray[np.int64]]]:
    """Yield blocks of values: bit positions (M, m, h) and numbers of reports (M,).

    rng : thresholds of clients, of a metric that estimates a mean
    """
    counts = np.array(list(population.values()), np.int64)
    params = metric.params
    values = list(population)
    block_size = max(1, _CELLS_PER_BLOCK // (params.num_cohorts * params.num_hashes))
    for start in range(0, len(values), block_size):
        block = slice(start, start + block_size)
        if isinstance(metric.kind, MeanKind):
            yield _threshold_positions(metric, metric.kind.buckets, values[block], counts[block], rng)
        else:
            yield value_positions(metric, values[block]), counts[block]


def _threshold_positions(
    metric: Metric, buckets: Buckets, values: list[str], counts: NDArray[np.int64], rng: np.random.Generator
) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
    """Positions (2 M, m, 1) and numbers of clients (2 M,): position 0 if the number reaches the threshold (c + U) / m of cohort c.

    Of the clients with u m = c + r, a binomial number at the rate r has U <= r, and the bit in cohort c.
    """
    m = metric.params.num_cohorts
    places = m * np.array([buckets.fraction(_number_of(metric.name, value)) for value in values])
    reached = np.concatenate([np.ceil(places), np.floor(places)])
    with_last = rng.binomial(counts, places - np.floor(places))
    positions = (np.arange(m) >= reached[:, None]).astype(np.int16)[:, :, None]
    return positions, np.concatenate([with_last, counts - with_last])


def value_positions(metric: Metric, values: list[str]) -> NDArray[np.int16]:
    """Bit positions of values in every cohort, (M, m, h); k for no bit. One-hot metrics have one cohort."""
    if metric.discover is not None:
        return discovery_positions(values, metric.params, metric.discover)
    if metric.kind.needs_candidates:
        return bit_positions(values, metric.params)
    if metric.buckets is not None:
        bits = [_bucket_of(metric.name, metric.buckets, value) for value in values]
        return np.array(bits, np.int16).reshape(-1, 1, 1)
    bit_of = {name: bit for bit, name in enumerate(metric.kind.named_values)}
    if isinstance(metric.kind, CategoricalKind) and metric.kind.other is not None:
        bits = [bit_of.get(value, bit_of[metric.kind.other]) for value in values]
    else:
        unknown = next((value for value in values if value not in bit_of), None)
        if unknown is not None:
            raise PopulationError(
                f"{metric.name}: {unknown!r} is not a value of this {metric.kind} metric "
                f"({', '.join(list(bit_of)[:8])}{', ...' if len(bit_of) > 8 else ''}). Use these values only."
            )
        bits = [bit_of[value] for value in values]
    return np.array(bits, np.int16).reshape(-1, 1, 1)


def _bucket_of(name: str, buckets: Buckets, value: str) -> int:
    """Bucket of a number as text, or of a label."""
    if value in buckets.labels:
        return buckets.labels.index(value)
    return buckets.index_of(_number_of(name, value, buckets.labels))


def _number_of(name: str, value: str, labels: Sequence[str] = ()) -> float:
    """Number as text; labels : of the buckets that a value may be instead."""
    try:
        number = finite_number(float(value))
    except ValueError:
        number = None
    if number is None:
        listed = f" ({', '.join(labels[:8])}{', ...' if len(labels) > 8 else ''})" if labels else ""
        raise PopulationError(
            f"{name}: {value!r} is {'neither a number nor a bucket' if labels else 'not a number'} of this ordinal metric{listed}. "
            "Use these values only."
        )
    return number


def _draw_cohorts(counts: NDArray[np.int64], num_cohorts: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Random numbers of reports of each value in each cohort: (values, m)."""
    return np.asarray(rng.multinomial(counts, np.full(num_cohorts, 1 / num_cohorts)))
