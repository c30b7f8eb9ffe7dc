"""Search for the pair of values: extreme bits, the declared pair, and values that set every bit."""

from __future__ import annotations

import numpy as np
import pytest

from hubbub import Metric, Params
from hubbub_decoder.audit.distinguisher import true_bits
from hubbub_decoder.audit.pair_search import audited_values, declared_pair, learned_candidates
from hubbub_decoder.audit.trials import Schedule


def test_pair_with_an_extreme_bit_is_found_among_many_values() -> None:
    """14 values of 32 bits in 4 cohorts: only value 9 always sends a one at bit 31 of cohort 2."""
    histograms = [np.tile([100, 100], (4, 32, 1)) for _ in range(14)]
    histograms[9][2, 31] = (0, 200)
    (candidate,) = learned_candidates(histograms)
    assert 9 in (candidate.first, candidate.second)
    assert np.argwhere(candidate.distinguisher.table[:, :, 1]).tolist() == [[2, 31]]


@pytest.mark.parametrize(("k", "m"), [(128, 1), (32, 4), (64, 64)])
def test_audited_strings_set_every_bit(k: int, m: int) -> None:
    params = Params(num_bits=k, num_hashes=1, num_cohorts=m, prob_p=0.25, prob_q=0.75, prob_f=0.5)
    metric = Metric.string("page", params)
    values = audited_values(metric)
    assert values[-1] is None
    assert np.any([true_bits(metric, value).any(axis=0) for value in values], axis=0).all()


def test_no_value_is_the_declared_neighbour_of_many_hashes() -> None:
    params = Params(num_bits=8, num_hashes=6, num_cohorts=4, prob_p=0.25, prob_q=0.75, prob_f=0.25)
    metric = Metric.string("page", params)
    values = audited_values(metric)
    i, j, needed = declared_pair(metric, [true_bits(metric, each) for each in values], Schedule(1, 1), 4.73, 0.01)
    assert values[j] is None
    assert values[i] is not None
    assert needed < 1e7
