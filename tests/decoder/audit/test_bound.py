"""Clopper-Pearson bounds on epsilon: coverage by enumeration of all counts, and the choice of an event."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import beta, binom

from hubbub_decoder.audit.bound import (
    Event,
    bound_of_event,
    choose_event,
    clopper_pearson_high,
    clopper_pearson_low,
    epsilon_lower_bounds,
)

COUNTS = np.arange(41, dtype=float)


@pytest.mark.parametrize("alpha", [0.2, 0.01])
def test_clopper_pearson_limits_miss_with_at_most_alpha(alpha: float) -> None:
    low, high = clopper_pearson_low(COUNTS, 40, alpha), clopper_pearson_high(COUNTS, 40, alpha)
    for truth in np.linspace(0.001, 0.999, 97):
        chance = binom.pmf(COUNTS, 40, truth)
        assert chance[low > truth].sum() <= alpha + 1e-12
        assert chance[high < truth].sum() <= alpha + 1e-12
    assert low[0] == 0
    assert high[-1] == 1


@pytest.mark.parametrize(("rate", "epsilon"), [(0.5, 0.5), (0.9, 1.5), (0.3, 0.1), (0.99, 2.0)])
def test_epsilon_bound_exceeds_the_truth_with_at_most_alpha(rate: float, epsilon: float) -> None:
    """All counts of two samples of 40; the worst case of the event is a ratio of exactly e^epsilon."""
    alpha = 0.1
    bounds = epsilon_lower_bounds(COUNTS[:, None], 40, COUNTS[None, :], 40, alpha)
    chance = np.outer(binom.pmf(COUNTS, 40, rate), binom.pmf(COUNTS, 40, rate * math.exp(-epsilon)))
    assert 0 < chance[bounds > epsilon].sum() <= alpha


def test_chosen_event_is_the_best_of_all_thresholds_and_directions() -> None:
    scores, other = np.repeat([2.0, 1.0, 0.0], [50, 100, 850]), np.repeat([2.0, 1.0, 0.0], [1, 90, 909])
    events = [Event(sign, sign * threshold) for sign in (1, -1) for threshold in (0.0, 1.0, 2.0)]
    tried = [bound_of_event(event, scores, other, 0.05).epsilon for event in events]
    assert choose_event(scores, other, 0.05) == Event(1, 2.0) == events[int(np.argmax(tried))]
    assert choose_event(-other, -scores, 0.05) == Event(-1, 2.0)  # values exchanged


def test_event_includes_scores_that_differ_by_rounding() -> None:
    total = round(0.1 + 0.2, 6)
    assert Event(1, 0.3).occurs(np.array([total, 0.299])).tolist() == [True, False]


def test_bound_counts_the_favoured_value_first() -> None:
    bound = bound_of_event(Event(-1, -1.0), np.array([2.0, 2.0, 1.0]), np.array([0.0, 1.0]), 0.05)
    assert (bound.occurred, bound.trials, bound.occurred_other, bound.trials_other) == (2, 2, 1, 3)


def test_both_limits_have_half_of_the_error_probability() -> None:
    bound = epsilon_lower_bounds(np.array([30.0]), 40, np.array([5.0]), 50, 0.02)[0]
    assert bound == pytest.approx(math.log(beta.ppf(0.01, 30, 11) / beta.isf(0.01, 6, 45)))
