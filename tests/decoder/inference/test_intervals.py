"""Intervals, tests, false discovery rate, and what could be found."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import false_discovery_control, norm

from hubbub_decoder.array_types import Floats
from hubbub_decoder.inference.intervals import detection_limit, interval, reporter_variance, selection_adjusted_level
from hubbub_decoder.inference.multiple_testing import p_values, q_values


@given(arrays(float, st.integers(1, 60), elements=st.floats(0, 1)))
def test_q_values_are_those_of_benjamini_and_hochberg_times_the_null_share(p: Floats) -> None:
    null_share = min(1.0, (1 + np.sum(p > 0.5)) / (len(p) / 2))
    expected = np.where(p > 0.5, 1, null_share * false_discovery_control(p))
    assert q_values(p) == pytest.approx(expected, abs=1e-12)


def test_where_nearly_all_are_there_the_null_share_is_small() -> None:
    """100 tests, none of them above 1/2: at most 2 % are estimated to be null."""
    assert q_values(np.full(100, 0.4)).max() == pytest.approx(0.02 * 0.4)


def test_a_candidate_estimated_below_zero_is_never_found() -> None:
    """Regression: where nearly all are there, the null share is so small that p = .65 had q = .04."""
    p = np.append(np.full(99, 1e-6), 0.65)
    assert q_values(p)[-1] == 1
    assert q_values(p)[:-1].max() < 1e-5


def test_the_false_discovery_rate_holds_whatever_the_null_share(unseen_seed: int) -> None:
    """1,000 tests, none to 900 of them real: the mean false share over 400 runs, alpha = 1e-6 above .05."""
    rng = np.random.default_rng(unseen_seed)
    for real in (0, 100, 500, 900):
        false = []
        for _ in range(400):
            p = norm.sf(rng.standard_normal(1000) + 3 * (np.arange(1000) < real))
            found = q_values(p) <= 0.05
            false.append(found[real:].sum() / max(1, found.sum()))
        assert np.mean(false) < 0.05 + norm.isf(1e-6) * np.std(false) / 20, real


def test_intervals_of_the_selected_are_wider_the_fewer_were_selected() -> None:
    assert selection_adjusted_level(0.05, detected=100, tests=100) == pytest.approx(0.95)
    assert selection_adjusted_level(0.05, detected=1, tests=1000) == pytest.approx(0.99995)


def test_intervals_are_symmetric_unclipped_and_of_the_level_asked() -> None:
    low, high = interval(np.array([0.001]), np.array([0.01]), 0.9)
    assert low[0] < 0
    assert (low[0] + high[0]) / 2 == pytest.approx(0.001)
    assert norm.cdf(high[0], 0.001, 0.01) - norm.cdf(low[0], 0.001, 0.01) == pytest.approx(0.9)


def test_a_test_is_one_sided_and_certain_without_noise() -> None:
    assert p_values(np.array([-0.3, 0.0, 0.3, 0.0, 0.1]), np.array([0.1, 0.1, 0.1, 0, 0])) == pytest.approx(
        [norm.cdf(3), 0.5, norm.sf(3), 1, 0]
    )
    assert np.isnan(p_values(np.array([0.3]), np.array([np.nan])))[0]


def test_sampling_people_is_no_error_about_the_people_sampled() -> None:
    assert reporter_variance(np.array([0.25 / 100]), np.array([0.5]), 100).tolist() == [0]
    assert reporter_variance(np.array([0.25]), np.array([-0.1]), 100).tolist() == [0.25]


def test_the_detectable_share_passes_the_bonferroni_threshold_nine_times_in_ten() -> None:
    x = detection_limit(0.002, 500, 0.05)
    assert norm.sf(norm.isf(0.05 / 500) - x / 0.002) == pytest.approx(0.9)
