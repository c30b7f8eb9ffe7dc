"""Search for the pair of values: extreme bits, the declared pair, and values that set every bit."""

from __future__ import annotations

import numpy as np
import pytest

from hubbub import Metric, Params
from hubbub.encoding.bloom import Value
from hubbub_decoder.audit.bound import Event
from hubbub_decoder.audit.clients import ClientReports
from hubbub_decoder.audit.distinguisher import Distinguisher, true_bits
from hubbub_decoder.audit.pair_search import Candidate, audited_values, choose, declared_pair, learned_candidates
from hubbub_decoder.audit.trials import Laboratory, Schedule


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


@pytest.mark.parametrize(("share", "claim", "declared"), [(0.76, 2.0, True), (0.8, 1.2, False), (0.9, 2.0, False)])
def test_declared_mechanism_is_chosen_unless_another_is_clearly_better(
    share: float, claim: float, declared: bool
) -> None:
    """Frequencies of bit 0 are .75 and .25, as declared: ln 3 = 1.10. Those of bit 1 are `share` and 1 - `share`.

    With 1,000 clients, the 95 % bounds of .76, .8 and .9 are 1.01, 1.23 and 1.99.
    """

    def client(value: Value, seed: int, clients: int, reports: int) -> ClientReports:
        rates = np.array([0.75, share]) if value else 1 - np.array([0.75, share])
        bits = np.arange(clients)[:, None] < np.round(rates * clients)
        return ClientReports(np.zeros(clients, np.int64), bits[:, None, :].astype(np.uint8))

    laboratory = Laboratory(client, 2, Schedule(1, 1), np.random.default_rng(), lambda _: None)
    tables = np.zeros((2, 1, 2, 2))
    tables[0, 0, 0] = tables[1, 0, 1] = (-1, 1)
    learned, known = Distinguisher("learned", tables[1]), Distinguisher("declared", tables[0])
    candidates = [Candidate(0, 1, learned), Candidate(0, 1, known, Event(1, 1.0))]
    choice = choose(laboratory, [True, False], 1_000, candidates, claim, 0.01)
    assert choice.candidate is candidates[int(declared)]
    assert choice.event == Event(1, 1.0)
