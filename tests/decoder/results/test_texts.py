"""Texts of a decoding: rows of smaller detection limits, warnings about unlisted strings, titles of undated reports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hubbub import Metric, Params
from hubbub.summary import BitCounts
from hubbub_decoder import Decoding, decode
from hubbub_decoder.report.write import write_report
from hubbub_decoder.results.decoding import needed_reports
from hubbub_decoder.results.unlisted_strings import UnlistedString
from hubbub_decoder.results.warnings import unlisted_strings

UNLISTED = UnlistedString(0.09, 0.01, 0.07, 0.11, num_strings=1, separated=True, signature=())


@pytest.fixture(scope="module")
def counts() -> BitCounts:
    params = Params(num_bits=8, num_hashes=1, num_cohorts=4, prob_p=0.2, prob_q=0.8, prob_f=0)
    return BitCounts(Metric.string("homepage", params), [100] * 4, [[30] * 8] * 4)


@pytest.fixture(scope="module")
def decoding(counts: BitCounts) -> Decoding:
    return decode(counts, ["a", "b"])


@pytest.mark.parametrize("lowest", [0.0, 1e-9])
def test_smaller_detection_limits_differ(decoding: Decoding, lowest: float) -> None:
    """500 random limits from 1e-5 to 2: four rows, each smaller than the one above and with more reports."""
    for limit in 10 ** np.random.default_rng(0).uniform(-5, 0.3, 500):
        rows = list(needed_reports(replace(decoding, detection_limit=float(limit), lowest_detection_limit=lowest)))
        shares = [float(share.removesuffix("%")) for share, _ in rows if share]
        needed = [int(text.removeprefix("at least ").replace(",", "")) for _, text in rows]
        assert len(rows) == 4
        assert shares == sorted(set(shares), reverse=True), limit
        assert needed == sorted(set(needed)), limit


@pytest.mark.parametrize("separated", [True, False])
@pytest.mark.parametrize("number", [1, 2])
def test_warnings_about_unlisted_strings_agree_in_number(decoding: Decoding, number: int, separated: bool) -> None:
    string = replace(UNLISTED, num_strings=number, separated=separated)
    (finding,) = unlisted_strings(replace(decoding, unlisted_strings=(string,)))
    text = str(finding)
    assert (" Its " in text, "it widens" in text) == (number == 1, number == 1 and not separated)
    assert (" Their " in text, "they widen" in text) == (number == 2, number == 2 and not separated)
    assert ("which word it is" in text, "which words they are" in text) == (number == 1, number == 2)


def test_undated_reports_have_a_title(counts: BitCounts, decoding: Decoding, tmp_path: Path) -> None:
    write_report(decoding, tmp_path / "page.html", counts)
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<title>homepage, undated reports" in text
    assert "The file names no reporting period." in text
    assert "not known" not in text.partition("<script")[0].partition("Detection limit")[0]
