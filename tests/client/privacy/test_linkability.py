"""Linkability of reports by their permanent bits, by enumeration and by a simulated observer."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from hubbub import Metric, ParameterError, Params, UnaryResponse
from hubbub.privacy import effective_group_size, epsilon_permanent, match_probability_bound
from hubbub.privacy.linkability import linkability_warning, mutual_information
from tests.support.attack_models import share_matched
from tests.support.enumerate_mechanism import bloom_filters, report_distribution

Probabilities = tuple[float, float, float | tuple[float, float]]
PROBABILITIES: list[Probabilities] = [
    (0.5, 0.75, 0.5),
    (0.1, 0.6, 0.25),
    (0.0, 1.0, 0.5),
    (0.0, 0.5, 0.25),
    (0.3, 0.8, 0.0),
    (0.2, 0.8, (0.05, 0.5)),
    (0.1, 0.5, (0.4, 0.9)),
]


def params_of(k: int, h: int, p: float, q: float, f: float | tuple[float, float]) -> Params:
    """Params of f, or of permanent_p and permanent_q."""
    b, a = f if isinstance(f, tuple) else (f / 2, 1 - f / 2)
    return Params(num_bits=k, num_hashes=h, num_cohorts=1, prob_p=p, prob_q=q, permanent_p=b, permanent_q=a)


@pytest.mark.parametrize("t", [1, 2])
@pytest.mark.parametrize("pqf", PROBABILITIES)
def test_mutual_information_equals_enumeration(pqf: Probabilities, t: int) -> None:
    """k = 2, h = 1: the distribution of 2t reports of one value, against the product of two of t."""
    params = params_of(2, 1, *pqf)
    shared = []
    for bloom in bloom_filters(2, {0, 1}):
        both = report_distribution(params, [bloom], 2 * t)[0].reshape(1 << 2 * t, 1 << 2 * t)
        apart = np.outer(both.sum(axis=1), both.sum(axis=0))
        shared.append(float(np.sum(both[both > 0] * np.log(both[both > 0] / apart[both > 0]))))
    assert mutual_information(params, t) == pytest.approx(max(shared), abs=1e-12)


@pytest.mark.parametrize("pqf", PROBABILITIES)
def test_mutual_information_grows_to_the_permanent_bits(pqf: Probabilities) -> None:
    params = params_of(8, 2, *pqf)
    shared = [mutual_information(params, t) for t in (1, 2, 4, 150, math.inf)]
    assert all(more >= less - 1e-12 for less, more in itertools.pairwise(shared))
    zero, one = (
        -sum(x * math.log(x) for x in (g, 1 - g) if x)
        for g in (params.mechanism.permanent_p, params.mechanism.permanent_q)
    )
    entropy = max(8 * zero, 6 * zero + 2 * one)
    assert shared[-1] == pytest.approx(entropy)
    assert shared[-2] >= 0.98 * entropy


def test_permanent_bits_of_128_bits_at_epsilon_4() -> None:
    """Entropy in bits at h = 1 and eps_inf = 4: 67 for a symmetric response, 17 for a = 1/2, which the value's own bit makes 17.5."""
    symmetric, b = 1 / (math.exp(2) + 1), 1 / (math.exp(4) + 1)
    shapes = [params_of(128, 1, 0.25, 0.75, permanent) for permanent in (2 * symmetric, (b, 0.5))]
    for params in shapes:
        assert epsilon_permanent(params) == pytest.approx(4, abs=1e-4)
    bits = [mutual_information(params, math.inf) / math.log(2) for params in shapes]
    no_value = -128 * (b * math.log2(b) + (1 - b) * math.log2(1 - b))
    assert [round(information, 1) for information in (*bits, no_value)] == [67.5, 17.5, 16.6]


@pytest.mark.parametrize(
    ("pqf", "t"), [((0.5, 0.75, 0.5), 1), ((0.25, 0.75, 0.5), 1), ((0.5, 0.75, 0.75), 7), ((0.0, 1.0, 0.5), 1)]
)
def test_simulated_matching_stays_below_the_bound(pqf: Probabilities, t: int, unseen_seed: int) -> None:
    """Maximum likelihood matching of 1,000 clients with one value, k = 24; tolerance five standard errors."""
    params, n = params_of(24, 2, *pqf), 1000
    matched = share_matched(params, n, t, np.random.default_rng(unseen_seed))
    assert matched <= match_probability_bound(params, n, t) + 5 * math.sqrt(0.25 / n)
    assert (matched > 0.5) is (pqf == (0.0, 1.0, 0.5))


@pytest.mark.parametrize(("pqf", "expected"), [((0.3, 0.8, 0.0), math.log(2) / math.log(1_000)), ((0.0, 1.0, 0.5), 1)])
def test_bound_is_that_of_fano_and_at_most_one(pqf: Probabilities, expected: float) -> None:
    """Without permanent noise I is 0; with its 24 bits of entropy and more, clients of a group of 1,000 can all be told apart."""
    assert match_probability_bound(params_of(32, 2, *pqf), 1_000) == pytest.approx(expected)


def test_warns_about_linkable_reports_only() -> None:
    hundred = tuple(f"c{i}" for i in range(100))
    warning = linkability_warning(Metric.categorical("country", hundred, UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5)))
    assert warning is not None
    assert "country: two reports of one client can be linked" in warning
    assert "among up to 2.64e+24 clients" in warning
    for quiet in (
        Metric.categorical("country", hundred, UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5), hold=1),
        Metric.categorical("country", hundred, UnaryResponse(prob_p=0.4, prob_q=0.6, prob_f=0.5)),
        Metric.boolean("survey", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5)),
        Metric.string("homepage", params_of(128, 2, 0.25, 0.75, 0.5)),
    ):
        assert linkability_warning(quiet) is None


def test_rejects_invalid_reports_and_group_sizes() -> None:
    for reports in (0, 1.5, math.nan):
        with pytest.raises(ParameterError, match="num_reports must be"):
            effective_group_size(params_of(8, 1, 0.25, 0.75, 0.5), reports)
    with pytest.raises(ParameterError, match="group_size must be an integer >= 2, got 1"):
        match_probability_bound(params_of(8, 1, 0.25, 0.75, 0.5), 1)
