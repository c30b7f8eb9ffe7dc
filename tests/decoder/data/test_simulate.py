"""The simulation has the client's distribution: every bit, every cohort, and bits together."""

from __future__ import annotations

import itertools
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2_contingency, chisquare, norm

from hubbub import Encoder, Metric, Params, Secret
from hubbub.metrics.metric import Kind
from hubbub.summary import BitCounts, PatternCounts
from hubbub.testing import SeededBytes
from hubbub_decoder import PopulationError
from hubbub_decoder.data.simulate import draw_bits, simulate_bit_counts, simulate_pattern_counts, simulate_reports
from hubbub_decoder.model.bit_covariance import report_covariance
from hubbub_decoder.model.design_matrix import design_matrix
from hubbub_decoder.model.random_string import RandomStringMoments

ALPHA = 1e-6

STRING = Metric.string("s", Params(num_bits=8, num_hashes=2, num_cohorts=4, prob_p=0.25, prob_q=0.8, prob_f=0.25))
OS = Metric.categorical("os", ("a", "b", "c"), prob_p=0.25, prob_q=0.75, prob_f=0.5)
YES = Metric.boolean("yes", prob_p=0, prob_q=1, prob_f=0.5)


def of_clients(metric: Metric, population: dict[str, int], without_value: int, seed: int) -> PatternCounts:
    """Let a new client with a secret of its own report each person's value."""
    random_bytes = SeededBytes(seed)
    values: list[str | bool | None] = [value for value, people in population.items() for _ in range(people)]
    if metric.kind is Kind.BOOLEAN:
        values = [value == "true" for value in values]
    values += [None] * without_value
    return PatternCounts.of_reports(
        metric, [Encoder(metric, Secret.generate(random_bytes), random_bytes).encode(value) for value in values]
    )


@pytest.mark.parametrize(
    ("metric", "population"),
    [(STRING, {"x": 9000, "y": 6000, "z": 0}), (OS, {"a": 6000, "c": 3000}), (YES, {"true": 3000, "false": 3000})],
    ids=["string", "categorical", "boolean"],
)
def test_reports_in_every_cohort_and_pattern_are_as_frequent_as_the_clients(
    metric: Metric, population: dict[str, int], unseen_seed: int
) -> None:
    """Two-sample chi-squared over cohort x pattern, all bits jointly, at alpha = 1e-6; every cell expects 5 or more."""
    client = of_clients(metric, population, 1000, unseen_seed)
    ours = simulate_pattern_counts(metric, population, np.random.default_rng(unseen_seed), without_value=1000)
    assert ours.num_reports == client.num_reports
    cells = np.stack([client.counts.ravel(), ours.counts.ravel()])
    rare = cells.sum(axis=0) < 10
    pooled = np.column_stack([cells[:, ~rare], cells[:, rare].sum(axis=1)])
    assert chi2_contingency(pooled[:, pooled.sum(axis=0) > 0]).pvalue > ALPHA


def test_each_bit_and_each_pair_of_bits_of_each_cohort_agrees_with_the_clients(unseen_seed: int) -> None:
    """A chi-squared test a cohort and pair of bits (4 x 28, 2 x 4 cells), at alpha = 1e-6 over all of them."""
    population = {"x": 9000, "y": 6000}
    client = of_clients(STRING, population, 0, unseen_seed).counts
    ours = simulate_pattern_counts(STRING, population, np.random.default_rng(unseen_seed)).counts
    patterns = np.arange(256)
    for cohort, (i, j) in itertools.product(range(4), itertools.combinations(range(8), 2)):
        both = (patterns >> i & 1) * 2 + (patterns >> j & 1)
        tables = [np.bincount(both, weights=counts[cohort], minlength=4) for counts in (client, ours)]
        assert chi2_contingency(np.stack(tables)).pvalue > ALPHA / (4 * 28), (cohort, i, j)


class EveryFraction:
    """Stands for numpy's generator: all fractions of 16 binary digits, each once."""

    def integers(self, _high: int, *, size: tuple[int, ...], dtype: type) -> NDArray[np.uint8]:
        return np.repeat(np.arange(256, dtype=dtype), 256).reshape(size)

    def random(self, num: int) -> NDArray[np.float64]:
        return np.arange(num) / 256


@pytest.mark.parametrize("numerator", [0, 1, 255, 256, 257, 0x5A5A, 0xFF00, 0xFFFF, 0x10000])
def test_a_drawn_bit_has_exactly_its_chance_when_all_fractions_are_enumerated(numerator: int) -> None:
    bits = draw_bits(numerator / 2**16, (2**16,), cast(np.random.Generator, EveryFraction()))
    assert np.count_nonzero(bits) == numerator


@pytest.mark.parametrize("scheme", ["murmur3-v1", "google-md5"])
def test_bit_counts_have_the_mean_and_covariance_that_the_decoder_weighs_with(scheme: str, unseen_seed: int) -> None:
    """n = 5000 drawn summaries of 300 reports; every mean and covariance of 3 cohorts x 8 bits, alpha = 1e-6 over all.

    People move between cohorts, so counts are compared after division by the cohort's reports.
    """
    params = Params(num_bits=8, num_hashes=2, num_cohorts=3, prob_p=0.2, prob_q=0.9, prob_f=0.25, hash_scheme=scheme)
    metric, rng, n = Metric.string("s", params), np.random.default_rng(unseen_seed), 5000
    population = {"x": 150, "y": 60, "z": 30}
    drawn = [simulate_bit_counts(metric, population, rng, without_value=60) for _ in range(n)]
    shares = np.array([0.5, 0.2, 0.1])
    design = design_matrix(list(population), params)
    tests = 3 * (8 + 64)
    for cohort, bits in enumerate(design.blocks()):
        deviation = np.stack([(d.ones[cohort] - d.reports[cohort] * _expected(bits @ shares, params)) for d in drawn])
        scaled = deviation / np.sqrt([d.reports[cohort] for d in drawn])[:, None]
        covariance = report_covariance(bits, shares, 0, RandomStringMoments.from_params(params), params)
        # people are drawn without replacement from 300: a cohort's mean scatters by 1 - 1/3 of what a population's would
        fixed = covariance - (1 / 3) * (params.q_star - params.p_star) ** 2 * _of_values(bits.toarray(), shares)
        spread = np.sqrt(np.diag(fixed))
        z = scaled.mean(axis=0) / (spread / np.sqrt(n))
        assert np.abs(z).max() < norm.isf(ALPHA / 2 / tests)
        error = np.sqrt((np.outer(spread**2, spread**2) + fixed**2) / n)
        z = (scaled.T @ scaled / n - fixed) / error
        assert np.abs(z).max() < norm.isf(ALPHA / 2 / tests)


def _expected(mu: np.ndarray, params: Params) -> np.ndarray:
    return params.p_star + (params.q_star - params.p_star) * mu


def _of_values(bits: np.ndarray, shares: np.ndarray) -> np.ndarray:
    mu = bits @ shares
    return np.asarray((bits * shares) @ bits.T - np.outer(mu, mu))


def test_cohorts_are_uniform(unseen_seed: int) -> None:
    """Chi-squared at alpha = 1e-6, 64 cohorts, 1e6 people, in all three forms."""
    params = Params(num_bits=8, num_hashes=1, num_cohorts=64, prob_p=0.25, prob_q=0.75, prob_f=0)
    metric, rng = Metric.string("s", params), np.random.default_rng(unseen_seed)
    assert chisquare(simulate_bit_counts(metric, {"x": 1_000_000}, rng).reports).pvalue > ALPHA
    assert chisquare(simulate_pattern_counts(metric, {"x": 1_000_000}, rng).counts.sum(axis=1)).pvalue > ALPHA


def test_everybody_reports_once_whatever_the_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hubbub_decoder.data.simulate._CELLS_AT_ONCE", 100)
    population = {f"v{i}": i for i in range(40)}
    rng = np.random.default_rng(0)
    everybody = sum(population.values()) + 7
    assert simulate_bit_counts(STRING, population, rng, without_value=7).num_reports == everybody
    assert simulate_pattern_counts(STRING, population, rng, without_value=7).num_reports == everybody
    chunks = list(simulate_reports(STRING, population, rng, without_value=7))
    assert sum(len(cohorts) for cohorts, _ in chunks) == everybody
    assert max(len(cohorts) for cohorts, _ in chunks) <= 100 // 8


def test_without_noise_a_report_is_the_bloom_filter_of_the_value() -> None:
    params = Params(num_bits=12, num_hashes=3, num_cohorts=4, prob_p=0, prob_q=1, prob_f=0)
    counts = simulate_bit_counts(Metric.string("s", params), {"x": 1000}, np.random.default_rng(0))
    bits = design_matrix(["x"], params).matrix.toarray().reshape(4, 12)
    assert np.array_equal(counts.ones, bits * counts.reports[:, None])
    patterns = simulate_pattern_counts(Metric.string("s", params), {"x": 1000}, np.random.default_rng(0)).bit_counts()
    assert np.array_equal(patterns.ones, bits * patterns.reports[:, None])


def test_a_seed_repeats_a_simulation() -> None:
    one, same, other = (simulate_bit_counts(STRING, {"x": 1000}, np.random.default_rng(s)) for s in (1, 1, 2))
    assert one == same != other
    assert isinstance(one, BitCounts)


def test_an_unknown_category_becomes_the_declared_other_or_is_refused() -> None:
    with_other = Metric.categorical("os", ("a", "rest"), other="rest", prob_p=0, prob_q=1, prob_f=0)
    counts = simulate_bit_counts(with_other, {"a": 3, "b": 4, "c": 5}, np.random.default_rng(0))
    assert counts.ones.tolist() == [[3, 9]]
    with pytest.raises(PopulationError, match="'b' is none of a, b_"):
        simulate_bit_counts(
            Metric.categorical("os", ("a", "b_"), prob_p=0, prob_q=1, prob_f=0), {"b": 1}, np.random.default_rng(0)
        )
    with pytest.raises(PopulationError, match="cannot have -1 people"):
        simulate_bit_counts(STRING, {"b": -1}, np.random.default_rng(0))
