"""`summary`, `diagnose` and short reprs: text that answers what was found, and whether it can be used."""

from __future__ import annotations

import numpy as np

from hubbub import Metric, Params, UnaryResponse
from hubbub.summary import BitCounts, PatternCounts
from hubbub_decoder import decode, simulate

SURVEY = Metric.boolean("survey", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5))
WORDS = Metric.string("w", Params(num_bits=8, num_hashes=1, num_cohorts=32, prob_p=0.25, prob_q=0.75, prob_f=0))


def test_reports_that_fit_can_be_used() -> None:
    decoding = decode(BitCounts(SURVEY, [1000], [[400]]))
    diagnosis = decoding.diagnose()
    assert diagnosis.fits
    assert diagnosis.verdict.endswith("can be used.")
    assert decoding.summary().startswith(
        "survey: 1,000 reports; no epsilon whatever is recorded; epsilon 1.099 per report"
    )
    assert "  true: 30.00% (24.60% .. 35.40%)" in decoding.summary()
    assert decoding.summary().endswith(diagnosis.verdict)


def test_reports_under_other_parameters_cannot_be_used() -> None:
    """Reports with far more ones than the noise of these parameters makes."""
    rng = np.random.default_rng(1)
    rows = np.full((20_000, 1), 0xFF, np.uint8)
    counts = PatternCounts.from_rows(WORDS, rng.integers(32, size=20_000).astype(np.uint8), rows)
    diagnosis = decode(counts, ["a", "b"]).diagnose()
    assert not diagnosis.fits
    assert "Do not use the estimates" in diagnosis.verdict
    assert any(test.p_value < 1e-6 for test in diagnosis.fit_tests)
    assert str(diagnosis).startswith(diagnosis.verdict)


def test_findings_are_counted() -> None:
    counts = simulate(WORDS, {"a": 40, "b": 20}, np.random.default_rng(1))
    diagnosis = decode(counts, ["a", "b"]).diagnose()
    assert diagnosis.fits
    assert "Read" in diagnosis.verdict
    assert "finding" in diagnosis.verdict


def test_repr_of_an_estimate_is_one_short_line() -> None:
    (estimate,) = decode(BitCounts(SURVEY, [1000], [[400]]))
    assert repr(estimate) == "<Estimate 'true': 30.00% (24.60% .. 35.40%)>"
