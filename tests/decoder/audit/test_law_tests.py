"""Comparisons of reports with the declared law: exact probabilities, p-values of correct clients, and one leak for each comparison."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.audit_leaks import Leak, leaks, run
from hubbub import Metric
from hubbub_decoder.audit.audit import audit_metric
from hubbub_decoder.audit.evidence import FAMILY_LEVEL, Comparisons, NoiseTest, binomial_tails
from hubbub_decoder.audit.law_tests import Sample, compare_repeats_among_clients, compare_rows, law_tests
from hubbub_decoder.audit.laws import ReportLaw
from hubbub_decoder.kinds.operations import operations_of
from tests.support import every_kind
from tests.support.broken_clients import METRICS, SimulatedClient


def sample_of(metric: Metric, reports: int, clients: int, seed: int) -> Sample:
    """Reports of a correct client with the first audited value."""
    law = ReportLaw(metric, operations_of(metric).audited_values()[0])
    made = SimulatedClient(metric)([law.value] * reports, seed, clients)
    return Sample(law, made.cohorts, made.bits, np.zeros(clients, bool))


SMALL = [metric for metric in every_kind.METRICS if metric.num_bits <= 6]


@pytest.mark.parametrize("metric", SMALL, ids=lambda metric: metric.name)
def test_rows_bits_pairs_and_repeats_have_one_law(metric: Metric) -> None:
    """Every row of two reports: the probabilities add up to 1, and those of bits, pairs, lags and repeats are sums of them."""
    k = metric.num_bits
    rows = np.array(list(itertools.product((0, 1), repeat=k)), np.uint8)
    both = np.array(list(itertools.product(range(len(rows)), repeat=2)))
    for value in operations_of(metric).audited_values():
        law = ReportLaw(metric, value)
        for cohort in (0, len(law.truth) - 1):
            once = np.exp(law.log_probabilities(np.full(len(rows), cohort), rows[:, None]))
            twice = np.exp(law.log_probabilities(np.full(len(both), cohort), rows[both]))
            truth = law.truth[cohort]
            assert (once.sum(), twice.sum()) == (pytest.approx(1), pytest.approx(1))
            ones = once @ rows
            assert ones == pytest.approx(np.where(truth, law.ones[1], law.ones[0]))
            in_both = twice @ (rows[both[:, 0]] & rows[both[:, 1]])
            assert in_both == pytest.approx(law.ones_in_both(0, 1)[truth.astype(int), np.arange(k)])
            assert twice[both[:, 0] == both[:, 1]].sum() == pytest.approx(
                math.exp(law.log_repeats(of_one_response=law.in_one_epoch(0, 1))[cohort])
            )
            of_two_reports = np.einsum("n,ni,nj->ij", twice, rows[both[:, 0]], rows[both[:, 1]])
            for second, pairs in ((0, (rows.T * once) @ rows), (1, of_two_reports)):
                neither, either, true = law.pairs(0, second)
                for i, j in itertools.permutations(range(k), 2):
                    of_truth = (neither[i, j], either[i, j] if truth[i] else either[j, i], true[i, j])
                    expected = of_truth[truth[[i, j]].sum()]
                    assert math.isnan(expected) or pairs[i, j] == pytest.approx(expected)


def test_binomial_tails_are_those_of_the_sums() -> None:
    for n, p in ((7, 0.3), (4, 0.0), (4, 1.0)):
        law = [math.comb(n, x) * p**x * (1 - p) ** (n - x) for x in range(n + 1)]
        expected = [min(1.0, 2 * min(sum(law[: x + 1]), sum(law[x:]))) for x in range(n + 1)]
        assert binomial_tails(range(n + 1), n, p).tolist() == pytest.approx(expected)


def test_p_value_of_a_test_is_that_of_all_comparisons() -> None:
    found = Comparisons("numbers")
    assert found.add([0.5, 1e-9]) == (1,)
    assert found.add([0.5, 1e-8]) is None
    assert found.result("as declared", "advice") == NoiseTest("numbers", 4e-9, ". advice")
    assert replace(found.result("as declared", "advice"), level=1e-10).refuted is False


def test_a_row_without_noise_in_a_thousandth_of_the_clients_is_named(unseen_seed: int) -> None:
    """Of 20,000 clients, 20 have the row of their value, of which 1e-26 is expected."""
    metric = Metric.string("page", replace(every_kind.PARAMS, num_cohorts=1))
    sample = sample_of(metric, 1, 20_000, unseen_seed)
    assert not compare_rows([sample]).refuted
    sample.bits[:20, 0] = sample.truth[:20]
    found = compare_rows([sample])
    assert found.refuted
    assert "report 1 of 20 of 20,000 clients of 'v1' has one row, that of the value without noise" in found.finding


def test_repeats_of_common_rows_are_expected(unseen_seed: int) -> None:
    """Rows of 3 bits: almost every client repeats one. Rows of 64 bits: two of 20,000 are enough."""
    assert not compare_repeats_among_clients([sample_of(METRICS["categorical"], 1, 20_000, unseen_seed)]).refuted
    sample = sample_of(Metric.string("page", replace(every_kind.PARAMS, num_cohorts=1)), 1, 20_000, unseen_seed)
    assert not compare_repeats_among_clients([sample]).refuted
    sample.bits[5:7] = sample.bits[19_000:19_002]
    assert compare_repeats_among_clients([sample]).refuted


@pytest.mark.slow
def test_p_values_of_correct_clients_are_uniform_or_larger(unseen_seed: int) -> None:
    """200 audits: of each test, P(p <= x) <= x. A number of them is above its limit with probability 1e-6 / 60 or less, and none refutes."""
    kinds, found = list(METRICS.values()), dict[str, list[float]]()
    for number in range(200):
        metric = kinds[number % len(kinds)]
        audit = audit_metric(metric, client=SimulatedClient(metric), trials=8_000, seed=(unseen_seed + number) % 2**32)
        assert not audit.refuted
        for test in audit.tests:
            found.setdefault(test.name, []).append(test.p_value)
    for values in found.values():
        for level in (0.5, 0.1, 0.05, 0.01, 0.001):
            below = sum(value <= level for value in values)
            upper = binomial_tails(below, len(values), level)
            assert below <= level * len(values) or upper > FAMILY_LEVEL / 60


@pytest.mark.slow
@pytest.mark.parametrize("leak", leaks(), ids=lambda leak: leak.name)
def test_leak_is_refuted_with_default_settings(leak: Leak, unseen_seed: int) -> None:
    tests, _ = run(leak.metric, leak.client, unseen_seed % 2**32)
    assert any(test.refuted for test in tests)


def test_every_comparison_runs_on_reports_of_every_kind(unseen_seed: int) -> None:
    for metric in METRICS.values():
        tests = law_tests([sample_of(metric, 3, 500, unseen_seed)])
        assert len(tests) == 10
        assert not any(test.refuted for test in tests), [test for test in tests if test.refuted]
