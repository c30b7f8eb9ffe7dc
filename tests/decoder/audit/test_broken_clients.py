"""Broken clients of tests/support/broken_clients.py: each is refuted, and the correct ones are not.

Bounds have confidence 1 - 1e-6, so a correct client is refuted with probability at most 1e-6 (bound) and 1e-9 (replay tests).
"""

from __future__ import annotations

import pytest

from hubbub import Metric
from hubbub_decoder.audit.audit import Audit, audit_client, audit_metric
from hubbub_decoder.audit.external_clients import FunctionClient
from hubbub_decoder.audit.replay import replay_tests_of
from hubbub_decoder.audit.trials import Schedule
from tests.support.broken_clients import ONE_TIME, PAGE

CONFIDENCE = 1 - 1e-6


def function(name: str) -> FunctionClient:
    return FunctionClient.load(f"tests.support.broken_clients:{name}")


def audited(name: str, metric: Metric, seed: int, *, reports: int = 1, trials: int = 40_000) -> Audit:
    return audit_metric(metric, client=function(name), reports=reports, trials=trials, confidence=CONFIDENCE, seed=seed)


@pytest.mark.parametrize("reports", [1, 7])
def test_correct_client_is_not_refuted(reports: int, unseen_seed: int) -> None:
    audit = audited("correct", PAGE, unseen_seed, reports=reports)
    assert not audit.refuted
    assert audit.bound.epsilon > 0.4 * audit.claim  # tens of standard errors below the measured .8


def test_client_that_never_clears_a_one_is_refuted(unseen_seed: int) -> None:
    """A zero at a bit of one value occurs with probability .69 under the other value, and never under this one."""
    audit = audited("never_clears_a_one", PAGE, unseen_seed)
    assert audit.refuted
    assert audit.bound.epsilon > 2 * audit.claim


def test_client_with_new_permanent_bits_each_report_is_refuted(unseen_seed: int) -> None:
    """30 reports with fresh noise differ at four bits by 4.4 standard deviations each; the declared noise allows eps = 4.39."""
    audit = audited("new_permanent_bits_each_report", PAGE, unseen_seed, reports=30)
    assert audit.refuted


def test_one_report_of_new_permanent_bits_is_not_refuted(unseen_seed: int) -> None:
    """One report has the declared law: the fault is visible in linked reports only."""
    assert not audited("new_permanent_bits_each_report", PAGE, unseen_seed).refuted


def test_client_with_floored_f_is_refuted(unseen_seed: int) -> None:
    """eps is 3.012 instead of 2.944; the bound of 1e6 trials of each value misses .068 with probability below 1e-6.

    The standard error of ln(P_v / P_w) is sqrt(1 / (1e6 * .0469)) = .0046. The bound is 5.0 of them low, so the margin is 9.7 more.
    """
    assert audited("f_floored_to_128ths", ONE_TIME, unseen_seed, trials=4_000_000).refuted
    assert not audited("correct_one_time", ONE_TIME, unseen_seed, trials=4_000_000).refuted


def test_client_with_a_bit_without_noise_is_refuted(unseen_seed: int) -> None:
    """The search finds a value that sets the last bit in a cohort, and the cohort."""
    audit = audited("last_bit_without_noise", PAGE, unseen_seed)
    assert audit.refuted
    assert audit.distinguisher == "learned for each bit"


def test_client_seeded_with_the_time_is_refuted_by_replay_tests(unseen_seed: int) -> None:
    tests = replay_tests_of(function("seeded_with_the_time"), PAGE, "v1", Schedule.of(1, None), unseen_seed)
    assert [test.name for test in tests] == [
        "calls in quick succession",
        "calls while the clock stands still",
        "new processes at the same time",
    ]
    assert [test.refuted for test in tests][1:] == [True, True]  # calls in succession can fall into different seconds


@pytest.mark.slow
def test_black_box_seeded_with_the_time_is_refuted_by_replay_tests(unseen_seed: int) -> None:
    tests = replay_tests_of(function("seeded_with_the_time"), None, "v1", Schedule.of(1, None), unseen_seed)
    assert any(test.refuted for test in tests)


@pytest.mark.slow
def test_client_seeded_at_import_is_refuted_by_new_processes(unseen_seed: int) -> None:
    tests = replay_tests_of(function("seeded_at_import"), PAGE, "v1", Schedule.of(1, None), unseen_seed)
    assert [test.refuted for test in tests] == [False, False, True]


@pytest.mark.slow
def test_correct_client_passes_the_replay_tests(unseen_seed: int) -> None:
    """False alarms have probability 1e-9."""
    for metric in (PAGE, None):
        tests = replay_tests_of(function("correct"), metric, "v1", Schedule.of(1, None), unseen_seed)
        assert len(tests) == 3
        assert not any(test.refuted for test in tests)


@pytest.mark.parametrize("name", ["never_clears_a_one", "last_bit_without_noise"])
def test_black_box_without_a_definition_is_refuted(name: str, unseen_seed: int) -> None:
    """v1 and v10 differ at the last bit; distinguishers are learned from the reports alone."""
    values = ["v1", "v4", "v10", None]
    claim = 2.0434
    broken, correct = (
        audit_client(function(each), list(values), claim, trials=80_000, confidence=CONFIDENCE, seed=unseen_seed)
        for each in (name, "correct")
    )
    assert broken.refuted
    assert not correct.refuted
    assert correct.bound.epsilon > 0.3 * claim
