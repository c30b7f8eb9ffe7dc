"""Replay tests: reports of different clients must not repeat.

A generator seeded with the time makes reports with the right distribution, so no distinguisher that ignores the seed finds it.
But an observer who guesses the time removes all noise. Two batches of c new clients with one value are equal by chance with

    P <= lambda**c        lambda = sum over reports r of P(r)**2, the probability that two clients send the same

lambda is computed from the definition. Without a definition it is bounded from disjoint pairs inside one batch, by Clopper and Pearson.
If all clients of a batch are equal and another batch differs, the batch has one seed: by chance P <= 4**-c.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial

import numpy as np

from hubbub.metrics.metric import Metric
from hubbub_decoder.array_types import Bits, Floats
from hubbub_decoder.audit.bound import clopper_pearson_high
from hubbub_decoder.audit.clients import AuditedClient, AuditedValue, ClientReports, EncoderClient
from hubbub_decoder.audit.evidence import NoiseTest
from hubbub_decoder.audit.external_clients import AdapterClient, FunctionClient
from hubbub_decoder.audit.frozen_clock import batches_at_once, frozen_clock
from hubbub_decoder.audit.laws import true_bits
from hubbub_decoder.audit.trials import Schedule
from hubbub_decoder.errors import AuditError
from hubbub_decoder.random_state import seeded

FALSE_ALARM = 1e-9
"""Probability that all replay tests of one audit together refute a correct client."""

_BATCHES = 8
_UNKNOWN_CLIENTS = 256
_MAX_CLIENTS = 100_000
_NEXT_SECOND = 1.1


def repetition_probability(metric: Metric, bits: Bits, schedule: Schedule) -> float:
    """Probability lambda that two clients with one value, of one cohort, send the same reports.

    bits : (m, k) Bloom bits of the value; the largest lambda of all cohorts counts
    """
    logs: Floats = np.zeros(len(bits))
    for start, block in zip(metric.kind.first_bits, metric.blocks, strict=True):
        true_ones = bits[:, start : start + block.num_bits].sum(axis=1)
        logs += [block.mechanism.log_collision(block.num_bits, int(ones), schedule.per_epoch) for ones in true_ones]
    return math.exp(schedule.epochs * float(logs.max()))


def clients_per_batch(repetition: float) -> int:
    """Clients c for which any two of so many batches are equal by chance with probability at most a quarter of 1e-9."""
    pairs = math.comb(_BATCHES, 2)
    if repetition <= 0:
        return 1
    return max(1, math.ceil(math.log(FALSE_ALARM / (4 * pairs)) / math.log(repetition)))


def replay_tests(
    client: AuditedClient,
    value: AuditedValue,
    schedule: Schedule,
    seeds: Iterator[int],
    repetition: float | None,
    frozen: Callable[[], AbstractContextManager[None]] | None,
    new_process: Callable[[list[AuditedValue], tuple[int, int], int], list[ClientReports]] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> list[NoiseTest]:
    """Replay tests of a client with one value.

    repetition  : lambda of the declared mechanism; None for an unknown one
    frozen      : context in which Python's clocks stand still; None if the client runs elsewhere
    new_process : makes one batch in each of two new processes at the same time; None if the client cannot
    """
    clients = _UNKNOWN_CLIENTS if repetition is None else clients_per_batch(repetition)
    values = [value] * schedule.reports

    def batch(number: int = clients) -> ClientReports:
        return client(values, next(seeds), number)

    if repetition is None:
        first, later = batch(), None
        if _all_equal(first):
            sleep(_NEXT_SECOND)
            later = batch()
        if later is not None:
            return [_test_of_constant_batches(first, later)]
        repetition = _repetition_bound(first)
        clients = clients_per_batch(repetition)
    if clients > _MAX_CLIENTS:
        found = (
            f"not run: two clients are equal with probability {repetition:.6f}, so a batch needs {clients:,} clients"
        )
        return [NoiseTest("calls in quick succession", 1.0, found)]
    tests = [_test("calls in quick succession", [batch(clients) for _ in range(_BATCHES)])]
    if frozen is not None:
        with frozen():
            batches = [batch(clients) for _ in range(2)]
        tests.append(_test("calls while the clock stands still", batches))
    if new_process is not None:
        pair = new_process(values, (next(seeds), next(seeds)), clients)
        tests.append(_test("new processes at the same time", pair))
    return tests


def replay_tests_of(
    client: AuditedClient | None, metric: Metric | None, value: AuditedValue, schedule: Schedule, seed: int | None
) -> list[NoiseTest]:
    """Replay tests that fit a client: the encoder of this project (None, with a metric), a function, an adapter, or another callable."""
    seeds = _seeds(seed)
    repetition = None if metric is None else repetition_probability(metric, true_bits(metric, value), schedule)
    if client is None and metric is not None:
        return replay_tests(EncoderClient(metric), value, schedule, seeds, repetition, frozen_clock)
    if client is None:
        raise AuditError("There is neither a client nor a metric. Nothing can be tested. Pass one of them.")
    if isinstance(client, AdapterClient):
        found = "not run: the audit draws the secrets. Rule 114 of `hubbub conformance` tests whether this client's noise repeats"
        return [NoiseTest("new processes at the same time", 1.0, found)]
    if isinstance(client, FunctionClient):
        frozen = partial(frozen_clock, client.spec.partition(":")[0])
        return replay_tests(client, value, schedule, seeds, repetition, frozen, partial(batches_at_once, client))
    return replay_tests(client, value, schedule, seeds, repetition, None)


def _seeds(seed: int | None) -> Iterator[int]:
    """Different seeds of clients; not those of the trials of the bound."""
    rng = seeded(None if seed is None else [seed, 1])
    while True:
        yield int(rng.randint(1 << 62))


def _test(name: str, batches: list[ClientReports]) -> NoiseTest:
    pairs = list(itertools.combinations(batches, 2))
    equal = sum(_equal(first, second) for first, second in pairs)
    clients = len(batches[0].cohorts)
    if not equal:
        found = f"{len(batches)} batches of {clients:,} new clients all differ"
        return NoiseTest(name, 1.0, found)
    return NoiseTest(
        name,
        FALSE_ALARM,
        f"{equal} of {len(pairs)} pairs of batches of {clients:,} new clients are equal: the noise repeats, so an observer "
        "can make it again and remove it. Draw the noise from the operating system's generator",
    )


def _test_of_constant_batches(first: ClientReports, later: ClientReports) -> NoiseTest:
    name, clients = "clients of one batch", len(first.cohorts)
    if _all_equal(later) and not _equal(first, later):
        return NoiseTest(
            name,
            FALSE_ALARM,
            f"all {clients} new clients of a batch are equal, and differ from those a second later: the noise is a function of "
            "the time, so an observer can remove it. Draw the noise from the operating system's generator",
        )
    found = f"all {clients} new clients are equal: reports that never change have no noise to test"
    return NoiseTest(name, 1.0, found)


def _equal(first: ClientReports, second: ClientReports) -> bool:
    return np.array_equal(first.bits, second.bits)


def _all_equal(batch: ClientReports) -> bool:
    return bool((batch.bits == batch.bits[:1]).all())


def _repetition_bound(batch: ClientReports) -> float:
    """Upper limit of lambda from the disjoint pairs of one batch, which fails with probability at most a quarter of 1e-9."""
    pairs = len(batch.bits) // 2
    equal = (batch.bits[0 : 2 * pairs : 2] == batch.bits[1 : 2 * pairs : 2]).all(axis=(1, 2)).sum()
    return float(clopper_pearson_high(np.array(float(equal)), pairs, FALSE_ALARM / 4))
