"""`Decoding.load` returns what `save` wrote; `intervals` has the intervals at any level."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from hubbub import KindWord, Metric, ParameterError, Params, SummaryError
from hubbub.summary import PatternCounts, Reports
from hubbub_decoder import Decoding, decode, simulate, write_report
from tests.support.every_kind import METRICS

NAMES = [f"v{i}" for i in range(30)]
SHARES = {name: 4000 // (i + 1) for i, name in enumerate(NAMES)}
WORDS = Metric.string("w", Params(num_bits=16, num_hashes=1, num_cohorts=64, prob_p=0.25, prob_q=0.75, prob_f=0))
BYTES = Metric.string("w", Params(num_bits=8, num_hashes=2, num_cohorts=16, prob_p=0.25, prob_q=0.75, prob_f=0))
SINGLE = [metric for metric in METRICS if len(metric.blocks) == 1]


@cache
def decodings(confidence: float) -> tuple[Decoding, ...]:
    """Decodings of every kind and form; those of WORDS and BYTES have an unlisted string."""
    rng = np.random.default_rng(3)
    found = []
    for metric in SINGLE:
        labels = ("1", "300") if metric.kind.word is KindWord.ORDINAL else metric.kind.labels
        values = SHARES if metric.kind.needs_candidates else dict.fromkeys(labels, 3000)
        counts = simulate(metric, values, rng, no_value=1000, periods=["2026-03-02", "2026-03-09"])
        found.append(decode(counts, NAMES if metric.kind.needs_candidates else None, confidence=confidence))
    strings = [
        (simulate(WORDS, SHARES, rng), {}),
        (simulate(WORDS, SHARES, rng, form=Reports), {}),
        (simulate(BYTES, SHARES, rng, form=PatternCounts), {}),
        (simulate(WORDS, SHARES, rng), {"target": "population"}),
    ]
    found += [decode(counts, NAMES[1:], confidence=confidence, **options) for counts, options in strings]  # type: ignore[arg-type]
    return tuple(found)


NUMBER = len(SINGLE) + 4


@pytest.mark.parametrize("i", range(NUMBER))
def test_loaded_decoding_is_equal_to_the_saved_one(i: int, tmp_path: Path) -> None:
    decoding = decodings(0.95)[i]
    decoding.save(tmp_path / "decoding.json")
    loaded = Decoding.load(tmp_path / "decoding.json")
    assert loaded == decoding
    assert loaded.to_dict() == decoding.to_dict()
    for shown, name in ((decoding, "saved.html"), (loaded, "loaded.html")):
        write_report(shown, tmp_path / name)
    assert (tmp_path / "loaded.html").read_text() == (tmp_path / "saved.html").read_text()
    if not decoding.estimates:
        assert loaded.intervals(0.5) == ()
        return
    with pytest.raises(SummaryError, match="Decode the summary again"):
        loaded.intervals(0.5)


@pytest.mark.slow
@pytest.mark.parametrize("i", range(NUMBER))
def test_intervals_at_another_level_are_those_of_a_decoding_at_it(i: int) -> None:
    one, other = decodings(0.95)[i], decodings(0.6)[i]
    for decoding, level, expected in ((one, 0.95, one), (one, 0.6, other)):
        ends = np.array([(e.low, e.high) for e in expected]).reshape(-1, 2)
        np.testing.assert_array_equal(np.array(decoding.intervals(level)).reshape(-1, 2), ends)


def test_level_out_of_range_is_refused() -> None:
    with pytest.raises(ParameterError, match="level must be a number in"):
        decodings(0.95)[0].intervals(95)
