"""Search for the pair of values: extreme bits, the declared pair, and values that set every bit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from hubbub import Buckets, Estimand, Metric, Params, UnaryResponse
from hubbub.metrics.discovery import Discovery
from hubbub.metrics.kinds import Value
from hubbub_decoder.audit.clients import AuditedValue, ClientReports
from hubbub_decoder.audit.distinguisher import LearnedRatio
from hubbub_decoder.audit.laws import true_bits
from hubbub_decoder.audit.pair_search import Candidate, choose, declared_pair, learned_candidates
from hubbub_decoder.audit.trials import Laboratory, Schedule
from hubbub_decoder.discovery.discover import discovery_of
from hubbub_decoder.kinds.operations import operations_of
from hubbub_decoder.random_state import seeded


def test_pair_with_an_extreme_bit_is_found_among_many_values() -> None:
    """14 values of 32 bits in 4 cohorts: only value 9 always sends a one at bit 31 of cohort 2."""
    histograms = [np.tile([100, 100], (4, 32, 1)) for _ in range(14)]
    histograms[9][2, 31] = (0, 200)
    (candidate,) = learned_candidates(histograms, 1)
    assert 9 in (candidate.first, candidate.second)
    assert np.argwhere(candidate.distinguisher.table[:, :, 1]).tolist() == [[2, 31]]


@pytest.mark.parametrize(("k", "m"), [(128, 1), (32, 4), (64, 64)])
def test_audited_strings_set_every_bit(k: int, m: int) -> None:
    params = Params(num_bits=k, num_hashes=1, num_cohorts=m, prob_p=0.25, prob_q=0.75, prob_f=0.5)
    metric = Metric.string("page", params)
    values = operations_of(metric).audited_values()
    assert values[-1] is None
    assert np.any([true_bits(metric, value).any(axis=0) for value in values], axis=0).all()


def test_audited_pair_differs_in_every_group() -> None:
    params = Params(num_bits=256, num_hashes=1, num_cohorts=64, prob_p=0.25, prob_q=0.75, prob_f=0.5)
    metric = Metric.string("page", params, discover=Discovery(longest=3, step=1, held_out=0.2))
    values = operations_of(metric).audited_values()
    bits = [true_bits(metric, value) for value in values]
    i, j, _ = declared_pair(metric, bits, Schedule(1, 1), 2.0, 0.01)
    differ = (bits[i] != bits[j]).any(axis=1)
    for group in range(len(discovery_of(metric).lengths) + 1):
        assert differ[list(discovery_of(metric).cohorts(group, 64))].mean() > 0.5


def test_no_value_is_the_declared_neighbour_of_many_hashes() -> None:
    params = Params(num_bits=8, num_hashes=6, num_cohorts=4, prob_p=0.25, prob_q=0.75, prob_f=0.25)
    metric = Metric.string("page", params)
    values = operations_of(metric).audited_values()
    i, j, needed = declared_pair(metric, [true_bits(metric, value) for value in values], Schedule(1, 1), 4.73, 0.01)
    assert values[j] is None
    assert values[i] is not None
    assert needed < 1e7


@pytest.mark.parametrize(("default", "values"), [(0, [0, 50, None]), (70, [0, 50, None]), (20, [0, 50])])
def test_audited_numbers_of_a_mean_have_one_bit_for_all_thresholds(default: float, values: list[Value]) -> None:
    """The ends of the range, and "no value" if its number is at or beyond one of them."""
    metric = Metric.ordinal(
        "use",
        Buckets((0, 50), default=default, estimate=Estimand.MEAN),
        UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5),
    )
    assert operations_of(metric).audited_values() == values
    first, second = (true_bits(metric, value) for value in values[:2])
    assert (first.tolist(), second.tolist()) == ([[0]] * 16, [[1]] * 16)


def test_values_of_a_joint_metric_have_every_value_of_each_part() -> None:
    noise = {"prob_p": 0.25, "prob_q": 0.75, "prob_f": 0.5}
    parts = (
        Metric.boolean("paid", UnaryResponse(**noise)),
        Metric.categorical("os", tuple("abcd"), UnaryResponse(**noise)),
    )
    values = operations_of(Metric.joint("device", parts)).audited_values()
    assert values[:2] == [(True, "a"), (False, "b")]
    assert values[-1] == (None, None)
    for number, part in enumerate(parts):
        assert {value[number] for value in values if isinstance(value, tuple)} == set(
            operations_of(part).audited_values()
        )


def laboratory_of(rates: list[float]) -> Laboratory:
    """Clients of two bits, with exact frequencies of ones: `rates` for True, 1 - rates for False."""

    def client(values: Sequence[AuditedValue], seed: int, clients: int) -> ClientReports:
        shares = np.array(rates) if values[0] else 1 - np.array(rates)
        bits = np.arange(clients)[:, None] < np.round(shares * clients)
        return ClientReports(np.zeros(clients, np.int64), bits[:, None, :].astype(np.uint8))

    return Laboratory(client, 2, 1, Schedule(1, 1), seeded(None), lambda _: None)


def test_candidate_with_the_largest_bound_is_chosen() -> None:
    tables = np.zeros((2, 1, 2, 2))
    tables[0, 0, 0] = tables[1, 0, 1] = (-1, 1)
    candidates = [Candidate(0, 1, LearnedRatio(table)) for table in tables]
    candidate, event = choose(laboratory_of([0.75, 0.8]), [True, False], 1_000, candidates, 0.01)
    assert candidate is candidates[1]
    assert event.threshold == pytest.approx(1)
