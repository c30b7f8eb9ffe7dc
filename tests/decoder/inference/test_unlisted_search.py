"""Search for an unlisted string: likelihood of the bits, sums over all sets of bits, and evidence without such a string."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import binom, nbinom

from hubbub import Metric, Params
from hubbub.summary import BitCounts
from hubbub_decoder.inference.residual_bits import Others, ResidualBits, log_noise_and_gamma
from hubbub_decoder.inference.unlisted_search import find_strings
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.model.random_string import distinct_bit_probabilities
from hubbub_decoder.model.vectorized_hashing import bit_positions
from hubbub_decoder.simulation import consecutive_periods, simulate


def params(k: int, h: int, m: int, scheme: str = "murmur3-v1") -> Params:
    return Params(num_bits=k, num_hashes=h, num_cohorts=m, prob_p=0.25, prob_q=0.75, prob_f=0, hash_scheme=scheme)


@pytest.mark.parametrize(
    ("reports", "pi", "expected", "ratio"), [(80, 3e-4, 4.0, 2.0), (1000, 0.25, 20.0, 1e-7), (1000, 0.1, 80.0, 20.0)]
)
def test_log_noise_and_gamma_is_the_sum_of_a_binomial_and_a_negative_binomial(
    reports: int, pi: float, expected: float, ratio: float
) -> None:
    """Within 3 % of the largest probability up to 4 standard deviations, for gamma shapes of 2 and more."""
    ones = np.arange(reports + 1)
    gamma = nbinom.pmf(ones, expected / ratio, 1 / (1 + ratio))
    exact = np.convolve(binom.pmf(ones, reports, pi), gamma)[: len(ones)]
    mean = float(exact @ ones)
    near = np.abs(ones - mean) <= 4 * np.sqrt(exact @ (ones - mean) ** 2)
    approximate = log_noise_and_gamma(
        ones.astype(float), *(np.array(float(value)) for value in (reports, pi, expected, ratio))
    )
    error = np.exp(approximate[near]) - exact[near]
    assert np.abs(error).max() < 0.03 * exact.max()
    assert abs(np.exp(approximate).sum() - 1) < 0.01


@pytest.mark.parametrize(("strings", "scheme"), [(1, "murmur3-v1"), (1, "google-md5"), (2, "murmur3-v1")])
def test_log_likelihood_sums_over_all_sets_of_bits(strings: int, scheme: str, unseen_seed: int) -> None:
    """Equal to the sum over every set of bits of every string, k = 8 and h = 2."""
    rng = np.random.default_rng(unseen_seed)
    of_metric = params(8, 2, 3, scheme)
    counts = simulate(Metric.string("m", of_metric), {"a": 3_000, "b": 2_000}, rng)
    residuals = ResidualBits.from_evidence(Evidence(counts), np.zeros((3, 8)), 1.0)
    shares, others = [0.3, 0.2][:strings], Others(0.1, 0.0)
    chances = dict(enumerate(distinct_bit_probabilities(of_metric), start=1))
    sets = [
        (np.log(p / len(list(combinations(range(8), d)))), bits)
        for d, p in chances.items()
        if p
        for bits in combinations(range(8), d)
    ]
    tables = {
        on: residuals.log_probability(sum(shares), float(np.dot(on, shares)), others)
        for on in product((0, 1), repeat=strings)
    }
    total = 0.0
    for c in range(3):
        terms = []
        for taken in product(sets, repeat=strings):
            term = sum(weight for weight, _ in taken)
            for bit in range(8):
                term += tables[tuple(int(bit in bits) for _, bits in taken)][c, bit]
            terms.append(term)
        total += float(logsumexp(terms))
    assert residuals.log_likelihood(shares, others) == pytest.approx(total, rel=1e-9)


def test_find_strings_returns_the_share_and_the_bits(unseen_seed: int) -> None:
    """A string of 10 % among 400 of .1 %: share within six standard errors, bits right in all of 32 cohorts but two."""
    rng = np.random.default_rng(unseen_seed)
    of_metric = params(16, 2, 32)
    population = {"the": 100_000, **{f"{unseen_seed} {i}": 1_000 for i in range(400)}}
    counts = simulate(Metric.string("m", of_metric), population, rng, no_value=500_000)
    found = find_strings(ResidualBits.from_evidence(Evidence(counts), np.zeros((32, 16)), 0.5), 0.6)
    assert found is not None
    assert len(found.shares) == 1
    assert abs(float(found.shares[0]) - 0.1) < 6 * found.std_error()
    right = (found.positions[0] == bit_positions(["the"], of_metric)[0]).all(axis=1)
    assert right.sum() >= 30
    assert right[found.probabilities > 0.999].all()


def test_two_strings_that_are_not_told_apart_have_the_sum_of_their_shares() -> None:
    """Two strings of 12 and 8 % in bits with much noise: the sum within six standard errors, the larger share first."""
    of_metric = params(16, 1, 32)
    counts = simulate(
        Metric.string("m", of_metric), {"one": 12_000, "other": 8_000}, np.random.default_rng(5), no_value=80_000
    )
    found = find_strings(ResidualBits.from_evidence(Evidence(counts), np.zeros((32, 16)), 0.2), 0.25)
    assert found is not None
    assert len(found.shares) == 2
    assert found.shares[0] > found.shares[1]
    assert abs(float(found.shares.sum()) - 0.2) < 6 * found.std_error()


def test_bits_without_unlisted_strings_have_no_law_of_others() -> None:
    """Counts of noise alone that vary less than noise does: tau**2 = 0 has the largest likelihood."""
    of_metric = params(8, 1, 2)
    counts = BitCounts(Metric.string("m", of_metric), [400, 400], np.full((2, 8), 100))
    residuals = ResidualBits.from_evidence(Evidence(counts), np.zeros((2, 8)), 0.5)
    residuals = replace(residuals, ones=residuals.reports * np.full((1, 8), 0.25 + 0.5 * 0.5 / 8))
    assert residuals.best_others()[0] == Others(0.0, 0.0)


def test_deviation_of_a_bit_share_is_that_of_its_binomial_count() -> None:
    of_metric = params(8, 1, 2)
    counts = BitCounts(Metric.string("m", of_metric), [400, 400], np.full((2, 8), 100))
    residuals = ResidualBits.from_evidence(Evidence(counts), np.zeros((2, 8)), 0.0)
    assert residuals.deviation == pytest.approx(np.sqrt(0.25 * 0.75 / 400) / 0.5)


@pytest.mark.parametrize("sizes", [(600, 1), (50, 12)], ids=["many small strings", "some strings of equal share"])
def test_find_strings_finds_nothing_without_a_frequent_string(sizes: tuple[int, int], unseen_seed: int) -> None:
    """10 populations: evidence of 1,000 in two of them has probability below 1e-4; in three below 1e-6."""
    number, thousands = sizes
    rng = np.random.default_rng(unseen_seed)
    found = 0
    for run in range(10):
        population = {f"{unseen_seed} {run} {i}": 1_000 * thousands for i in range(number)}
        counts = simulate(Metric.string("m", params(16, 1, 24)), population, rng, no_value=400_000)
        found += find_strings(ResidualBits.from_evidence(Evidence(counts), np.zeros((24, 16)), 0.6), 0.7) is not None
    assert found < 3


def test_repeated_noise_of_the_same_clients_counts_once() -> None:
    """Two periods without new permanent noise: two coins (f = 1/2, p = 0, q = 1) repeat exactly, so two reports count as one."""
    of_metric = Params(num_bits=8, num_hashes=1, num_cohorts=2, prob_p=0, prob_q=1, prob_f=0.5)
    metric = Metric.string("m", of_metric)
    counts = BitCounts(metric, [100, 60], np.full((2, 8), 30), ("2026-01-01", "2026-01-02"))
    residuals = ResidualBits.from_evidence(Evidence(counts), np.zeros((2, 8)), 0.0)
    assert residuals.reports.tolist() == [[50] * 8, [30] * 8]
    assert (residuals.ones == 15).all()
    once = ResidualBits.from_evidence(Evidence(replace(counts, periods=())), np.zeros((2, 8)), 0.0)
    assert once.reports.tolist() == [[100] * 8, [60] * 8]


def test_repeated_noise_of_frequent_candidates_is_no_unlisted_string(unseen_seed: int) -> None:
    """Ten populations of 30 days under L-OSUE: the coins of nine candidates of 10 % vary 27 times as much as those of absent ones.

    Evidence of 1,000 in three of ten has probability below 1e-6. With the median factor of the bits it appeared in most of them.
    """
    # eps 4 and 8
    noise: dict[str, Any] = {"prob_p": 0.0176541, "prob_q": 0.9823459, "permanent_p": 0.0003354, "permanent_q": 0.5}
    metric = Metric.string("m", Params(num_bits=64, num_hashes=1, num_cohorts=8, **noise))
    rng, found = np.random.default_rng(unseen_seed), 0
    for run in range(10):
        names = [f"{unseen_seed} {run} {i}" for i in range(9)]
        counts = simulate(
            metric, dict.fromkeys(names, 10_000), rng, no_value=10_000, periods=consecutive_periods(metric, 30)
        )
        listed = np.zeros((8, 64))
        np.add.at(listed, (np.arange(8), bit_positions(names, metric.params)[:, :, 0]), 0.1)
        found += find_strings(ResidualBits.from_evidence(Evidence(counts), listed, 0.0), 0.1) is not None
    assert found < 3
