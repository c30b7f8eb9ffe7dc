"""Intervals, tests, false discovery rate, and what could be found."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import false_discovery_control, norm

from hubbub_decoder.inference import among_reporters, detectable_share, interval, p_values, q_values


@given(arrays(float, st.integers(1, 60), elements=st.floats(0, 1)))
def test_q_values_are_those_of_scipy(p: np.ndarray) -> None:
    assert q_values(p) == pytest.approx(false_discovery_control(p), abs=1e-12)


def test_calling_found_what_has_q_at_most_fdr_is_the_step_up_procedure() -> None:
    p = np.array([0.045, 0.001, 0.03, 0.9, 0.012])
    found = np.sort(p)[: max(i for i in range(1, 6) if np.sort(p)[i - 1] <= 0.05 * i / 5)]
    assert set(p[q_values(p) <= 0.05]) == set(found) == {0.001, 0.012, 0.03}


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
    assert among_reporters(np.array([0.25 / 100]), np.array([0.5]), 100).tolist() == [0]
    assert among_reporters(np.array([0.25]), np.array([-0.1]), 100).tolist() == [0.25]


def test_the_detectable_share_passes_the_bonferroni_threshold_nine_times_in_ten() -> None:
    x = detectable_share(0.002, 500, 0.05)
    assert norm.sf(norm.isf(0.05 / 500) - x / 0.002) == pytest.approx(0.9)
