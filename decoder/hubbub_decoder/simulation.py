"""Simulate reports, or their counts, with the distribution of the client's encoder.

For simulation only: numpy's random numbers do not protect privacy. They are the same with every version of numpy (`random_state.py`).
Every client has its own secret. So cohorts are uniform, and cohorts and the noise of clients are independent. The mechanism draws reports, `Mechanism.simulate`; counts of independent bits are binomial.

In several periods every client keeps its value, its cohort and, within an epoch of `hold`, its permanent response
(`model/repetition.py`). The bits of the parts of a joint metric are independent given the cohort and the values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from functools import reduce
from operator import add
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import ParameterError
from hubbub.metrics.metric import Metric
from hubbub.metrics.params import Params
from hubbub.metrics.periods import Period
from hubbub.number_checks import check_integer
from hubbub.summary import BitCounts, PatternCounts, Reports
from hubbub.summary.counting import count_patterns
from hubbub_decoder.array_types import Indices
from hubbub_decoder.data.populations import count_values
from hubbub_decoder.errors import PopulationError
from hubbub_decoder.kinds.operations import CELLS_PER_BLOCK, KindOperations, operations_of
from hubbub_decoder.model.evidence import Collected
from hubbub_decoder.model.repetition import epoch_sizes
from hubbub_decoder.random_state import frozen, multinomial

Population = Mapping[str, int] | Iterable[str | None]
"""Number of clients with each value, or the value of each client (`populations.count_values`). The values of a boolean metric are "true"
and "false", those of an ordinal metric numbers as text or labels of its buckets."""

JointPopulation = Mapping[Any, int]
"""Number of clients with each combination of values, a tuple; None: no value of the part."""

Transitions = Mapping[tuple[str | None, str | None], int] | Mapping[tuple[str, str], int]
"""Number of clients with each pair of values in two periods; None: no value."""


FIRST_DAY = date(2000, 1, 1)
"""Of simulated periods, unless another day is given."""

C = TypeVar("C", bound=Collected)


@overload
def simulate(
    metric: Metric,
    population: Population | JointPopulation,
    rng: np.random.Generator,
    *,
    no_value: int = 0,
    periods: Sequence[str] = (),
) -> BitCounts: ...
@overload
def simulate(
    metric: Metric,
    population: Population | JointPopulation,
    rng: np.random.Generator,
    *,
    form: type[C],
    no_value: int = 0,
    periods: Sequence[str] = (),
) -> C: ...
def simulate(
    metric: Metric,
    population: Population | JointPopulation,
    rng: np.random.Generator,
    *,
    form: type[BitCounts] | type[C] = BitCounts,
    no_value: int = 0,
    periods: Sequence[str] = (),
) -> Collected | C:
    """Return random reports of a population, or counts of them.

    Parameters
    ----------
    metric
        Definition of the metric.
    population
        Number of clients with each value; or the value of each client, None for no value, as a list, a Series or an
        array. For a joint metric, the number of clients with each combination of values, a tuple in which None is no
        value of the part.
    rng
        Source of the random numbers.
    form
        BitCounts, PatternCounts (k <= 16) or Reports, which a joint metric needs. Reports are in the order of the
        values.
    no_value
        Number of further clients without a value.
    periods
        First days of the periods. Each client reports once in each. Empty: one period without a date.

    Returns
    -------
    Collected | C
        Object of the type `form`.

    Raises
    ------
    ParameterError
        `form` is another class, `rng` is not a numpy.random.Generator, or a number is not an integer >= 0.
    PopulationError
        An argument has the wrong type, or the metric does not have a value.

    Notes
    -----
    If bits are independent, the time of BitCounts does not depend on the number of reports. The time of the others
    does. `simulate_reports` yields reports in blocks, for numbers that do not fit into memory.

    Examples
    --------
    >>> from hubbub import UnaryResponse
    >>> survey = Metric.boolean("from_jfk", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5))
    >>> simulate(survey, {"true": 400, "false": 600}, np.random.default_rng(1), form=Reports).num_reports
    1000
    """
    if form not in (BitCounts, PatternCounts, Reports):
        raise ParameterError(
            "form must be BitCounts, PatternCounts or Reports", f"{form!r}: import them from hubbub.summary"
        )
    draws = frozen(rng)
    if issubclass(form, BitCounts):
        return _simulate_bit_counts(metric, population, draws, no_value, periods)
    blocks = _draw_reports(metric, population, draws, no_value, periods)
    return _collect(form, _require_metric(metric), blocks, periods)


def _simulate_bit_counts(
    metric: Metric,
    population: Population | JointPopulation,
    rng: np.random.RandomState,
    no_value: int,
    periods: Sequence[str],
) -> BitCounts:
    """Random bit counts of a population.

        c_ij = Binomial(X_ij, q*) + Binomial(n_j - X_ij, p*)                         one report of each client
        c_ij = Binomial(t B_ij, q) + Binomial(t (n_j - B_ij), p)                     t reports of each client in one epoch
        B_ij = Binomial(X_ij, a) + Binomial(n_j - X_ij, b)                           a, b: permanent_q, permanent_p

    X_ij of the n_j clients of cohort j have a value that sets bit i.
    """
    _require_one_block(_require_metric(metric))
    if not metric.params.mechanism.has_independent_bits:
        return _collect(BitCounts, metric, _draw_reports(metric, population, rng, no_value, periods), periods)
    epochs = [[size] for size in epoch_sizes(metric, periods)]
    reports, drawn = _draw_independent_bits(metric, population, rng, no_value, epochs)
    return BitCounts(metric, max(1, len(periods)) * reports, np.sum([*drawn], axis=0), periods)


def _draw_independent_bits(
    metric: Metric,
    population: Population | JointPopulation,
    rng: np.random.RandomState,
    no_value: int,
    epochs: Sequence[Sequence[int]],
) -> tuple[NDArray[np.int64], Iterator[NDArray[np.int64]]]:
    """Return the clients of each cohort, (m,), and yield ones (m, k) of so many reports of each client, which share the response of an epoch."""
    operations, counts_of, no_value = _clients_by_value(metric, population, no_value)
    params = metric.params
    m, k = params.num_cohorts, params.num_bits
    clients = _draw_cohorts(np.array([no_value]), m, rng)[0]
    true_ones = np.zeros((m, k + 1), np.int64)  # the last column collects missing positions of coincident hashes
    for positions, counts in operations.true_bits(counts_of, rng):
        in_cohort = _draw_cohorts(counts, m, rng)
        clients = clients + in_cohort.sum(axis=0)
        cohort = np.broadcast_to(np.arange(m)[:, None], positions.shape)
        np.add.at(true_ones, (cohort, positions), np.broadcast_to(in_cohort[..., None], positions.shape))
    return clients, _draw_epochs(metric, true_ones[:, :k], clients, epochs, rng)


def _draw_epochs(
    metric: Metric,
    true_ones: NDArray[np.int64],
    clients: NDArray[np.int64],
    epochs: Sequence[Sequence[int]],
    rng: np.random.RandomState,
) -> Iterator[NDArray[np.int64]]:
    mechanism, of_clients = metric.params.mechanism, np.broadcast_to(clients[:, None], true_ones.shape)
    for sizes in epochs:
        if sum(sizes) == 1:
            yield _draw_ones(true_ones, of_clients, mechanism.q_star, mechanism.p_star, rng)
            continue
        permanent = _draw_ones(true_ones, of_clients, mechanism.permanent_q, mechanism.permanent_p, rng)
        for size in sizes:
            yield _draw_ones(size * permanent, size * of_clients, mechanism.prob_q, mechanism.prob_p, rng)


def simulate_each_period(
    metric: Metric,
    population: Population | JointPopulation,
    rng: np.random.Generator,
    *,
    form: type[C],
    no_value: int = 0,
    periods: Sequence[str],
) -> list[C]:
    """Return what `simulate` returns, but each period alone. Each client reports once in each, and keeps its value and its permanent response.

    periods : first days, in the order of time
    """
    draws = frozen(rng)
    if issubclass(form, BitCounts) and metric.params.mechanism.has_independent_bits:
        _require_one_block(metric)
        epochs = [[1] * size for size in epoch_sizes(metric, periods)]
        reports, drawn = _draw_independent_bits(metric, population, draws, no_value, epochs)
        return [form(metric, reports, ones, (period,)) for ones, period in zip(drawn, periods, strict=True)]
    rows: list[list[tuple[NDArray[np.uint16], NDArray[np.uint8]]]] = [[] for _ in periods]
    for number, block in enumerate(_draw_reports(metric, population, draws, no_value, periods)):
        rows[number % len(periods)].append(block)
    return [_collect(form, metric, blocks, (period,)) for blocks, period in zip(rows, periods, strict=True)]


def _collect(
    form: type[C],
    metric: Metric,
    blocks: Iterable[tuple[NDArray[np.uint16], NDArray[np.uint8]]],
    periods: Sequence[str],
) -> C:
    """Counts or reports of blocks of cohorts and packed bits."""
    if issubclass(form, BitCounts):
        parts = (Reports(metric, cohorts, rows, periods).bit_counts() for cohorts, rows in blocks)
        return reduce(add, parts, form.empty(metric))
    if issubclass(form, PatternCounts):
        counts = form.empty(metric).counts.copy()
        for cohorts, rows in blocks:
            counts += count_patterns(cohorts, rows, metric.num_cohorts, metric.num_bits)
        return form(metric, counts, periods)
    empty = Reports.empty(metric)
    cohorts, rows = (np.concatenate(arrays) for arrays in zip((empty.cohorts, empty.rows), *blocks, strict=True))
    return form(metric, cohorts, rows, periods)


def simulate_two_periods(
    metric: Metric, transitions: Transitions, rng: np.random.Generator, *, periods: Sequence[str] = ()
) -> tuple[BitCounts, BitCounts]:
    """Return random bit counts of the same clients in two periods, in which some change their value.

    Parameters
    ----------
    metric
        Definition of the metric.
    transitions
        Number of clients with each pair of values. The pair (None, None) is "no value" twice.
    rng
        Source of the random numbers.
    periods
        First days of the two periods. Empty: both are in one epoch, without dates.

    Returns
    -------
    tuple[BitCounts, BitCounts]
        Bit counts of each period.

    Raises
    ------
    ParameterError
        `rng` is not a numpy.random.Generator.
    PopulationError
        An argument has the wrong type, the metric does not have a value, or the number of periods is not two.

    Notes
    -----
    The count of bit i in cohort j is::

        A_ij = Binomial(B_ij, q) + Binomial(s_j - B_ij, p) + (clients with another value in the other period, as for one report)

    B_ij of the s_j clients of cohort j with the same value in both periods have a permanent response with bit i. It is
    the same in both periods if both are in one epoch of `hold`. A client that changes its value keeps its cohort, and
    draws another permanent response.
    """
    if len(periods) not in (0, 2):
        raise PopulationError(f"{metric.name}: periods must be two first days, or (), got {len(periods)}.")
    operations, draws = operations_of(_require_metric(metric)), frozen(rng)
    clients_of, _ = count_values(transitions)
    _require_one_block(metric)
    if not metric.params.mechanism.has_independent_bits:
        raise PopulationError(
            f"{metric.name}: the bits of its reports depend on each other, and two periods are drawn bit by bit. "
            "Use `simulate_reports` with the periods of clients that keep their value."
        )
    for before_after, number in clients_of.items():
        _check_number(metric, "the number of reports of a value", number)
        for value in before_after:
            operations.check_value("" if value is None else value)
    params, one_epoch = metric.params, len(epoch_sizes(metric, periods)) == 1
    m, k = params.num_cohorts, params.num_bits
    values = sorted({value for pair in clients_of for value in pair if value is not None})
    positions = np.concatenate([operations.positions(values), operations.no_bits]) if values else operations.no_bits
    index = {None: len(values)} | {value: i for i, value in enumerate(values)}
    clients = np.zeros((2, m, k), np.int64)  # of those that keep their value, and of those that change it
    true_ones = np.zeros((3, m, k + 1), np.int64)  # of those that keep it, and in each period of those that change it
    in_cohorts = _draw_cohorts(np.array(list(clients_of.values()), np.int64), m, draws)
    for (before, after), in_cohort in zip(clients_of, in_cohorts, strict=True):
        kept = before == after and one_epoch
        clients[0 if kept else 1] += in_cohort[:, None]
        for row, value in ((0, before),) if kept else ((1, before), (2, after)):
            np.add.at(true_ones[row], (np.arange(m)[:, None], positions[index[value]]), in_cohort[:, None])
    permanent = _draw_ones(
        true_ones[0, :, :k], clients[0], params.mechanism.permanent_q, params.mechanism.permanent_p, draws
    )
    ones = [
        _draw_ones(permanent, clients[0], params.mechanism.prob_q, params.mechanism.prob_p, draws)
        + _draw_ones(true_ones[row, :, :k], clients[1], params.mechanism.q_star, params.mechanism.p_star, draws)
        for row in (1, 2)
    ]
    reports = clients.sum(axis=0)[:, 0]
    first, second = (BitCounts(metric, reports, counts, periods[i : i + 1]) for i, counts in enumerate(ones))
    return first, second


def _draw_ones(
    of_ones: NDArray[np.int64], total: NDArray[np.int64], from_one: float, from_zero: float, rng: np.random.RandomState
) -> NDArray[np.int64]:
    """Random numbers of ones after a bit's noise, of `total` bits of which `of_ones` are one."""
    return np.asarray(rng.binomial(of_ones, from_one) + rng.binomial(total - of_ones, from_zero))


def simulate_reports(
    metric: Metric,
    population: Population | JointPopulation,
    rng: np.random.Generator,
    *,
    no_value: int = 0,
    periods: Sequence[str] = (),
) -> Iterator[tuple[NDArray[np.uint16], NDArray[np.uint8]]]:
    """Yield random reports of a population in blocks, in the order of the values.

    The periods of a block follow each other.

    Parameters
    ----------
    metric
        Definition of the metric.
    population
        Population, as for `simulate`.
    rng
        Source of the random numbers.
    no_value
        Number of further clients without a value.
    periods
        First days of the periods. Each client reports once in each. Empty: one period without a date.

    Yields
    ------
    tuple[NDArray[np.uint16], NDArray[np.uint8]]
        Blocks of cohorts, shape (n,), and packed bits, shape (n, ceil(k / 8)).

    Raises
    ------
    ParameterError
        `rng` is not a numpy.random.Generator.
    PopulationError
        An argument has the wrong type, or the metric does not have a value.
    """
    yield from _draw_reports(metric, population, frozen(rng), no_value, periods)


def _draw_reports(
    metric: Metric,
    population: Population | JointPopulation,
    rng: np.random.RandomState,
    no_value: int,
    periods: Sequence[str],
) -> Iterator[tuple[NDArray[np.uint16], NDArray[np.uint8]]]:
    """Yield random reports in blocks, as `simulate_reports` describes."""
    operations, counts_of, no_value = _clients_by_value(metric, population, no_value)
    epochs = epoch_sizes(metric, periods)
    block_size = max(1, CELLS_PER_BLOCK // metric.num_bits)
    for positions, counts in (*operations.true_bits(counts_of, rng), (operations.no_bits, np.array([no_value]))):
        value_of = np.repeat(np.arange(len(counts)), counts)
        for start in range(0, len(value_of), block_size):
            values = value_of[start : start + block_size]
            cohorts = rng.randint(metric.num_cohorts, size=len(values), dtype=np.uint16)
            in_cohort = cohorts if positions.shape[1] > 1 else np.zeros_like(cohorts)
            true_bits = positions[values, in_cohort].astype(np.intp)
            for size in epochs:
                for bits in _respond(metric.blocks, true_bits, size, rng):
                    yield cohorts, np.packbits(bits, axis=1, bitorder="little")


def _respond(
    blocks: Sequence[Params], true_bits: Indices, reports: int, rng: np.random.RandomState
) -> Iterator[NDArray[np.bool_]]:
    """Yield the bits (n, k) of each of the reports of an epoch."""
    columns = np.split(true_bits, np.cumsum([params.num_hashes for params in blocks])[:-1], axis=1)
    of_blocks = [
        params.mechanism.simulate(of_block, params.num_bits, reports, rng)
        for params, of_block in zip(blocks, columns, strict=True)
    ]
    yield from map(np.hstack, zip(*of_blocks, strict=True))


def consecutive_periods(metric: Metric, number: int, first: date = FIRST_DAY) -> tuple[str, ...]:
    """First days of so many consecutive periods of a metric; the day `first` is in the first of them.

    Raises PopulationError if one would begin after the year 9999.

    >>> from hubbub import UnaryResponse
    >>> dark = Metric.boolean("dark", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5), period="month")
    >>> consecutive_periods(dark, 2, date(2026, 11, 29))
    ('2026-11-01', '2026-12-01')
    """
    periods = [Period.containing(metric.period, first)]
    try:
        while len(periods) < number:
            periods.append(periods[-1].next())
    except OverflowError:
        raise PopulationError(
            f"{metric.name}: {number} periods from {first} on end after the year 9999. Pass an earlier day, or fewer periods."
        ) from None
    return tuple(map(str, periods))


def _clients_by_value(
    metric: Metric, population: Population | JointPopulation, no_value: int
) -> tuple[KindOperations[Any], Mapping[Any, int], int]:
    """Return the operations of the metric, and the number of clients with each value and without one, after those that report a default."""
    operations = operations_of(_require_metric(metric))
    counts_of, missing = count_values(population)
    for value, number in counts_of.items():
        operations.check_value(value)
        _check_number(metric, "the number of reports of a value", number)
    _check_number(metric, "no_value", no_value)
    no_value, default = no_value + missing, operations.default_value()
    if default is None or not no_value:
        return operations, counts_of, no_value
    return operations, {**counts_of, default: counts_of.get(default, 0) + no_value}, 0


def _require_metric(metric: Metric) -> Metric:
    if not isinstance(metric, Metric):
        raise PopulationError(
            f"metric must be a Metric, got {type(metric).__name__}. Pass Metric.string(...), for example."
        )
    return metric


def _require_one_block(metric: Metric) -> None:
    if len(metric.blocks) > 1:
        raise PopulationError(
            f"{metric.name}: counts do not show how the parts of a joint metric depend. Pass form=Reports, or use `hubbub simulate` with "
            "--population of one column for each part."
        )


def _check_number(metric: Metric, name: str, number: object) -> None:
    """Raise ParameterError unless a number of clients is an integer >= 0."""
    check_integer(f"{metric.name}: {name}", number, 0, hint="pass the number of clients")


def _draw_cohorts(counts: NDArray[np.int64], num_cohorts: int, rng: np.random.RandomState) -> NDArray[np.int64]:
    """Random numbers of reports of each value in each cohort: (values, m)."""
    return multinomial(counts, np.ones(num_cohorts), rng)
