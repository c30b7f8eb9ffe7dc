"""Frequent strings in few and many reports: p-value, interval and detection limit, with expected counts."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import numpy as np
import pytest

from hubbub import Metric, Params
from hubbub.summary import BitCounts
from hubbub_decoder import Decoding, decode, describe
from hubbub_decoder.model.vectorized_hashing import bit_positions
from hubbub_decoder.results.decoding import summary_lines

SIZES = (10**3, 10**4, 10**5, 10**6, 10**8, 10**10)


def expected_counts(params: Params, shares: dict[str, float], num_reports: int) -> BitCounts:
    """Ones of each cohort and bit as expected, rounded."""
    positions = bit_positions(list(shares), params)
    share_with_bit = np.zeros((params.num_cohorts, params.num_bits))
    for share, of_string in zip(shares.values(), positions, strict=True):
        for cohort, bits in enumerate(of_string):
            share_with_bit[cohort, np.unique(bits)] += share
    p, q = params.mechanism.p_star, params.mechanism.q_star
    reports = np.full(params.num_cohorts, num_reports // params.num_cohorts)
    ones = np.rint(reports[:, None] * (p + share_with_bit * (q - p)))
    return BitCounts(Metric.string("m", params), reports, ones.astype(np.int64))


def string_params(bits: int, hashes: int, cohorts: int) -> Params:
    return Params(num_bits=bits, num_hashes=hashes, num_cohorts=cohorts, prob_p=0.25, prob_q=0.75, prob_f=0)


def decode_expected(bits: int, hashes: int, cohorts: int, top: float, size: int, candidates: int = 20) -> Decoding:
    others = {f"v{i}": (1 - top) / (candidates - 1) for i in range(1, candidates)}
    shares = {"v0": top, **others}
    return decode(expected_counts(string_params(bits, hashes, cohorts), shares, size), list(shares))


@pytest.mark.parametrize("hashes", [1, 2, 3])
@pytest.mark.parametrize("cohorts", [1, 2, 4, 16, 64, 256])
def test_more_reports_never_make_a_frequent_string_less_certain(hashes: int, cohorts: int, unseen_seed: int) -> None:
    """Shares of 10 to 100 %, 1e3 to 1e10 reports. The p-value does not rise, up to the rounding of counts.

    Rounding all counts moves a share by up to cohorts / size, so z by cohorts / (size * std_error), and ln p by z times that. The standard error
    is estimated from these counts, too: 1e-4 of it moves ln p by 1e-4 z**2. Where collisions keep the standard error from falling, the p-value
    stays the same but for this; below twice the probability of a collision, their estimated error moves it by some percent.

    No p-value is below the probability that a random string has the same bits, which it cannot tell from the candidate, however many reports
    there are. An interval is above 0 exactly where the p-value is below its tail, so it contains 0 if this probability is above the tail.
    Other intervals of estimates above 10 standard errors are above 0, and what is above the limit is detected.
    """
    rng = np.random.default_rng([unseen_seed, hashes, cohorts])
    bits, top = int(rng.choice([8, 16, 32])), float(rng.choice([1.0, rng.uniform(0.1, 1), rng.uniform(0.1, 1)]))
    decodings = [decode_expected(bits, hashes, cohorts, top, size) for size in SIZES if size >= 50 * cohorts]
    firsts = [decoding["v0"] for decoding in decodings]
    determined = [(decoding, decoding["v0"]) for decoding in decodings if not math.isnan(decoding["v0"].share)]
    for (fewer, first), (_, second) in pairwise(determined):
        rounding = 2 * first.share * cohorts / (fewer.num_reports * first.std_error**2)
        estimated = 1e-4 * (first.share / first.std_error) ** 2
        most = first.p_value * (1 + 1e-6 + rounding + estimated)
        assert second.p_value <= max(most, 2 * fewer.collision_probability)
    for decoding, first in zip(decodings, firsts, strict=True):
        assert not any(estimate.p_value < (1 - 1e-9) * decoding.collision_probability for estimate in decoding)
        assert all(
            (estimate.low > 0) == (estimate.p_value < 0.025) for estimate in decoding if not math.isnan(estimate.share)
        )
        if first.share > 10 * first.std_error:
            assert (first.low > 0) == (decoding.collision_probability < 0.025)
        if first.share > decoding.detection_limit:
            assert first.detected


def test_detection_limit_says_that_a_random_string_has_the_same_bits() -> None:
    """16 bits: with one cohort 1/16 of all strings, with three 1/4,096, more than 5 % / 300; with four 1/65,536."""
    for cohorts, candidates, known in ((1, 5, False), (3, 300, False), (4, 300, True), (3, 20, True)):
        decoding = decode_expected(16, 1, cohorts, 0.8, 10**6, candidates)
        assert decoding.collision_probability == 16.0**-cohorts
        assert (decoding.detection_limit < 1) is known
        planned = describe(decoding.metric, num_reports=10**6, num_candidates=candidates)
        assert (planned.detection_limit < 1) is known
        assert ("no detection limit" in " ".join(planned.accuracy.notes())) is not known
        document = json.loads(json.dumps(decoding.to_dict()))
        assert (document["detection_limit"] == "inf") is not known
        text = " ".join(summary_lines(decoding))
        assert ("Detection limit: none, because a random string has the bits of a given candidate" in text) is not known
