"""Trade-off curve: error rates of thresholds, the limit of epsilon, and the plot."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from hubbub import Metric, UnaryResponse
from hubbub_decoder.audit.audit import audit_metric
from hubbub_decoder.audit.report import error_rates, limit, write_plot
from hubbub_decoder.data.output_files import check_plot_path
from hubbub_decoder.errors import OutputError


def test_error_rates_of_a_coin_lie_on_its_limit() -> None:
    """Two coins: P = .75 and .25; the curve touches the limit of ln 3 at (.25, .25)."""
    scores, other = np.repeat([1.0, -1.0], [75, 25]), np.repeat([1.0, -1.0], [25, 75])
    false_positive, false_negative = error_rates(scores, other)
    assert false_positive.tolist() == [0, 0.25, 1]
    assert false_negative.tolist() == pytest.approx([1, 0.25, 0])
    assert false_negative == pytest.approx(limit(math.log(3), false_positive))
    assert (false_negative[1] < limit(1.0, false_positive)[1]).all()


def test_plot_is_written_in_the_format_of_its_suffix(tmp_path: Path) -> None:
    survey = Metric.boolean("survey", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5))
    audit = audit_metric(survey, trials=4_000)
    for name, start in (("curve.svg", b"<?xml"), ("curve.png", b"\x89PNG")):
        write_plot(audit, "survey", tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(start)


def test_plot_path_with_another_suffix_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"must end in .svg, .png or .pdf"):
        check_plot_path(tmp_path / "curve.gif")
