"""Independence tests: the limit of the tails by enumeration, clients that do not count, and the encoder of this project."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import hypergeom

from hubbub import Metric, UnaryResponse
from hubbub_decoder.audit.clients import SeveralEncoders
from hubbub_decoder.audit.independence import (
    Noise,
    compare_metrics,
    history_of,
    independence_test,
    independence_tests,
    overlap_exponents,
)
from tests.support.broken_clients import COINS, METRICS


@pytest.mark.parametrize("sizes", [((8, 3, 5), (6, 2, 2)), ((12, 6, 6),), ((5, 1, 4), (5, 4, 1), (3, 1, 1))])
def test_numbers_of_ones_together_exceed_their_limit_with_at_most_its_probability(
    sizes: tuple[tuple[int, int, int], ...],
) -> None:
    """All numbers of clients with both events in cohorts of n clients, r with one event and s with the other: the exact law of their sum."""
    law = np.ones(1)
    for n, r, s in sizes:
        law = np.convolve(law, hypergeom.pmf(np.arange(min(r, s) + 1), n, r, s))
    cohorts = np.repeat(np.arange(len(sizes)), [n for n, _, _ in sizes])
    for overlaps in itertools.product(*(range(max(0, r + s - n), min(r, s) + 1) for n, r, s in sizes)):
        rows = [
            row
            for (n, r, s), both in zip(sizes, overlaps, strict=True)
            for row in [(1, 1)] * both + [(1, 0)] * (r - both) + [(0, 1)] * (s - both) + [(0, 0)] * (n - r - s + both)
        ]
        first, other = np.array(rows, bool).T
        together, expected, exponents = overlap_exponents(cohorts, first[:, None], other[:, None])
        total = sum(overlaps)
        assert together.item() == total
        assert expected.item() == pytest.approx(sum(r * s / n for n, r, s in sizes))
        tail = law[total:].sum() if total >= expected.item() else law[: total + 1].sum()
        assert tail <= np.exp(-exponents.item()) + 1e-12


def test_dependence_is_found_in_each_event() -> None:
    """Two noises of 400 clients: only their second events are equal."""
    rng = np.random.default_rng(1)
    first, other = (rng.random((2, 400, 3)) < 0.5 for _ in range(2))
    other[1] = first[1]
    cohorts = np.arange(400) % 2
    test = independence_test("noise", [[Noise("one", cohorts, first), Noise("another", cohorts, other)]])
    assert test.refuted
    assert "the noise of one and of another is not independent: bit" in test.finding
    assert not independence_test(
        "noise", [[Noise("one", cohorts, first[:1]), Noise("another", cohorts, other[:1])]]
    ).refuted


def test_cohorts_of_the_bits_are_no_dependence() -> None:
    """Bits that are one in cohort 1 alone agree in all clients, whatever the noise."""
    cohorts = np.arange(1_000) % 2
    events = (cohorts == 1)[None, :, None]
    assert not independence_test("noise", [[Noise("one", cohorts, events), Noise("another", cohorts, events)]]).refuted


def test_values_with_equal_bits_are_not_compared() -> None:
    """False and "no value" of a boolean metric have one permanent response."""
    metric = Metric.boolean("paid", UnaryResponse(**COINS))
    test, law = independence_tests(None, metric, [False, None], 5_000, None)
    assert not test.refuted
    assert not law.refuted
    assert "not run: these values have equal bits" in test.finding


def test_history_of_a_joint_metric_changes_its_last_part_first() -> None:
    metric = METRICS["joint of two, hold"]
    values = [(True, "a"), (False, "b"), (None, None)]
    assert history_of(metric, values) == [(True, "a"), (True, "b"), (False, "b"), (None, None), (True, "a")]


@pytest.mark.parametrize("kind", ["string", "boolean", "string, hold", "joint of three", "joint of two, hold"])
def test_encoder_is_not_refuted(kind: str) -> None:
    """False alarms have probability 1e-9. Equal noises of 1,024 clients would be 32 standard errors from independence, at a level of 7."""
    assert not any(test.refuted for test in independence_tests(None, METRICS[kind], None, 1_024, None))


def test_encoders_of_several_metrics_are_not_refuted() -> None:
    """Reports of all metrics have the bits of one secret: the cohorts of two string metrics are equal."""
    metrics = [METRICS[kind] for kind in ("string", "string, two hashes", "mean", "joint of two, hold")]
    made = SeveralEncoders(tuple(metrics))([("a", "b", 3, (True, "a"))] * 2, 1, 50)
    assert made.cohorts.shape == (50, 4)
    assert (made.cohorts[:, 0] == made.cohorts[:, 1]).all()
    assert made.bits.shape == (50, 2, sum(metric.num_bits for metric in metrics))
    assert not any(test.refuted for test in compare_metrics(None, metrics, 1_024, None))
