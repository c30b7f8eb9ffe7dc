"""Intervals, p-values, q-values, and the detection limit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import false_discovery_control, norm

from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.inference.intervals import reporter_variance, selection_adjusted_level
from hubbub_decoder.inference.multiple_testing import q_values, recheck_likely_candidates


def test_likely_discoveries_have_the_p_values_of_their_second_test() -> None:
    """Never below the normal p-value, and never above 1/2; the least certain come first. Where strings collide, nothing is tested again."""
    p, normal = np.array([1e-3, 1e-9, 0.9, 1e-4, np.nan]), np.array([1e-3, 1e-9, 0.9, 1e-6, np.nan])
    asked: list[list[int]] = []

    def again(candidates: Indices) -> list[float]:
        asked.append(candidates.tolist())
        return [0.7, 0.02, 1e-12][: len(candidates)]

    assert recheck_likely_candidates(p, normal, again, 64, 1e-5)[:4].tolist() == [0.5, 1e-9, 0.9, 0.02]
    assert recheck_likely_candidates(p, normal, again, 64, 1e-3) is p
    assert asked == [[0, 3, 1]]


@given(arrays(float, st.integers(1, 60), elements=st.floats(0, 1)))
def test_q_values_are_benjamini_hochberg_times_the_null_share(p: Floats) -> None:
    null_share = min(1.0, (1 + np.sum(p > 0.05)) / (len(p) * 0.95))
    expected = np.where(p > 0.05, 1, null_share * false_discovery_control(p))
    assert q_values(p, 0.05) == pytest.approx(expected, abs=1e-12)


def test_null_share_is_small_if_most_candidates_are_present() -> None:
    """100 tests, none of them above .05: about 1 % are estimated to be null."""
    assert q_values(np.full(100, 0.04), 0.05).max() == pytest.approx(0.04 / 95)


def test_p_value_above_the_rate_is_never_a_discovery() -> None:
    """Regression: where nearly all are present, the null share is so small that p = .65, and then p = .4, had q = .04."""
    p = np.append(np.full(99, 1e-6), 0.06)
    assert q_values(p, 0.05)[-1] == 1
    assert q_values(p, 0.05)[:-1].max() < 1e-5


def test_false_discovery_rate_holds_for_any_null_share(unseen_seed: int) -> None:
    """1,000 independent tests, none to 900 of them real: the mean false share over 400 runs, alpha = 1e-6 above .05."""
    rng = np.random.default_rng(unseen_seed)
    for real in (0, 100, 500, 900):
        false = [_false_share(rng.standard_normal(1000), real) for _ in range(400)]
        assert np.mean(false) < 0.05 + norm.isf(1e-6) * np.std(false) / 20, real


def test_false_discovery_rate_holds_for_equicorrelated_tests(unseen_seed: int) -> None:
    """100 tests of correlation .3, none to 90 of them real: the mean false share over 2,500 runs, alpha = 1e-6 above .05.

    With the null share at lambda = 1/2 it is .087 to .092 for up to 20 real ones, 5.7 standard errors above .05 and more.
    """
    rng = np.random.default_rng(unseen_seed)
    for real in (0, 20, 50, 90):
        common = math.sqrt(0.3) * rng.standard_normal(2500)
        false = [_false_share(math.sqrt(0.7) * rng.standard_normal(100) + shift, real) for shift in common]
        assert np.mean(false) < 0.05 + norm.isf(1e-6) * np.std(false) / 50, real


def _false_share(noise: Floats, real: int) -> float:
    """Share of false ones among the discoveries, the first `real` tests having mean 3."""
    found = q_values(norm.sf(noise + 3 * (np.arange(len(noise)) < real)), 0.05) <= 0.05
    return float(found[real:].sum() / max(1, found.sum()))


def test_selection_adjusted_level_grows_with_fewer_detected() -> None:
    assert selection_adjusted_level(0.05, detected=100, tests=100) == pytest.approx(0.95)
    assert selection_adjusted_level(0.05, detected=1, tests=1000) == pytest.approx(0.99995)


def test_reporter_variance_excludes_sampling() -> None:
    assert reporter_variance(np.array([0.25 / 100]), np.array([0.5]), 100).tolist() == [0]
    assert reporter_variance(np.array([0.25]), np.array([-0.1]), 100).tolist() == [0.25]
