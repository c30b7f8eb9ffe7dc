"""Intervals of a string whose share is anything from 0 to 1: bit counts, retained reports and the held-out group of `discover`."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from hubbub import Discovery, Metric, Params
from hubbub.summary import BitCounts, Reports
from hubbub_decoder import decode, simulate
from hubbub_decoder.options import Target

ALPHA, RUNS, LENGTH = 1e-6, 100, 4


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.9, 0.98, 1.0])
@pytest.mark.parametrize("target", ["reporters", "population"])
@pytest.mark.parametrize("form", ["counts", "reports", "held out"])
def test_intervals_cover_a_string_of_any_share(form: str, target: Target, share: float, unseen_seed: int) -> None:
    """Coverage of 100 intervals at epsilon 5 is at least .95, and their mean width at most 1.4 (2 z s); alpha = 1e-6.

    1,000 clients, of which 300 are held out with `discover`; otherwise 300. With probability .99 it detects a coverage of .71. Each run has
    new strings, so new hashes.
    """
    rng, p = np.random.default_rng(unseen_seed), 1 / (math.exp(2.5) + 1)
    params = Params(num_bits=32, num_hashes=1, num_cohorts=40, prob_p=p, prob_q=1 - p, prob_f=0)
    discover = Discovery(longest=LENGTH, step=2, alphabet="abcdefgh", held_out=0.3) if form == "held out" else None
    metric, clients = Metric.string("s", params, discover=discover), 1000 if discover else 300
    covered, widths, errors = 0, [], []
    for _ in range(RUNS):
        word, other, absent = _words(rng)
        with_it = rng.binomial(clients, share) if target == "population" else round(clients * share)
        left = clients - with_it
        population = {word: with_it, other: left // 2}
        collected = simulate(
            metric, population, rng, no_value=left - left // 2, form=Reports if form == "reports" else BitCounts
        )
        row = decode(collected, [word, other, absent], target=target)[word]
        truth = share if target == "population" else with_it / clients
        covered += row.low <= truth + 1e-9 and truth - 1e-9 <= row.high
        widths.append(row.high - row.low)
        errors.append(row.share - truth)
    assert covered / RUNS >= 0.95 - norm.isf(ALPHA) * math.sqrt(0.95 * 0.05 / RUNS)
    spread = math.sqrt(np.mean(np.square(errors)))
    assert np.mean(widths) <= 1.4 * 2 * norm.isf(0.025) * spread * (1 + norm.isf(ALPHA) / math.sqrt(2 * RUNS))


def _words(rng: np.random.Generator) -> list[str]:
    """Return three different words of the alphabet."""
    words: dict[str, None] = {}
    while len(words) < 3:
        words["".join(rng.choice(list("abcdefgh"), LENGTH))] = None
    return list(words)
