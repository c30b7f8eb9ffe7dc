"""Broken clients of tests/support/broken_clients.py over all kinds of definitions: each is refuted, and the sound ones are not.

Bounds have confidence 1 - 1e-6, so a sound client is refuted with probability at most 1e-6 (bound), 1e-9 (replay) and 1e-9 (independence).
With 100,000 clients, every bound of a fault exceeded its claim by .8 or more in six runs, and every dependence was 12 standard errors or
more, at a level of 7 to 8: a fault is missed with probability below 1e-6.
"""

from __future__ import annotations

import math

import pytest

from hubbub import Metric, UnaryResponse
from hubbub_decoder.audit.audit import audit_client, audit_metric
from hubbub_decoder.audit.external_clients import FunctionClient
from hubbub_decoder.audit.independence import compare_metrics, independence_tests
from hubbub_decoder.audit.replay import replay_tests_of
from hubbub_decoder.audit.trials import Schedule
from hubbub_decoder.errors import AuditError
from tests.support.broken_clients import (
    COINS,
    METRICS,
    PAGE,
    BitWithoutNoise,
    CohortOfTheValue,
    DependentMetrics,
    Fault,
    NeverClearsAOne,
    SimulatedClient,
    SimulatedMetrics,
    faults,
    spoiled_estimates,
)

CONFIDENCE = 1 - 1e-6


def function(name: str) -> FunctionClient:
    return FunctionClient.load(f"tests.support.broken_clients:{name}")


def is_refuted(metric: Metric, fault: Fault, seed: int) -> bool:
    """Whether the bound or an independence test refutes a client, with 100,000 clients."""
    audit = audit_metric(
        metric, client=fault.client, num_reports=fault.reports, trials=100_000, confidence=CONFIDENCE, seed=seed
    )
    return audit.refuted or any(
        test.refuted for test in independence_tests(fault.client, metric, None, audit.trials // 4, seed)
    )


def cases(*, single_bits: bool) -> list[object]:
    """Faults of all metrics: at single bits except the last, or the others."""
    return [
        pytest.param(metric, fault, id=f"{kind}: {fault.name}")
        for kind, metric in METRICS.items()
        for fault in faults(metric)
        if single_bits == (isinstance(fault.client, BitWithoutNoise) and fault.client.bit < metric.num_bits - 1)
    ]


@pytest.mark.parametrize(("metric", "fault"), cases(single_bits=False))
def test_client_with_a_fault_is_refuted(metric: Metric, fault: Fault, unseen_seed: int) -> None:
    assert is_refuted(metric, fault, unseen_seed)


@pytest.mark.slow
@pytest.mark.parametrize(("metric", "fault"), cases(single_bits=True))
def test_client_with_any_bit_without_noise_is_refuted(metric: Metric, fault: Fault, unseen_seed: int) -> None:
    assert is_refuted(metric, fault, unseen_seed)


@pytest.mark.parametrize("kind", METRICS)
def test_client_that_spoils_estimates_is_refuted(kind: str, unseen_seed: int) -> None:
    """Exchanged p and q, and unused cohorts, keep epsilon, but do not have the declared law."""
    for fault in spoiled_estimates(METRICS[kind]):
        audit = audit_metric(
            METRICS[kind], client=fault.client, trials=100_000, confidence=CONFIDENCE, seed=unseen_seed
        )
        assert audit.refuted
        assert audit.bound.epsilon <= audit.claim


@pytest.mark.parametrize("kind", METRICS)
def test_sound_client_of_every_kind_reaches_nine_tenths_of_its_claim(kind: str, unseen_seed: int) -> None:
    """The default number of clients: the bound is 95 % of the claim with power 99 %, so its mean is 2.33 standard errors above 95 %.

    Those 5 % of the claim are 2.58 + 2.33 standard errors or more. So 90 % is 7.2 below the mean, and is missed with probability below 1e-6.
    """
    metric = METRICS[kind]
    audit = audit_metric(metric, client=SimulatedClient(metric), seed=unseen_seed)
    assert audit.bound.epsilon >= 0.9 * audit.claim
    assert not is_refuted(metric, Fault("none", SimulatedClient(metric)), unseen_seed)


PAIRS = [
    ("string", "string, asymmetric"),
    ("categorical", "boolean, hold"),
    ("discover", "mean"),
    ("string", "joint of three"),
    ("categorical", "ordinal", "string, hold"),
]


@pytest.mark.parametrize("kinds", PAIRS, ids=" and ".join)
@pytest.mark.parametrize("shared", ["", "permanent", "instantaneous"])
def test_metrics_of_one_noise_are_refuted(kinds: tuple[str, ...], shared: str, unseen_seed: int) -> None:
    metrics = tuple(METRICS[kind] for kind in kinds)
    noises, bits = compare_metrics(SimulatedMetrics(metrics, shared), metrics, 25_000, unseen_seed)
    assert noises.refuted == bool(shared)
    assert not bits.refuted


def test_report_that_depends_on_another_metrics_value_is_refuted(unseen_seed: int) -> None:
    """Half of the 6,250 clients with a true bit send no value: 20 standard errors of that bit."""
    metrics = (METRICS["string"], METRICS["boolean"])
    _, bits = compare_metrics(DependentMetrics(metrics, 0.5), metrics, 25_000, unseen_seed)
    assert bits.refuted


def test_client_with_floored_f_is_refuted(unseen_seed: int) -> None:
    """One permanent bit at f = .1: eps is ln 19 = 2.944. Rounded down to 12/128, f gives ln(61/3) = 3.012.

    The standard error of ln(P_v / P_w) with 1e6 trials of each value is sqrt(1 / (1e6 * .0469)) = .0046. The bound is 5.0 of them low,
    so the margin of .068 is 9.7 more.
    """
    declared = Metric.boolean("one_time", UnaryResponse(**{**COINS, "prob_f": 0.1}))
    for f, refuted in ((math.floor(0.1 * 128) / 128, True), (0.1, False)):
        client = SimulatedClient(Metric.boolean("one_time", UnaryResponse(**{**COINS, "prob_f": f})))
        audit = audit_metric(declared, client=client, trials=4_000_000, confidence=CONFIDENCE, seed=unseen_seed)
        assert audit.refuted == refuted


@pytest.mark.parametrize("kind", ["string, two hashes", "string, hold"])
def test_client_of_another_definition_cannot_be_audited(kind: str) -> None:
    """8 bits instead of 16, and cohorts 0 to 3 instead of 0 and 1."""
    with pytest.raises(AuditError, match=r"made reports of 8 bits in cohorts up to \d. The definition has"):
        audit_metric(METRICS[kind], client=SimulatedClient(METRICS["string"]), trials=4_000)


@pytest.mark.slow
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


@pytest.mark.parametrize(
    "broken",
    [NeverClearsAOne(PAGE), BitWithoutNoise(PAGE, 15), CohortOfTheValue(PAGE)],
    ids=lambda client: type(client).__name__,
)
def test_black_box_without_a_definition_is_refuted(broken: SimulatedClient, unseen_seed: int) -> None:
    """The four values set bit 15 in some cohort; distinguishers are learned from the reports alone."""
    values, claim = ["v1", "v4", "v10", None], 2.0434
    for client, refuted in ((broken, True), (SimulatedClient(PAGE), False)):
        audit = audit_client(client, list(values), claim, trials=80_000, confidence=CONFIDENCE, seed=unseen_seed)
        assert audit.refuted == refuted
    assert audit.bound.epsilon > 0.3 * claim
