"""Categorical and boolean metrics: closed-form estimates and exact tests."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom, norm

from hubbub import Metric, SummaryError
from hubbub.summary import BitCounts
from hubbub_decoder import CandidateError, decode
from hubbub_decoder.data.simulate import simulate_bit_counts
from hubbub_decoder.estimators.categories import category_shares, p_values, total_variance

ALPHA = 1e-6
COLOURS = ("red", "green", "blue", "none of these")


def colour(p: float = 0.25, q: float = 0.75, f: float = 0.25) -> Metric:
    return Metric.categorical("colour", COLOURS, prob_p=p, prob_q=q, prob_f=f)


def test_categories_without_noise_are_exact() -> None:
    decoding = decode(BitCounts(colour(0, 1, 0), [10], [[5, 3, 0, 1]]))
    assert [(e.candidate, e.share, e.std_error) for e in decoding.estimates] == [
        ("red", 0.5, 0),
        ("green", 0.3, 0),
        ("none of these", 0.1, 0),
        ("blue", 0, 0),
    ]
    assert [e.candidate for e in decoding.detected] == ["red", "green", "none of these"]
    assert decoding.no_value.share == pytest.approx(0.1)


@pytest.mark.parametrize(("p", "q", "f"), [(0.25, 0.75, 0.5), (0.6, 0.3, 0.25)])
def test_category_shares_are_unbiased_with_the_stated_variance(p: float, q: float, f: float) -> None:
    """By enumeration. Two reports, one red and one green, of 2 bits each: 16 outcomes; single shares and their sum."""
    metric = Metric.categorical("two", ("red", "green"), prob_p=p, prob_q=q, prob_f=f)
    params = metric.params
    chances = [params.q_star, params.p_star, params.p_star, params.q_star]
    mean, square, total_square = np.zeros(2), np.zeros(2), 0.0
    for outcome in itertools.product((0, 1), repeat=4):
        probability = math.prod(c if bit else 1 - c for bit, c in zip(outcome, chances, strict=True))
        shares = category_shares(np.array([outcome[0] + outcome[2], outcome[1] + outcome[3]]), 2, params)
        mean += probability * shares
        square += probability * shares**2
        total_square += probability * shares.sum() ** 2
    assert mean == pytest.approx([0.5, 0.5], abs=1e-12)
    assert square - mean**2 == pytest.approx([total_variance(0.5, 1, 2, params)] * 2, abs=1e-12)
    assert total_square - 1 == pytest.approx(total_variance(1, 2, 2, params), abs=1e-12)


@pytest.mark.parametrize(("p", "q"), [(0.25, 0.75), (0.75, 0.25)])
def test_category_p_values_are_binomial_tails(p: float, q: float) -> None:
    params = colour(p, q).params
    found = p_values(np.array([0, 3, 8, 10]), 10, params)
    outcomes = np.arange(11)
    chance = binom.pmf(outcomes, 10, params.p_star)
    tails = [chance[outcomes >= c].sum() if p < q else chance[outcomes <= c].sum() for c in (0, 3, 8, 10)]
    assert found == pytest.approx(tails, abs=1e-12)


@pytest.mark.slow
def test_category_intervals_cover_and_fdr_holds(unseen_seed: int) -> None:
    """Coverage in [.94, .96] for each of 4 bits and for the total: 4,000 runs, alpha = 1e-6, detect a coverage of .925."""
    rng = np.random.default_rng(unseen_seed)
    n, runs = 2000, 4000
    truth = {"red": 1200, "green": 500, "blue": 0, "none of these": 100}
    covered = dict.fromkeys((*COLOURS, "without value"), 0)
    false_share = 0.0
    for _ in range(runs):
        decoding = decode(simulate_bit_counts(colour(), truth, rng, no_value=200))
        for e in decoding.estimates:
            covered[e.candidate] += e.low <= truth[e.candidate] / n <= e.high
        covered["without value"] += decoding.no_value.low <= 0.1 <= decoding.no_value.high
        false_share += decoding["blue"].detected / max(1, len(decoding.detected))
    reach = norm.isf(ALPHA / 2) * math.sqrt(0.95 * 0.05 / runs)
    for name, count in covered.items():
        assert 0.94 - reach < count / runs < 0.96 + reach, name
    assert false_share / runs < 0.05 + reach


def test_unrequested_categories_count_as_unlisted() -> None:
    counts = simulate_bit_counts(colour(), {"red": 60_000, "green": 40_000}, np.random.default_rng(1))
    decoding = decode(counts, ["green", "blue"])
    assert [e.candidate for e in decoding.estimates] == ["green", "blue"]
    assert abs(decoding.unlisted.share - 0.6) < 6 * decoding.unlisted.std_error
    assert decoding.listed_total.share + decoding.unlisted.share + decoding.no_value.share == pytest.approx(1)


def test_rejects_unknown_category_by_name() -> None:
    with pytest.raises(CandidateError, match="'pink' is not one of its categories"):
        decode(BitCounts(colour(), [10], [[1, 2, 3, 4]]), ["pink"])


def test_two_coin_survey_equals_hand_calculation() -> None:
    """1,000 answers, 400 of them yes: (0.4 - 1/4) / (1/2) = 0.3, error sqrt(3/16 / 1000) / (1/2) = 0.0274."""
    survey = Metric.boolean("from_jfk", prob_p=0, prob_q=1, prob_f=0.5)
    decoding = decode(BitCounts(survey, [1000], [[400]]))
    assert decoding["true"].share == pytest.approx(0.3)
    assert decoding["true"].std_error == pytest.approx(math.sqrt(3 / 16 / 1000) / 0.5)
    assert decoding.no_value.share == pytest.approx(0.7)


def test_rejects_summary_without_reports() -> None:
    with pytest.raises(SummaryError, match="holds no report"):
        decode(BitCounts.empty(colour()))
