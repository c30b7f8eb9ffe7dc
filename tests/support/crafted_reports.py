"""Hypothesis strategy for reports."""

from __future__ import annotations

from hypothesis import strategies as st

from hubbub import Metric, Params, Report


def metric(num_bits: int, num_cohorts: int = 4) -> Metric:
    params = Params(num_bits=num_bits, num_hashes=2, num_cohorts=num_cohorts, prob_p=0.25, prob_q=0.75, prob_f=0.5)
    return Metric.string("homepage", params)


@st.composite
def metric_and_reports(draw: st.DrawFn, max_bits: int = 40) -> tuple[Metric, list[Report]]:
    k = draw(st.integers(8, max_bits))
    report = st.builds(lambda c, b: Report.from_int(c, b, k), st.integers(0, 3), st.integers(0, 2**k - 1))
    return metric(k), draw(st.lists(report, max_size=30))
