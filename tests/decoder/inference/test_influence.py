"""Influence of one report: by hand, against new decodings, and what a decoding says about forged reports."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from hubbub import Metric, Params, UnaryResponse
from hubbub.errors import SummaryError
from hubbub.summary import BitCounts, PatternCounts, Reports
from hubbub_decoder import Decoding, decode
from hubbub_decoder.inference.influence import ReportInfluence
from hubbub_decoder.inference.multiple_testing import largest_p_values, q_values
from hubbub_decoder.model.design_matrix import design_matrix
from hubbub_decoder.simulation import simulate
from tests.support.forged_reports import Attacks, Forgery, add_forged

COIN = {"prob_p": 0.25, "prob_q": 0.75, "prob_f": 0.0}
WORDS = Params(num_bits=32, num_hashes=2, num_cohorts=16, prob_p=0.25, prob_q=0.75, prob_f=0.25)
POPULATION = {f"v{i}": 20_000 // (i + 1) for i in range(30)}
FEW = [f"v{i}" for i in range(20)]
MANY = [f"v{i}" for i in range(300)]


def collected(
    form: type[BitCounts] | type[PatternCounts] = BitCounts, params: Params = WORDS
) -> BitCounts | PatternCounts:
    return simulate(Metric.string("word", params), POPULATION, np.random.default_rng(5), no_value=5_000, form=form)


def attacks_on(counts: BitCounts | PatternCounts, candidates: list[str]) -> Attacks:
    return Attacks(counts, design_matrix(candidates, counts.metric.params), np.random.default_rng(1))


def test_a_report_of_one_bit_stands_for_its_debiased_value() -> None:
    influence = ReportInfluence.of_bits(Params.one_hot(1, **COIN).mechanism, np.array([100.0, 400.0]))
    assert influence.lowest.tolist() == [-0.5, -0.5]
    assert influence.highest.tolist() == [1.5, 1.5]
    assert influence.num_forged(np.array([0.5, 0.5]), np.array([0.5, 0.1])).tolist() == [0, 115]


def test_forged_reports_can_be_taken_out_again() -> None:
    """One half of 60 reports, 6 of them forged for 1.5: the others have 7/18; an honest tenth of reports changes weights by a tenth more."""
    influence = ReportInfluence.of_bits(Params.one_hot(1, **COIN).mechanism, np.array([60.0]))
    low, high = influence.honest_shares(np.array([0.5]), 6)
    assert low == pytest.approx(0.5 - 1.1 * (0.5 - 7 / 18))
    assert high == pytest.approx(0.5 + 1.1 * (11 / 18 - 0.5))
    assert np.isnan(influence.honest_shares(np.array([0.5]), 60)).all()
    few = replace(influence, tolerance=1.5)
    assert few.honest_shares(np.array([0.5]), 6)[0] == pytest.approx(0.5 - 1.5 * (0.5 - 7 / 18))
    assert np.isnan(few.num_forged(np.array([0.5]), np.array([0.1]))).all()


@pytest.mark.parametrize("form", [BitCounts, PatternCounts])
@pytest.mark.parametrize("candidates", [FEW, MANY], ids=len)
@pytest.mark.parametrize("hashes", [1, 2])
def test_influence_is_the_change_by_a_new_decoding(
    form: type[BitCounts] | type[PatternCounts], candidates: list[str], hashes: int
) -> None:
    """Of 40 reports with the row and in the cohort that move the estimate most, within a tenth and .06 standard errors.

    The bound has the weights of the first decoding, and the messages of both decodings settle within .03 standard errors. Among 300
    candidates 40 reports move an estimate by .36 standard errors, so they gained up to 1.23 times the bound in 40 simulated cases.
    """
    counts = collected(form, replace(WORDS, num_bits=16 if form is PatternCounts else 32, num_hashes=hashes))
    attacks = attacks_on(counts, candidates)
    for target in (0, len(candidates) - 1):
        influence = attacks.influence(target)
        rows = np.zeros((16, counts.metric.params.num_bits), np.uint8)
        rows[influence.cohorts[0]] = influence.rows[0]
        forgery = Forgery("weights", rows, np.where(np.arange(16) == influence.cohorts[0], 40, 0))
        bound = 40 / (attacks.evidence.num_reports + 40) * float(influence.highest[0] - attacks.fit.shares[target])
        unsettled = 2 * 0.03 * math.sqrt(attacks.fit.variances[target])
        assert attacks.gain(target, forgery) == pytest.approx(bound, abs=bound / 10 + unsettled)


def test_no_other_row_gains_more() -> None:
    """Of single flips of the best row, and of random rows in all cohorts."""
    counts, rng = collected(), np.random.default_rng(2)
    attacks = attacks_on(counts, FEW)
    best = attacks.influence(4)
    cohort, row = int(best.cohorts[0]), best.rows[0]
    for bit in range(3, 32, 4):
        rows = np.zeros((16, 32), np.uint8)
        rows[cohort] = row ^ (np.arange(32) == bit)
        forgery = Forgery("flipped", rows, np.where(np.arange(16) == cohort, 40, 0))
        assert attacks.ratio(4, forgery) < 1.02
    for _ in range(4):
        forgery = Forgery("random", rng.integers(0, 2, (16, 32), np.uint8), np.full(16, 10))
        assert attacks.ratio(4, forgery) < 1.02


def test_largest_p_value_is_where_a_discovery_ends() -> None:
    """A discovery with that p-value is still one, and with a little more it is none."""
    rng = np.random.default_rng(3)
    for strata in (None, rng.integers(0, 3, 40)):
        p = np.where(rng.random(40) < 0.4, rng.random(40) / 300, rng.random(40))
        found = np.flatnonzero(q_values(p, 0.05, strata) <= 0.05)
        largest = largest_p_values(p, 0.05, len(found), strata)
        at = found[np.argmax(p[found] / largest[found])]
        for factor, is_one in ((0.999, True), (1.001, False)):
            moved = p.copy()
            moved[at] = largest[at] * factor
            assert (q_values(moved, 0.05, strata)[at] <= 0.05) == is_one


@pytest.mark.parametrize("candidates", [FEW, MANY], ids=len)
def test_a_forged_detection_needs_at_most_the_reports_that_were_forged(candidates: list[str]) -> None:
    """900 reports with the bits of an absent candidate detect it, and the decoding says that fewer suffice."""
    counts, candidates = collected(), [*candidates, "absent"]
    target = len(candidates) - 1
    attacks = attacks_on(counts, candidates)
    forgery = next(attacks.forgeries(target, 900))
    assert not decode(counts, candidates)[candidates[target]].detected
    found = decode(add_forged(counts, forgery), candidates)[candidates[target]]
    assert found.detected
    assert found.forged_reports_needed is not None
    assert 0 < found.forged_reports_needed <= forgery.size


def test_every_detected_candidate_has_a_number_that_grows_with_its_share() -> None:
    decoding = decode(collected(), FEW)
    numbers = [estimate.forged_reports_needed for estimate in decoding]
    assert all((number is not None) == estimate.detected for number, estimate in zip(numbers, decoding, strict=True))
    assert decoding[0].forged_reports_needed > 20 * decoding.detected[-1].forged_reports_needed  # type: ignore[operator]  # of detected ones


def test_retained_reports_have_numbers() -> None:
    reports = simulate(Metric.string("word", WORDS), POPULATION, np.random.default_rng(5), no_value=5_000, form=Reports)
    for candidates in (FEW, MANY[:100]):
        decoding = decode(reports, candidates)
        assert decoding.detected
        assert all(estimate.forged_reports_needed for estimate in decoding.detected)


def test_the_bound_of_retained_reports_is_near_an_attack() -> None:
    """It is 1.2 times what the search finds, which lies between the bound / 1.5 and the bound, after a new decoding."""
    people = {value: number // 10 for value, number in POPULATION.items()}
    reports = simulate(Metric.string("word", WORDS), people, np.random.default_rng(5), no_value=500, form=Reports)
    attacks = Attacks(reports, design_matrix(FEW, WORDS), np.random.default_rng(1))
    for target in (0, 19):
        ratios = [attacks.ratio(target, forgery) for forgery in attacks.forgeries(target, 60)]
        assert 1 / 1.5 <= max(ratios) <= 1.1


@pytest.mark.parametrize("hashes", [1, 2])
def test_a_pattern_attack_does_not_hide_behind_its_own_weights(hashes: int) -> None:
    """A tenth of a cohort with one pattern looks like a string, and changes all weights; the received reports still bound its gain."""
    attacks = attacks_on(collected(PatternCounts, replace(WORDS, num_bits=16, num_hashes=hashes)), FEW)
    for forgery in attacks.forgeries(4, 2_000):
        assert attacks.ratio(4, forgery) <= 1.1, forgery.name


@pytest.mark.parametrize(
    ("form", "bits", "cohorts", "candidates", "is_known"),
    [
        (PatternCounts, 16, 16, FEW, True),
        (PatternCounts, 16, 8, FEW, False),
        (BitCounts, 32, 16, MANY, True),
        (BitCounts, 32, 8, MANY, False),
        (BitCounts, 8, 20, MANY, False),  # other strings make about half of the variance
    ],
)
def test_numbers_or_the_reason(
    form: type[BitCounts] | type[PatternCounts], bits: int, cohorts: int, candidates: list[str], is_known: bool
) -> None:
    decoding = decode(collected(form, replace(WORDS, num_bits=bits, num_cohorts=cohorts)), candidates)
    reasons = [warning for warning in decoding.warnings if warning.kind == "forged_reports_unknown"]
    assert {estimate.forged_reports_needed is not None for estimate in decoding.detected} == {is_known}
    assert len(reasons) == (not is_known)


def test_numbers_do_not_change_the_estimates_of_a_fabricated_share_of_0() -> None:
    counts = collected()
    assert decode(counts, FEW, fabricated=0).to_dict() == decode(counts, FEW).to_dict()


def kinds() -> list[tuple[BitCounts, list[str] | None]]:
    """Counts of each kind of metric with shares."""
    rng = np.random.default_rng(7)
    noise = {"prob_p": 0.25, "prob_q": 0.75, "prob_f": 0.25}
    return [
        (simulate(Metric.boolean("dark", UnaryResponse(**noise)), {"true": 3_000, "false": 7_000}, rng), None),
        (
            simulate(
                Metric.categorical("os", ("a", "b", "c"), UnaryResponse(**noise)),
                {"a": 6_000, "b": 3_000, "c": 1_000},
                rng,
            ),
            None,
        ),
        (simulate(Metric.set("tools", ("a", "b", "c"), UnaryResponse(**noise)), {"a,b": 9_000, "c": 1_000}, rng), None),
        (collected(), FEW),  # type: ignore[list-item]  # bit counts
        (collected(), MANY),  # type: ignore[list-item]  # bit counts
    ]


@pytest.mark.parametrize("case", range(5))
def test_intervals_with_forged_reports_contain_those_without(case: int) -> None:
    """And fewer candidates are detected; a larger share widens them more."""
    counts, candidates = kinds()[case]
    decodings = [decode(counts, candidates, fabricated=share) for share in (0.0, 0.001, 0.02)]
    for narrow, wide in pairwise(decodings):
        for estimate in narrow:
            other = wide[estimate.candidate]
            assert other.low < estimate.low <= estimate.share <= estimate.high < other.high
            assert other.share == estimate.share
        assert {estimate.candidate for estimate in wide.detected} <= {
            estimate.candidate for estimate in narrow.detected
        }
        assert math.isnan(wide.listed_total.share)
        assert math.isnan(wide[0].posterior_mean)
    assert all(low < high for low, high in decodings[1].intervals(0.5))
    assert Decoding.from_dict(decodings[1].to_dict()).fabricated == 0.001


def test_low_is_above_0_exactly_where_the_test_rejects() -> None:
    for case in (3, 4):
        counts, candidates = kinds()[case]
        decoding = decode(counts, candidates, fabricated=0.002)
        assert decoding.detected
        assert all((estimate.low > 0) == (estimate.p_value < 0.025) for estimate in decoding)


def test_ordinal_metrics_refuse_fabricated_reports() -> None:
    metric = Metric.ordinal("age", (0.0, 10.0, 20.0), UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.25))
    with pytest.raises(SummaryError, match="Leave out fabricated"):
        decode(BitCounts(metric, [1000], [[300] * metric.params.num_bits]), fabricated=0.01)
