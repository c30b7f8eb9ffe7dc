"""Replay tests: the probability that reports repeat, and stopped clocks."""

from __future__ import annotations

import datetime
import itertools
import math
import time
from collections.abc import Iterator, Sequence
from itertools import count

import numpy as np
import pytest

from hubbub import Metric, Params
from hubbub.mechanisms.unary import UnaryResponse
from hubbub_decoder.audit.clients import AuditedValue, ClientReports
from hubbub_decoder.audit.frozen_clock import frozen_clock
from hubbub_decoder.audit.laws import true_bits
from hubbub_decoder.audit.replay import FALSE_ALARM, clients_per_batch, repetition_probability, replay_tests
from hubbub_decoder.audit.trials import Schedule
from tests.support.enumerate_mechanism import report_distribution


@pytest.mark.parametrize("reports", [1, 3])
@pytest.mark.parametrize("noise", [(0.25, 0.75, 0.5), (0.0, 1.0, 0.5), (0.1, 0.5, 0.25)])
def test_repetition_probability_is_that_of_all_reports(reports: int, noise: tuple[float, float, float]) -> None:
    p, q, f = noise
    metric = Metric.categorical("c", ("a", "b", "c"), UnaryResponse(prob_p=p, prob_q=q, prob_f=f))
    law = report_distribution(metric.params, [1], reports)[0]
    computed = repetition_probability(metric, true_bits(metric, "a"), Schedule(reports, reports))
    assert computed == pytest.approx(float((law**2).sum()), rel=1e-12)


@pytest.mark.parametrize("reports", [900, 1_100, 20_000])
def test_repetition_probability_of_many_reports_is_zero_and_no_error(reports: int) -> None:
    metric = Metric.categorical("os", ("a", "b"), UnaryResponse(prob_p=0.4, prob_q=0.6, prob_f=0.25))
    assert repetition_probability(metric, true_bits(metric, "a"), Schedule(reports, reports)) < 1e-3


def test_collision_of_a_bit_is_the_sum_of_squares_of_its_sequences() -> None:
    """Three reports: 8 sequences, each with its probability."""
    response = UnaryResponse(prob_p=0.25, prob_q=0.625, permanent_p=0.125, permanent_q=0.75)
    for true, chance in ((0, 0.125), (1, 0.75)):
        total = 0.0
        for sequence in itertools.product((0, 1), repeat=3):
            given = [math.prod(rate if bit else 1 - rate for bit in sequence) for rate in (0.25, 0.625)]
            total += ((1 - chance) * given[0] + chance * given[1]) ** 2
        assert response.log_collision(1, true, 3) == pytest.approx(math.log(total), abs=1e-12)
    assert UnaryResponse(prob_p=0, prob_q=1, prob_f=0).log_collision(4, 1, 5) == 0


def test_repetition_probability_multiplies_over_epochs() -> None:
    params = Params(num_bits=8, num_hashes=1, num_cohorts=2, prob_p=0.25, prob_q=0.75, prob_f=0.5)
    metric = Metric.string("page", params, hold=2)
    bits = true_bits(metric, "v1")
    one, three = (repetition_probability(metric, bits, Schedule(2 * epochs, 2)) for epochs in (1, 3))
    assert three == pytest.approx(one**3)


@pytest.mark.parametrize("repetition", [1e-30, 0.3, 0.625, 0.999])
def test_batches_repeat_with_at_most_the_stated_probability(repetition: float) -> None:
    clients = clients_per_batch(repetition)
    assert 28 * repetition**clients <= FALSE_ALARM / 4
    assert clients == 1 or 28 * repetition ** (clients - 1) > FALSE_ALARM / 4


def batches(rows: Iterator[int]) -> object:
    """Client that sends the same 16 bits for all clients of a call; a new number for each call."""

    def client(values: Sequence[AuditedValue], seed: int, clients: int) -> ClientReports:
        number = next(rows)
        bits = np.array([[[number >> bit & 1 for bit in range(16)]] * len(values)] * clients, np.uint8)
        return ClientReports(np.zeros(clients, np.int64), bits)

    return client


def test_clients_with_the_second_as_their_seed_are_refuted() -> None:
    slept: list[float] = []
    tests = replay_tests(batches(count()), "v", Schedule(1, 1), count(), None, None, sleep=slept.append)  # type: ignore[arg-type]
    assert [test.refuted for test in tests] == [True]
    assert slept == [1.1]


def test_constant_reports_are_not_refuted() -> None:
    constant = batches(iter([5] * 20))
    tests = replay_tests(constant, "v", Schedule(1, 1), count(), None, None, sleep=lambda _: None)  # type: ignore[arg-type]
    assert [test.refuted for test in tests] == [False]
    assert "never change" in tests[0].finding


def test_nanoseconds_as_a_seed_are_found_while_the_clock_stands_still() -> None:
    def client(values: Sequence[AuditedValue], seed: int, clients: int) -> ClientReports:
        made = np.random.default_rng(time.time_ns()).integers(2, size=(clients, len(values), 64), dtype=np.uint8)
        time.sleep(1e-6)
        return ClientReports(np.zeros(clients, np.int64), made)

    tests = replay_tests(client, "v", Schedule(1, 1), count(), 2.0**-64, frozen_clock)
    assert [test.refuted for test in tests] == [False, True]


def test_frozen_clock_stops_and_continues() -> None:
    with frozen_clock():
        assert time.time() == time.time() == time.time_ns() / 1e9 == time.perf_counter()
        assert datetime.datetime.now(datetime.UTC) == datetime.datetime.now(datetime.UTC)
        assert datetime.datetime.now(datetime.UTC).timestamp() == time.time()
    assert time.time() > 1_750_000_000
    assert not math.isclose(time.perf_counter(), 1_700_000_000)
    assert datetime.datetime.now(datetime.UTC).year > 2024
