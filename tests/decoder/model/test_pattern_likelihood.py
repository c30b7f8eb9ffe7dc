"""Likelihood of pattern counts: filters, sums over patterns and the efficient score of every cohort."""

from __future__ import annotations

import itertools
from math import comb

import numpy as np
import pytest
from numpy.typing import NDArray

from hubbub import Params
from hubbub.summary import PatternCounts
from hubbub_decoder.array_types import Floats
from hubbub_decoder.model.design_matrix import design_matrix
from hubbub_decoder.model.pattern_likelihood import FilterTable, count_filters, filter_indices, whiten_scores
from hubbub_decoder.model.vectorized_hashing import bit_positions


def params_of(scheme: str, k: int = 8, h: int = 2, m: int = 3) -> Params:
    return Params(num_bits=k, num_hashes=h, num_cohorts=m, prob_p=0.2, prob_q=0.7, prob_f=0.25, hash_scheme=scheme)


@pytest.mark.parametrize(("k", "h"), [(8, 1), (8, 2), (9, 3)])
def test_filter_probabilities_match_enumeration_of_hashes(k: int, h: int) -> None:
    """murmur3-v1: all subsets equal; google-md5: all sequences of bytes equal, enumerated."""
    table = FilterTable.from_params(params_of("murmur3-v1", k, h))
    assert len(table.filters) == count_filters(params_of("murmur3-v1", k, h)) == 1 + comb(k, h)
    assert set(table.probabilities[1:].round(12)) == {round(1 / comb(k, h), 12)}
    table = FilterTable.from_params(params_of("google-md5", k, h))
    byte = np.bincount(np.arange(256) % k, minlength=k) / 256
    expected = dict.fromkeys(table.filters.tolist(), 0.0)
    for hashes in itertools.product(range(k), repeat=h):
        expected[int(np.bitwise_or.reduce([1 << bit for bit in hashes]))] += float(np.prod(byte[list(hashes)]))
    assert table.probabilities == pytest.approx(list(expected.values()), abs=1e-15)
    assert len(table.filters) == count_filters(params_of("google-md5", k, h))


def pattern_table(params: Params, filters: NDArray[np.int64]) -> Floats:
    """P(pattern | filter), (2**k, F), by multiplication over the bits."""
    patterns, table = np.arange(1 << params.num_bits)[:, None], np.ones((1 << params.num_bits, len(filters)))
    for bit in range(params.num_bits):
        one = np.where(filters >> bit & 1, params.mechanism.q_star, params.mechanism.p_star)
        table *= np.where(patterns >> bit & 1, one, 1 - one)
    return table


def draw_params(rng: np.random.Generator) -> Params:
    """Any p and q, one in three at the edges p = 0, q = 1, or at epsilon = 8; q may be below p."""
    k = int(rng.integers(2, 11))
    h = int(rng.integers(1, min(k - 1, 3) + 1))
    p, q = rng.random(2).tolist()
    flip = 1 / (1 + float(np.exp(8 / 2 / h)))
    p, q = [(p, q), (0.0, q), (p, 1.0), (0.0, 1.0), (flip, 1 - flip), (1 - flip, flip)][
        rng.choice(6, p=[0.5] + [0.1] * 5)
    ]
    scheme = ("murmur3-v1", "google-md5")[rng.integers(2)]
    return Params(num_bits=k, num_hashes=h, num_cohorts=1, prob_p=p, prob_q=q, prob_f=0.0, hash_scheme=scheme)


def test_sums_over_patterns_match_the_table_of_all_patterns(unseen_seed: int) -> None:
    """R theta, R' w and R' diag(w) R, w = 1 / R theta, to 1e-9 of every entry."""
    rng = np.random.default_rng(unseen_seed)
    for _ in range(40):
        params = draw_params(rng)
        table = FilterTable.from_params(params)
        r, theta = pattern_table(params, table.filters), rng.dirichlet(np.full(len(table.filters), 0.3))
        weights = 1 / np.maximum(r @ theta, 1e-12)
        assert table.mixture(theta) == pytest.approx(r @ theta, rel=1e-9, abs=0)
        assert table.score(weights) == pytest.approx(r.T @ weights, rel=1e-9, abs=0)
        assert table.information(weights) == pytest.approx(r.T @ (r * weights[:, None]), rel=1e-9, abs=0)


@pytest.mark.slow
def test_sums_over_patterns_of_16_bits_and_3_hashes_match_single_columns(unseen_seed: int) -> None:
    params, rng = params_of("murmur3-v1", k=16, h=3), np.random.default_rng(unseen_seed)
    table = FilterTable.from_params(params)
    chosen, weights = rng.choice(len(table.filters), 5, replace=False), rng.random(1 << 16)
    columns = pattern_table(params, table.filters[chosen])
    assert table.mixture(np.eye(len(table.filters))[chosen[0]]) == pytest.approx(columns[:, 0], rel=1e-9, abs=0)
    assert table.score(weights)[chosen] == pytest.approx(weights @ columns, rel=1e-9)
    found = table.information(weights)[np.ix_(chosen, chosen)]
    assert found == pytest.approx(columns.T @ (columns * weights[:, None]), rel=1e-9)


@pytest.mark.parametrize("scheme", ["murmur3-v1", "google-md5"])
def test_filter_indices_match_the_positions_of_the_candidates(scheme: str) -> None:
    params = params_of(scheme)
    table, names = FilterTable.from_params(params), [f"v{i}" for i in range(50)]
    design = design_matrix(names, params)
    found = filter_indices(design, table)
    for column, group in enumerate(design.groups):
        for cohort in range(3):
            positions = bit_positions([group[0]], params)[0, cohort]
            assert table.filters[found[cohort, column]] == sum(
                1 << int(bit) for bit in positions if bit < params.num_bits
            )


def test_whitened_scores_are_linear_in_the_shares(unseen_seed: int) -> None:
    """Counts at their expectation under shares theta, and weights at other shares: y = A theta."""
    params = params_of("murmur3-v1", m=1)
    table, rng = FilterTable.from_params(params), np.random.default_rng(unseen_seed)
    theta, elsewhere = rng.dirichlet(np.ones(len(table.filters)), size=2)
    n, r = 10**9, pattern_table(params, table.filters)
    counts = np.rint(n * r @ theta)[None]
    found = whiten_scores(PatternCounts(params, counts), table, elsewhere[None])
    assert found.responses[0] == pytest.approx(found.features[0] @ theta * counts.sum() / n, abs=1e-2)
    information = counts.sum() * r.T @ (r / (r @ elsewhere)[:, None])
    assert found.features[0].T @ found.features[0] == pytest.approx(information, rel=1e-6)


def test_whitened_scores_of_cohorts_do_not_depend_on_each_other(unseen_seed: int) -> None:
    """Cohorts at equal and at different expected shares, one without reports, together and one at a time."""
    params, rng = params_of("google-md5", m=4), np.random.default_rng(unseen_seed)
    table = FilterTable.from_params(params)
    counts = rng.integers(50, size=(4, 256)) * np.array([[1], [3], [0], [1]])
    expected = rng.dirichlet(np.ones(len(table.filters)), size=2)[[0, 0, 0, 1]]
    together = whiten_scores(PatternCounts(params, counts), table, expected)
    for cohort, single in enumerate(np.eye(4, dtype=np.int64)):
        alone = whiten_scores(PatternCounts(params, counts * single[:, None]), table, expected[[cohort] * 4])
        assert alone.features[cohort] == pytest.approx(together.features[cohort])
        assert alone.responses[cohort] == pytest.approx(together.responses[cohort])
    assert len(together.responses[2]) == 0
