"""Subset selection: privacy loss and law of rows against enumeration, sampling, parameters."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from itertools import combinations, permutations

import numpy as np
import pytest
from scipy import stats

from hubbub import Buckets, DefinitionError, Encoder, Metric, ParameterError, Secret, SubsetSelection
from hubbub.metrics.definitions import parse_definitions
from hubbub.metrics.kinds import CategoricalKind
from hubbub_decoder.estimators.categories import RowNoise
from hubbub_decoder.model.repetition import Repetition
from tests.support.enumerate_rows import row_distribution

SIZES = [(2, 1), (3, 1), (4, 1), (4, 2), (5, 2), (6, 3)]
NOISY = SubsetSelection(num_values=5, num_ones=2, prob_q=0.7, permanent_q=0.6)
TOML = """
[[metric]]
name = "theme"
kind = "categorical"
categories = ["dark", "light", "system"]
mechanism = "subset"
num_ones = 1
prob_q = 0.625
permanent_q = 0.75
description = "Theme"
owner = "a@example.org"
expires = 2030-01-01
"""


@pytest.mark.parametrize(("num_values", "num_ones"), SIZES)
def test_epsilon_is_the_largest_loss_of_all_sequences(num_values: int, num_ones: int, unseen_seed: int) -> None:
    rng = np.random.default_rng(unseen_seed)
    for permanent_q in (1.0, float(rng.uniform(1.2 / num_values, 0.99))):
        chance = float(rng.uniform(1.1 * num_ones / num_values, 0.95))
        mechanism = SubsetSelection(num_values=num_values, num_ones=num_ones, prob_q=chance, permanent_q=permanent_q)
        for reports in (1, 2, 3) if math.comb(num_values, num_ones) <= 10 else (1, 2):
            laws = row_distribution(mechanism, reports)
            loss = max(math.log(x / y) for one, other in permutations(laws, 2) for x, y in zip(one, other, strict=True))
            assert mechanism.epsilon(num_values, (1,), reports) == pytest.approx(loss, rel=1e-9)
            collision = math.log(math.fsum(probability * probability for probability in laws[0]))
            assert mechanism.log_collision(num_values, 1, reports) == pytest.approx(collision, rel=1e-9)


@pytest.mark.parametrize(
    ("d", "w", "q", "a"), [(4, 2, 10 / 11, 0.4), (6, 3, 0.8, 0.375), (5, 2, 0.9, 0.5), (4, 2, 0.6, 0.3)]
)
def test_ones_of_the_other_value_can_raise_the_loss(d: int, w: int, q: float, a: float) -> None:
    """The worst reports of two values may also contain the other value, if they leave fewer ones to the rest."""
    mechanism = SubsetSelection(num_values=d, num_ones=w, prob_q=q, permanent_q=a)
    for reports in (1, 2, 3, 4) if d < 5 else (1, 2):
        laws = np.array(row_distribution(mechanism, reports))
        loss = math.log((laws.max(axis=0) / laws.min(axis=0)).max())
        assert mechanism.epsilon(d, (1,), reports) == pytest.approx(loss, rel=1e-9)


@pytest.mark.parametrize(("d", "w"), [(4, 2), (6, 3), (9, 4), (3, 1)])
def test_epsilon_is_the_largest_ratio_over_all_counts(d: int, w: int, unseen_seed: int) -> None:
    """Against all counts of ones of the other value, with the rest shared evenly, for up to 25 reports."""
    rng = np.random.default_rng(unseen_seed)
    for _ in range(60):
        q, a, t = (
            float(rng.uniform(w / d + 0.02, 0.98)),
            float(rng.uniform(1 / d + 0.02, 0.98)),
            int(rng.integers(1, 26)),
        )
        mechanism = SubsetSelection(num_values=d, num_ones=w, prob_q=q, permanent_q=a)
        a, b, q = mechanism.permanent_q, mechanism.permanent_p, mechanism.prob_q
        r = q * (d - w) / ((1 - q) * w)
        losses = []
        for of_other in range(min(t, (w - 1) * t) + 1):
            shared, more = divmod((w - 1) * t - of_other, d - 2)
            z = r**t + r**of_other + more * r ** (shared + 1) + (d - 2 - more) * r**shared
            losses.append(math.log((b * z + (a - b) * r**t) / (b * z + (a - b) * r**of_other)))
        assert mechanism.epsilon(d, (1,), t) == pytest.approx(max(losses), rel=1e-9)


def test_epsilon_of_many_reports_tends_to_that_of_the_permanent_value() -> None:
    found = [NOISY.epsilon(5, (1,), t) for t in (1, 10, 1_000, 10**6, math.inf)]
    assert found == sorted(found)
    assert found[-1] == pytest.approx(math.log(0.6 / 0.1), rel=1e-6)
    assert found[-2] == pytest.approx(found[-1], rel=1e-9)


def test_two_sets_of_reports_share_at_most_the_stated_information() -> None:
    """Against the mutual information of two reports of one client, by enumeration."""
    for mechanism in (NOISY, SubsetSelection(num_values=4, num_ones=1, prob_q=0.8, permanent_q=0.7)):
        once, twice = (np.array(row_distribution(mechanism, reports)[0]) for reports in (1, 2))
        exact = float((twice * np.log(twice / np.outer(once, once).ravel())).sum())
        assert 0 < exact <= mechanism.mutual_information(mechanism.num_values, (1,), 1)


def theme() -> Metric:
    return parse_definitions(TOML)["theme"]


def test_definition_has_a_bit_of_no_value() -> None:
    metric = theme()
    assert (metric.num_bits, metric.kind.labels) == (4, ("dark", "light", "system"))
    assert Metric.from_dict(metric.to_dict()) == metric
    assert [int(metric.kind.true_bits(value, 0)) for value in ("dark", "system", None)] == [1, 4, 8]
    assert metric.kind.distinct_values == 4


def test_python_defines_the_same_metric_as_toml() -> None:
    response = SubsetSelection(num_values=4, num_ones=1, prob_q=0.625, permanent_q=0.75)
    metric = Metric.categorical("theme", ("dark", "light", "system"), response)
    assert (metric.digest, metric.kind) == (theme().digest, theme().kind)
    buckets = Buckets((0, 10, 20, 30, 40), default=0)
    # a default needs no bit of "no value"
    assert Metric.ordinal("delay", buckets, response).params.mechanism == response


@pytest.mark.parametrize(
    "define",
    [
        lambda response: Metric.categorical("theme", ("dark", "light", "system", "other"), response),
        lambda response: Metric.ordinal("delay", (0, 10, 20), response),
        lambda response: Metric.boolean("dark", response),
        lambda response: Metric.set("plugins", ("vim", "preview"), response),
    ],
)
def test_a_mechanism_of_another_number_of_values_is_refused(define: Callable[[SubsetSelection], Metric]) -> None:
    with pytest.raises(ParameterError, match=r"num_values = 4 needs a bit for each value, got [135]: num_values is"):
        define(SubsetSelection(num_values=4, num_ones=1, prob_q=0.625))


def test_reports_have_the_enumerated_law(unseen_seed: int) -> None:
    """G-test at 1e-6 of 6,000 clients' first two reports; the permanent value of a client is the same in both."""
    rng = np.random.default_rng(unseen_seed)
    metric = Metric(
        "m",
        CategoricalKind.one_hot(
            ("a", "b", "c"), None, SubsetSelection(num_values=4, num_ones=2, prob_q=0.75, permanent_q=0.625)
        ),
    )
    rows = [sum(1 << i for i in row) for row in combinations(range(4), 2)]
    seen: Counter[tuple[int, int]] = Counter()
    for _ in range(6_000):
        encoder = Encoder(metric, Secret(rng.bytes(32)), rng.bytes)
        first, second = (int.from_bytes(encoder.encode("b").to_bytes()[-1:], "little") for _ in range(2))
        seen[first, second] += 1
    mechanism = metric.params.mechanism
    assert isinstance(mechanism, SubsetSelection)
    law = np.array(row_distribution(mechanism, 2)[1])
    observed = np.array([seen[first, second] for first in rows for second in rows])
    assert observed.sum() == 6_000
    assert stats.power_divergence(observed, law * 6_000, lambda_="log-likelihood").pvalue > 1e-6


def test_covariance_of_simulated_rows(unseen_seed: int) -> None:
    """One report of each of 100,000 clients; each covariance is right to 6 standard errors of at most 1 / (2 sqrt n)."""
    rng = np.random.RandomState(np.random.PCG64(unseen_seed))
    rows = next(NOISY.simulate(np.zeros((100_000, 1), np.intp), 5, 1, rng))
    covariance, noise = np.cov(rows.T), RowNoise.of_mechanism(NOISY, Repetition())
    expected = [noise.present, noise.one, noise.absent, noise.neither]
    assert [covariance[0, 0], covariance[0, 1], covariance[1, 1], covariance[1, 2]] == pytest.approx(
        expected, abs=0.0095
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_ones": 0}, "num_ones must be an integer in \\[1, 2\\], got 0: half of the 4 bits"),
        ({"num_ones": 3}, "num_ones must be an integer in \\[1, 2\\], got 3"),
        ({"num_values": 1}, "num_values must be an integer in \\[2, 1024\\], got 1"),
        ({"num_values": 1025}, "num_values must be an integer in \\[2, 1024\\], got 1025"),
        ({"prob_q": 0.25}, "prob_q must be above num_ones / num_values = 0.25, got 0.25: reports would not depend"),
        ({"permanent_q": 0.25}, "permanent_q must be above 1 / num_values = 0.25, got 0.25"),
        ({"prob_q": 1.5}, "prob_q must be a number in \\[0, 1\\], got 1.5"),
    ],
)
def test_parameters_out_of_range_are_refused(fields: dict[str, float], message: str) -> None:
    usual = {"num_values": 4, "num_ones": 1, "prob_q": 0.75, "permanent_q": 0.5}
    with pytest.raises(ParameterError, match=message):
        SubsetSelection(**{**usual, **fields})  # type: ignore[arg-type]  # also wrong ones


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("num_ones = 1\n", ""), "theme: num_ones is missing"),
        (("num_ones = 1", "num_ones = 3"), "theme: num_ones must be an integer in"),
        (("prob_q = 0.625", "prob_q = 1.0"), "theme: prob_q must be below 1"),
        (("num_ones = 1", "num_ones = 1\nprob_f = 0.5"), "theme: .*prob_f"),
        (
            ('kind = "categorical"\ncategories = ["dark", "light", "system"]', 'kind = "boolean"'),
            "theme: subset selection of num_values = 2 needs a bit for each value, got 1",
        ),
    ],
)
def test_definitions_that_do_not_fit_are_refused(change: tuple[str, str], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        parse_definitions(TOML.replace(*change))["theme"].require_collectable()
