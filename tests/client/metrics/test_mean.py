"""Ordinal metrics with estimate = "mean": definition, the bit of a threshold, and epsilon against enumeration."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
from scipy.stats import binom, kstest

from hubbub import (
    Buckets,
    DefinitionError,
    Encoder,
    InvalidValueError,
    Metric,
    Params,
    Secret,
    UnaryResponse,
    parse_definitions,
)
from hubbub.encoding.bloom import bloom_bits
from hubbub.metrics.buckets import Estimand
from hubbub.metrics.kinds import MeanKind, OrdinalKind
from hubbub.privacy import epsilon, privacy_figures
from hubbub.privacy.policy import Policy
from hubbub.testing import SeededBytes
from tests.support.every_kind import buckets_of

ALPHA = 1e-6
NOISE: dict[str, Any] = {"prob_p": 0.25, "prob_q": 0.75, "prob_f": 0.5}
RANGE = Buckets((0, 50), default=0, estimate=Estimand.MEAN)
METRIC = Metric.ordinal("use", RANGE, UnaryResponse(**NOISE))
TABLE = """
[[metric]]
name = "use"
kind = "ordinal"
estimate = "mean"
edges = [0, 50]
default = 0
prob_p = 0.25
prob_q = 0.75
prob_f = 0.5
description = "Minutes of use."
owner = "you@example.org"
expires = 2099-01-01
"""


def test_parses_a_mean() -> None:
    metric = parse_definitions(TABLE)["use"]
    assert buckets_of(metric) == RANGE
    assert (metric.num_bits, metric.num_cohorts, metric.params.hash_scheme) == (1, 16, "threshold-v1")
    assert Metric.from_dict(metric.to_dict()) == metric
    assert metric.digest == METRIC.digest


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[0, 50]", "[0, 10, 50]", "edges must be 2 numbers with estimate = 'mean', got 3"),
        ("[0, 50]", "[50, 50]", "edges must increase, got 50 before 50"),
        ("[0, 50]", "[-1.7e308, 1.7e308]", "edges must have a finite distance"),
        ("default = 0\n", "", "default is missing, and estimate = 'mean' needs it"),
        ("default = 0", "default = 0\nrepresentatives = [25]", "representatives were given with estimate = 'mean'"),
        ('"mean"', '"median"', "estimate must be one of distribution, mean, got 'median'"),
        ("prob_f = 0.5", "permanent_p = 0.1\npermanent_q = 0.5", "permanent_p and permanent_q of one bit must add up"),
        ("default = 0", "default = 0\nnum_cohorts = 8", "unknown key 'num_cohorts'"),
    ],
)
def test_rejects_invalid_means_with_the_field_to_change(old: str, new: str, message: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        parse_definitions(TABLE.replace(old, new))
    assert message in str(caught.value)


def test_rejects_parameters_of_the_other_estimate() -> None:
    with pytest.raises(DefinitionError, match="needs one-hot parameters of 2 bits, got threshold-v1 of 1"):
        OrdinalKind(METRIC.params, Buckets((0, 10, 50)))
    with pytest.raises(DefinitionError, match="needs threshold-v1 parameters of 1 bits, got one-hot of 1"):
        MeanKind(Params.one_hot(1, **NOISE), RANGE)


def test_metrics_of_a_distribution_have_no_new_field() -> None:
    metric = Metric.ordinal("delay", (0, 10, 20), UnaryResponse(**NOISE))
    assert metric == Metric.ordinal("delay", Buckets((0, 10, 20), estimate="distribution"), UnaryResponse(**NOISE))  # type: ignore[arg-type]
    assert "estimate" not in metric.to_dict()["buckets"]
    assert "estimate" not in buckets_of(metric).digest_fields()


def encoders(number: int, metric: Metric = METRIC) -> list[Encoder]:
    random_bytes = SeededBytes("mean")
    return [Encoder(metric, Secret(random_bytes(32))) for _ in range(number)]


@pytest.mark.parametrize(("number", "bit"), [(0, 0), (-1e300, 0), (None, 0), (50, 1), (10**400, 1)])
def test_ends_of_the_range_have_the_same_bit_in_all_clients(number: float | None, bit: int) -> None:
    assert {int(encoder.bloom_bits(number)) for encoder in encoders(200)} == {bit}
    assert {int(bloom_bits(METRIC, number, cohort)) for cohort in range(16)} == {bit}


def test_bit_never_falls_when_the_number_grows() -> None:
    for encoder in encoders(100):
        bits = [int(encoder.bloom_bits(number)) for number in range(-5, 60)]
        assert bits == sorted(bits)


def test_thresholds_are_uniform_and_fixed_by_secret_and_name() -> None:
    """4,000 secrets of a seeded stream: Kolmogorov's test of the thresholds, and of those within their cohort."""
    random_bytes = SeededBytes("thresholds")
    secrets = [Secret(random_bytes(32)) for _ in range(4000)]
    thresholds = [secret.threshold("use", secret.cohort(16), 16) for secret in secrets]
    assert kstest(thresholds, "uniform").pvalue > ALPHA
    assert kstest([16 * threshold % 1 for threshold in thresholds], "uniform").pvalue > ALPHA
    assert all(
        math.ceil(16 * threshold) - 1 == secret.cohort(16)
        for threshold, secret in zip(thresholds, secrets, strict=True)
    )
    assert thresholds == [secret.threshold("use", secret.cohort(16), 16) for secret in secrets]
    assert thresholds[0] != secrets[0].threshold("other", secrets[0].cohort(16), 16)


def test_share_of_true_bits_is_the_place_of_the_number_in_the_range() -> None:
    """17 of 0 to 50 is at .34: 4,000 clients of a seeded stream."""
    ones = sum(int(encoder.bloom_bits(17)) for encoder in encoders(4000))
    assert binom.ppf(ALPHA / 2, 4000, 0.34) <= ones <= binom.isf(ALPHA / 2, 4000, 0.34)


def test_bit_without_the_threshold_it_depends_on_is_an_error() -> None:
    """17 is at 5.44 of 16 cohorts: in cohort 5 the client's threshold decides."""
    bits = [int(bloom_bits(METRIC, 17, cohort)) for cohort in range(16) if cohort != 5]
    assert bits == [1] * 5 + [0] * 10
    with pytest.raises(InvalidValueError, match=r"use: threshold is missing.*use Encoder.bloom_bits") as caught:
        bloom_bits(METRIC, 17, 5)
    assert "17" not in str(caught.value)
    assert [int(bloom_bits(METRIC, 17, 5, threshold)) for threshold in (0.33, 0.34, 0.35)] == [1, 1, 0]


def test_a_value_costs_as_much_as_a_bit_and_there_are_two() -> None:
    assert METRIC.kind.distinct_values == 2
    figures = privacy_figures(METRIC, Policy())
    assert figures.epsilon_report == epsilon(Params.one_hot(1, **NOISE))
    assert figures.epsilon_enrollment == pytest.approx(2 * figures.epsilon_unit)


PROBABILITIES = [(0.25, 0.75, 0.5), (0.0, 1.0, 0.5), (0.1, 0.6, 0.25), (0.4, 0.5, 0.0)]
RECORDED = [None, -1e9, 0, 1e-9, 3.2, 25, 26, 49.9, 50, 1e9]


def output_laws(metric: Metric, value: float | None, t: int, parts: int) -> dict[tuple[int, ...], float]:
    """Probability of each cohort and t bits, over the coins and over `parts` thresholds of equal probability in each cohort."""
    p, q, f = metric.params.mechanism.prob_p, metric.params.mechanism.prob_q, metric.params.mechanism.prob_f
    assert f is not None
    m, law = metric.num_cohorts, dict[tuple[int, ...], float]()
    for cohort, part, permanent in itertools.product(range(m), range(parts), (0, 1)):
        bit = int(bloom_bits(metric, value, cohort, (cohort + (part + 1) / parts) / m))
        coin = 1 - f / 2 if permanent == bit else f / 2
        for reports in itertools.product((0, 1), repeat=t):
            rate = q if permanent else p
            chance = math.prod(rate if one else 1 - rate for one in reports)
            key = (cohort, *reports)
            law[key] = law.get(key, 0.0) + coin * chance / (m * parts)
    return law


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("default", [0, 25, 50])
@pytest.mark.parametrize("t", [1, 2, 3])
@pytest.mark.parametrize("pqf", PROBABILITIES)
def test_epsilon_of_a_mean_equals_enumeration(
    pqf: tuple[float, float, float], t: int, default: float, parts: int
) -> None:
    """Every pair of numbers, "no value" among them, every cohort and every output of t reports, with a random threshold of the client."""
    p, q, f = pqf
    metric = Metric.ordinal("use", replace(RANGE, default=default), UnaryResponse(prob_p=p, prob_q=q, prob_f=f))
    laws = [output_laws(metric, value, t, parts) for value in RECORDED]
    assert all(math.isclose(sum(law.values()), 1) for law in laws)
    worst = 0.0
    for first, second in itertools.permutations(laws, 2):
        for key, chance in first.items():
            if chance > 0:
                worst = max(worst, math.log(chance / second[key]) if second[key] > 0 else math.inf)
    assert worst == pytest.approx(epsilon(metric, t), abs=1e-12)


@pytest.mark.parametrize("pqf", PROBABILITIES)
def test_loss_of_a_changing_number_is_at_most_that_of_its_two_bits(pqf: tuple[float, float, float]) -> None:
    """Histories of 4 numbers that cross the threshold at the same times, one memoized response for each bit: two units at most."""
    params = Metric.ordinal("use", RANGE, UnaryResponse(prob_p=pqf[0], prob_q=pqf[1], prob_f=pqf[2])).params
    p, q, f = params.mechanism.prob_p, params.mechanism.prob_q, 2 * params.mechanism.permanent_p

    def law(bits: tuple[int, ...], reports: tuple[int, ...]) -> float:
        total = 0.0
        for responses in itertools.product((0, 1), repeat=2):  # permanent bits of the true bits 0 and 1
            coin = math.prod(1 - f / 2 if response == bit else f / 2 for bit, response in enumerate(responses))
            rates = [q if responses[bit] else p for bit in bits]
            total += coin * math.prod(r if one else 1 - r for r, one in zip(rates, reports, strict=True))
        return total

    for bits in itertools.product((0, 1), repeat=4):
        other = tuple(1 - bit for bit in bits)
        ones = sum(bits)
        units = sum(epsilon(params, n) for n in (ones, 4 - ones) if n)
        losses = []
        for reports in itertools.product((0, 1), repeat=4):
            first, second = law(bits, reports), law(other, reports)
            if first > 0:
                losses.append(math.log(first / second) if second > 0 else math.inf)
        assert max(losses) <= units + 1e-12
        if p + q == 1:  # then ones and zeros reveal as much
            assert max(losses) == pytest.approx(units, abs=1e-12)
