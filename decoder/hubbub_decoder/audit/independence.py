"""Independence tests: the noise of two values, two epochs, two parts or two metrics of one client is independent.

The claims for a value that changes, for a joint metric and for several metrics are sums of losses. A sum holds only if the noise of
its terms is independent: two noises of one stream show which true bits are equal, whatever the sum of their losses is.

A client has two events at each bit of a noise: its first report shows a one, and more than t (p + q) / 2 of its t reports do. N_ij is the
number of clients with an event at bit i of one noise and at bit j of the other. Given the numbers r_ci and r_cj of clients with each
event, of n_c clients of cohort c, independent noise has

    P(N_ij >= x) <= exp(-n KL(x / n, mu / n)) for x >= mu, and P(N_ij <= x) has the same limit for x <= mu      mu = sum_c r_ci r_cj / n_c

Source: Hoeffding 1963, theorems 1 and 4. N_ij is a sum of hypergeometric numbers, whose tails are lighter than those of a binomial number.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import rel_entr

from hubbub.metrics.metric import Metric
from hubbub_decoder.array_types import Bits, Floats
from hubbub_decoder.audit.clients import AuditedClient, AuditedValue, EncoderClient, SeveralEncoders, value_text
from hubbub_decoder.audit.evidence import Comparisons, NoiseTest
from hubbub_decoder.audit.law_tests import Sample, law_tests
from hubbub_decoder.audit.laws import Flags, ReportLaw, num_cohorts, true_bits
from hubbub_decoder.audit.trials import Laboratory, Schedule
from hubbub_decoder.kinds.operations import operations_of
from hubbub_decoder.random_state import seeded

_MAX_REPORTS, _MIN_CLIENTS = 262_144, 4_096
_REPORTS_OF_A_NOISE = 8
_MAX_CELLS = 1 << 26
"""Most reported bits that are compared with their law."""


@dataclass(frozen=True, slots=True)
class Noise:
    """Events of one noise in n clients: the noise of a value, an epoch, a part or a metric.

    cohorts : (n,) int        events : (number of events, n, k), the first report and, of several reports, most of them
    """

    name: str
    cohorts: NDArray[np.int64]
    events: Flags


@dataclass(frozen=True, slots=True)
class _Observed:
    """Clients with t reports of each value of a history: their events, and the bits of the first of them.

    cohorts : (n,), or (n, metrics)                 events : (number of events, n, values, k)
    first_bits : (clients, values, 8 or t, k)       moved : (clients,) whether the cohort changed
    """

    cohorts: NDArray[np.int64]
    events: Flags
    first_bits: Bits
    moved: Flags

    @property
    def first_cohorts(self) -> NDArray[np.int64]:
        """Cohorts of the clients of `first_bits`."""
        return self.cohorts[: len(self.first_bits)]


def independence_tests(
    client: AuditedClient | None, metric: Metric, values: Sequence[AuditedValue] | None, clients: int, seed: int | None
) -> list[NoiseTest]:
    """Tests of the noise of two values, or epochs, of a client, of the noise of two parts of a joint metric, and of the law of each value's reports.

    Without `hold`, equal Bloom bits of two values may have one noise, so clients in whose cohort the bits are equal do not count.

    client : None: the encoder of this project
    values : the first two and the last are in the history of every client; None: those of the kind's `audited_values`
    """
    history = history_of(metric, values or operations_of(metric).audited_values())
    t = metric.hold or _reports_of_a_noise([metric])
    made = _observe(client or EncoderClient(metric), [metric], history, t, clients, seed)
    cohorts, events = made.cohorts, made.events
    bits = [true_bits(metric, value) for value in history]
    names = [value_text(value) for value in history]
    if metric.hold is not None:
        names = [f"{name} in epoch {number}" for number, name in enumerate(names, start=1)]
    of_values, of_parts = [], []
    for i, j in itertools.combinations(range(len(history)), 2):
        differ = (bits[i] != bits[j]).any(axis=1)[cohorts] | (metric.hold is not None)
        if differ.any():
            of_values.append([Noise(names[at], cohorts[differ], events[:, differ, at]) for at in (i, j)])
    starts = [*metric.kind.first_bits, metric.num_bits]
    for at, name in enumerate(names):
        parts = [
            Noise(f"{part.name} of {name}", cohorts, events[:, :, at, start:end])
            for part, (start, end) in zip(metric.components, itertools.pairwise(starts), strict=True)
        ]
        of_parts += [list(pair) for pair in itertools.combinations(parts, 2)]
    kind = "noise of different values" if metric.hold is None else "noise of different epochs"
    return [
        independence_test(kind, of_values),
        *([independence_test("noise of the parts", of_parts)] if of_parts else []),
        law_of_each(
            "reports of changing values",
            [
                Sample(ReportLaw(metric, value), made.first_cohorts, made.first_bits[:, at], made.moved)
                for at, value in enumerate(history)
            ],
        ),
    ]


def law_of_each(name: str, samples: Sequence[Sample]) -> NoiseTest:
    """All tests of the declared law, of one sample at a time: the samples have the same clients."""
    tests = [test for sample in samples for test in law_tests([sample])]
    first = min(tests, key=lambda test: test.p_value)
    p_value = min(1.0, len(tests) * first.p_value)
    test = NoiseTest(name, p_value, f"as declared in {len(tests)} tests")
    return NoiseTest(name, p_value, f"{first.name}: {first.finding}") if test.refuted else test


def compare_metrics(
    client: AuditedClient | None, metrics: Sequence[Metric], clients: int, seed: int | None
) -> list[NoiseTest]:
    """Tests of the metrics of a client: every two noises are independent, and each metric has its declared law whatever the values of the others.

    client : its values and cohorts are tuples, one item for each metric; None for the encoder of this project
    """
    widths = [metric.num_bits for metric in metrics]
    ends = np.cumsum(widths).tolist()
    of_metric = [slice(end - width, end) for end, width in zip(ends, widths, strict=True)]
    history = _history_of_several([operations_of(metric).audited_values() for metric in metrics])
    audited = client or SeveralEncoders(tuple(metrics))
    same = _observe(audited, metrics, history[:1], _reports_of_a_noise(metrics), clients, seed)
    changing = _observe(audited, metrics, history, 1, clients, seed)
    noises = [
        Noise(metric.name, same.cohorts[:, number], same.events[:, :, 0, of_metric[number]])
        for number, metric in enumerate(metrics)
    ]
    samples = [
        Sample(
            ReportLaw(metric, values[number]),
            made.first_cohorts[:, number],
            made.first_bits[:, at, :, of_metric[number]],
            made.moved,
        )
        for made, values_of_each in ((same, history[:1]), (changing, history))
        for at, values in enumerate(values_of_each)
        for number, metric in enumerate(metrics)
    ]
    return [
        independence_test("noise of different metrics", [list(pair) for pair in itertools.combinations(noises, 2)]),
        law_of_each("reports of metrics beside each other", samples),
    ]


def _history_of_several(of_metrics: Sequence[Sequence[AuditedValue]]) -> list[tuple[AuditedValue, ...]]:
    """Values of several metrics, one after another: the first of each, the last of each, and both of them alternately."""
    ends = [(values[0], values[-1]) for values in of_metrics]
    return [
        tuple(first for first, _ in ends),
        tuple(last for _, last in ends),
        tuple(pair[number % 2] for number, pair in enumerate(ends)),
        tuple(pair[1 - number % 2] for number, pair in enumerate(ends)),
    ]


def history_of(metric: Metric, values: Sequence[AuditedValue]) -> list[AuditedValue]:
    """Values of a client, one after another. Of a joint metric, the last part changes before all parts do. With `hold`, the first value returns."""
    first, second = values[:2]
    history = [first, second, values[-1]]
    if isinstance(first, tuple) and isinstance(second, tuple):
        history.insert(1, (*first[:-1], second[-1]))
    history = list(dict.fromkeys(history))
    return history if metric.hold is None else [*history, first]


def _observe(
    client: AuditedClient,
    metrics: Sequence[Metric],
    history: Sequence[AuditedValue],
    t: int,
    clients: int,
    seed: int | None,
) -> _Observed:
    """Clients with t reports of each value of a history."""
    middles = np.concatenate(
        [
            np.full(block.num_bits, t * (block.mechanism.prob_p + block.mechanism.prob_q) / 2)
            for metric in metrics
            for block in metric.blocks
        ]
    )
    reports: list[AuditedValue] = [value for value in history for _ in range(t)]
    rng = seeded(None if seed is None else [seed, 2])
    laboratory = Laboratory(
        client,
        len(middles),
        max(num_cohorts(metric) for metric in metrics),
        Schedule.of(1, None),
        rng,
        lambda _: None,
    )
    clients = min(clients, max(_MIN_CLIENTS, _MAX_REPORTS // (len(reports) * len(metrics))))
    most = _MAX_CELLS // (len(history) * min(t, _REPORTS_OF_A_NOISE) * len(middles))
    cohorts, events = [], []
    firsts: list[Bits] = []
    moved: list[NDArray[np.bool_]] = []
    for made in laboratory.reports(reports, clients):
        bits = made.bits.reshape(len(made.bits), len(history), t, -1)
        if not firsts or sum(map(len, firsts)) < most:
            firsts.append(bits[:, :, :_REPORTS_OF_A_NOISE].copy())
            moved.append(np.zeros(len(bits), bool) if made.moved is None else made.moved)
        cohorts.append(made.cohorts)
        events.append([bits[:, :, 0] == 1, bits.sum(axis=2) > middles][: min(t, 2)])
    return _Observed(
        np.concatenate(cohorts), np.concatenate(events, axis=1), np.concatenate(firsts), np.concatenate(moved)
    )


def _reports_of_a_noise(metrics: Sequence[Metric]) -> int:
    """Reports t of each value: 8, or the shortest epoch; 1 if no metric has both permanent and instantaneous noise, since more add nothing."""
    mechanisms = [block.mechanism for metric in metrics for block in metric.blocks]
    if not any(
        mechanism.has_permanent_noise and (mechanism.prob_p > 0 or mechanism.prob_q < 1) for mechanism in mechanisms
    ):
        return 1
    return min([_REPORTS_OF_A_NOISE, *(metric.hold for metric in metrics if metric.hold is not None)])


def independence_test(name: str, pairs: list[list[Noise]]) -> NoiseTest:
    """Test of the independence of pairs of noises."""
    if not pairs:
        return NoiseTest(name, 1.0, "not run: these values have equal bits in every cohort")
    found = Comparisons(name)
    for one, other in pairs:
        for event, event_other in zip(one.events, other.events, strict=True):
            together, expected, exponents = overlap_exponents(one.cohorts, event, event_other)
            at = found.add(np.minimum(1.0, 2 * np.exp(-exponents)))
            if at is not None:
                found.finding = (
                    f"the noise of {one.name} and of {other.name} is not independent: bit {at[0]} of one and bit {at[1]} of the other "
                    f"show ones together in {together[at]:,.0f} of {len(event):,} clients, and {expected[at]:,.0f} were expected"
                )
    fewest = min(len(one.cohorts) for one, _ in pairs)
    return found.result(
        f"independent in {len(pairs)} pairs, each of {fewest:,} clients or more",
        "Their losses do not add up to the claim. Draw each noise from a stream of its own",
    )


def overlap_exponents(cohorts: NDArray[np.int64], event: Flags, other: Flags) -> tuple[Floats, Floats, Floats]:
    """(k, k') numbers of clients with both events, their expectations, and n KL.

    cohorts : (n,)        event : (n, k)        other : (n, k')
    """
    order = np.argsort(cohorts, kind="stable")
    _, starts, sizes = np.unique(cohorts[order], return_index=True, return_counts=True)
    ones, ones_other = (np.add.reduceat(events[order], starts, axis=0, dtype=float) for events in (event, other))
    together = (event.T.astype(np.float32) @ other.astype(np.float32)).astype(float)
    expected = ones.T @ (ones_other / sizes[:, None])
    n = len(cohorts)
    exponents: Floats = rel_entr(together, expected) + rel_entr(n - together, n - expected)
    return together, expected, exponents
