"""Observations from pattern counts: filters, pattern probabilities and the efficient score of every cohort."""

from __future__ import annotations

import itertools
from math import comb

import numpy as np
import pytest

from hubbub import Metric, Params
from hubbub.encoding.bloom import bloom_bits
from hubbub.summary import PatternCounts
from hubbub_decoder.data.simulate import simulate_pattern_counts
from hubbub_decoder.estimators.pattern_counts import split_directions
from hubbub_decoder.model.design_matrix import design_matrix
from hubbub_decoder.model.pattern_likelihood import FilterTable, count_filters, filter_indices, whiten_scores


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


def test_pattern_probabilities_are_products_over_bits() -> None:
    params = params_of("murmur3-v1")
    table = FilterTable.from_params(params)
    assert table.pattern_probabilities.sum(axis=0) == pytest.approx(np.ones(len(table.filters)), abs=1e-12)
    pattern, column = 0b1010_0001, 5
    by_hand = 1.0
    for bit in range(8):
        one = params.q_star if table.filters[column] >> bit & 1 else params.p_star
        by_hand *= one if pattern >> bit & 1 else 1 - one
    assert table.pattern_probabilities[pattern, column] == pytest.approx(by_hand, rel=1e-12)


@pytest.mark.parametrize("scheme", ["murmur3-v1", "google-md5"])
def test_filter_indices_match_client_bloom_filters(scheme: str) -> None:
    params = params_of(scheme)
    table, names = FilterTable.from_params(params), [f"v{i}" for i in range(50)]
    design = design_matrix(names, params)
    found = filter_indices(design, table)
    for column, group in enumerate(design.groups):
        for cohort in range(3):
            assert table.filters[found[cohort, column]] == bloom_bits(Metric.string("m", params), group[0], cohort)


def test_whitened_scores_are_linear_in_the_shares(unseen_seed: int) -> None:
    """Counts at their expectation under shares theta, and weights at other shares: y = A theta."""
    params = params_of("murmur3-v1", m=1)
    table, rng = FilterTable.from_params(params), np.random.default_rng(unseen_seed)
    theta, elsewhere = rng.dirichlet(np.ones(len(table.filters)), size=2)
    n = 10**9
    counts = np.rint(n * table.pattern_probabilities @ theta)[None]
    found = whiten_scores(PatternCounts(params, counts), table, elsewhere[None])
    assert found.responses[0] == pytest.approx(found.features[0] @ theta * counts.sum() / n, abs=1e-2)
    information = (
        counts.sum()
        * table.pattern_probabilities.T
        @ (table.pattern_probabilities / (table.pattern_probabilities @ elsewhere)[:, None])
    )
    assert found.features[0].T @ found.features[0] == pytest.approx(information, rel=1e-6)


def test_split_directions_keeps_the_requested_trace(unseen_seed: int) -> None:
    params = params_of("murmur3-v1")
    table = FilterTable.from_params(params)
    counts = simulate_pattern_counts(Metric.string("m", params), {"a": 5000}, np.random.default_rng(unseen_seed))
    whole = whiten_scores(counts, table, np.tile(table.probabilities, (3, 1)))
    leading = split_directions(whole, table, kept=0.9, most=40)
    assert leading.size < whole.size
    for all_of_it, part in zip(whole.features, leading.features, strict=True):
        telling = [float(np.trace(a @ table.covariance @ a.T)) for a in (part, all_of_it)]
        assert telling[0] >= 0.9 * telling[1]
        number = [float(np.sum((a @ table.probabilities) ** 2)) for a in (part, all_of_it)]
        assert number[0] == pytest.approx(number[1], rel=1e-9)
    assert all(len(y) <= 4 + 1 for y in split_directions(whole, table, kept=0.9, most=4).responses)


def test_split_directions_with_all_directions_loses_nothing(unseen_seed: int) -> None:
    """Scores A'y and information A'A of the filters are the same in every cohort, also without reports."""
    params = params_of("google-md5")
    table = FilterTable.from_params(params)
    counts = simulate_pattern_counts(
        Metric.string("m", params), {"a": 5000}, np.random.default_rng(unseen_seed)
    ).counts.copy()
    counts[0] = 0
    whole = whiten_scores(PatternCounts(params, counts), table, np.tile(table.probabilities, (3, 1)))
    most = split_directions(whole, table, kept=1.0, most=1000)
    for y, a, r, f in zip(whole.responses, whole.features, most.responses, most.features, strict=True):
        assert (f.T @ r)[1:] == pytest.approx((a.T @ y)[1:])
        assert (f.T @ f)[1:, 1:] == pytest.approx((a.T @ a)[1:, 1:])
