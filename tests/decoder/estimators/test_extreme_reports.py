"""Decodings of one report, of no noise, and of reports that may all be forged: an answer or an error of ours, and no warning of numpy."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from hubbub import Metric, Params
from hubbub.summary import BitCounts, PatternCounts, Reports
from hubbub_decoder import decode
from hubbub_decoder.simulation import simulate

CHANCES = {"no noise": (0.0, 1.0, 0.0), "p > q": (0.75, 0.25, 0.0), "asymmetric": (0.0, 0.5, 0.1)}
SIZES = ((8, 1, 1), (8, 2, 4), (16, 2, 64), (32, 2, 32))
FEW, MANY = ["a"], [*(f"x{i}" for i in range(40)), "a", "b"]
# Every pair of number of reports, candidates and share of forged reports. Two of the tasks meet each size with each form of noise, so that all
# four meet every size, and all four every noise.
TASKS = ((1, FEW, 0.0), (1, MANY, 0.999), (2_000, FEW, 0.999), (2_000, MANY, 0.0))


@pytest.mark.parametrize("chances", CHANCES)
@pytest.mark.parametrize(("num_bits", "hashes", "cohorts"), SIZES)
@pytest.mark.parametrize("form", [BitCounts, PatternCounts, Reports])
def test_extreme_reports_are_decoded(
    chances: str, num_bits: int, hashes: int, cohorts: int, form: type[BitCounts] | type[PatternCounts] | type[Reports]
) -> None:
    if form is PatternCounts and num_bits > 16:
        pytest.skip("pattern counts have at most 16 bits")
    p, q, f = CHANCES[chances]
    params = Params(num_bits=num_bits, num_hashes=hashes, num_cohorts=cohorts, prob_p=p, prob_q=q, prob_f=f)
    metric, rng = Metric.string("word", params), np.random.default_rng(1)
    turn = list(CHANCES).index(chances) + SIZES.index((num_bits, hashes, cohorts))
    for n, candidates, fabricated in (TASKS[turn % 4], TASKS[(turn + 2) % 4]):
        found = simulate(metric, {"a": n, "b": n // 2}, rng, form=form)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            decoding = decode(found, candidates, fabricated=fabricated)
            assert decoding.document().lines
        for estimate in decoding:
            assert not estimate.low > estimate.high
            needed = estimate.forged_reports_needed
            assert needed is None or 1 <= needed <= decoding.num_reports
