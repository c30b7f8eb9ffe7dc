"""Page of one decoding: estimates, detection limit, goodness of fit, residuals, privacy, definition and provenance."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hubbub.privacy import privacy_figures
from hubbub.privacy.policy import Policy
from hubbub.privacy.pricing import shown_epsilon
from hubbub.text import format_count
from hubbub_decoder.array_types import Floats
from hubbub_decoder.documents.document import UNLISTED_STRINGS, format_level, format_q_value, group_name, with_steps
from hubbub_decoder.inference.goodness_of_fit import FitTest
from hubbub_decoder.report.about import about, period_text
from hubbub_decoder.report.rendering import Scripts, json_numbers, render
from hubbub_decoder.results.decoding import (
    Decoding,
    detection_limit_lines,
    forged_lines,
    needed_reports,
    summary_lines,
    unlisted_lines,
)
from hubbub_decoder.results.diagnosis import Residuals
from hubbub_decoder.results.estimates import Estimate
from hubbub_decoder.results.ordinal import quantile_rows
from hubbub_decoder.results.warnings import MAX_P_VALUE

MAX_ROWS = 2_000
"""Largest number of candidates on a page; the detected ones and the largest estimates are preferred."""

_MAX_CELLS = 1 << 15
_STEPS = {UNLISTED_STRINGS: "Enter such a list under More strings on this page."}


QUESTIONS = {
    "patterns": "Can a set of values explain the reported bit patterns?",
    "patterns_of_one_cohort": "Can a set of values explain the bit patterns of each cohort?",
    "number_of_ones": "Can a set of values explain the numbers of ones in the reports?",
    "coincident_hashes": "Do the two hashes of a string coincide as often as the hash scheme predicts?",
    "equal_cohorts": "Do all cohorts have equally many clients?",
    "ones_by_cohort": "Do the reports of all cohorts have equally many ones?",
    "share_with_value": "Is the share of reports with a value between 0% and 100%?",
    "thresholds": "Do fewer numbers reach higher thresholds?",
    "even_bits": "Is each bit set as often as the others, on average over the cohorts?",
}


@dataclass(frozen=True, slots=True)
class Truth:
    """True shares by candidate, 0 if missing, for demonstrations; and long names of candidates."""

    shares: Mapping[str, float]
    names: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Row:
    """Estimate with its label and, if known, its true share."""

    label: str
    estimate: Estimate
    truth: float | None

    @property
    def covered(self) -> bool:
        """Whether the interval contains the true share, as far as it is known."""
        return self.truth is None or self.estimate.low <= self.truth <= self.estimate.high


def render_decoding(
    decoding: Decoding,
    scripts: Scripts,
    *,
    residuals: Floats | None = None,
    provenance: Iterable[tuple[str, str]] = (),
    path: Sequence[tuple[str, str]] = (),
    truth: Truth | None = None,
    view: Mapping[str, Any] | None = None,
) -> str:
    """HTML page of one decoding.

    residuals  : (m, k), `bit_residuals`; None: not known
    provenance : rows of label and text
    path       : labels and addresses of the pages above this one
    view       : what `view.html.j2` lets the reader choose; None: nothing
    """
    forged = list(forged_lines(decoding))
    lines = [*unlisted_lines(decoding), *summary_lines(decoding, quantiles=False)]
    sentences = [line for line in lines if line not in forged]
    quantiles = [] if decoding.numbers is None else list(quantile_rows(decoding.numbers))
    smaller_limits = list(needed_reports(decoding))
    rows = [
        Row(group_name(e.group), e, None if truth is None else e.true_share(truth.shares)) for e in _shown(decoding)
    ]
    takes_strings = view is not None and bool(view["takes_strings"])
    summary = None if residuals is None else Residuals.of_array(residuals)
    return render(
        "decoding.html.j2",
        scripts,
        _chart_data(decoding, rows, residuals),
        {
            "decoding": decoding,
            **about(decoding.metric, provenance, path, view),
            "rows": rows,
            "tested": decoding.is_tested,
            "largest_share": _largest_without_smallest_q(rows),
            "truth": truth,
            "level": format_level(decoding.confidence),
            "figures": list(_figures(decoding)),
            "periods": period_text(decoding.metric, decoding.periods),
            "warnings": with_steps(decoding.warnings, _STEPS if takes_strings else {}),
            "verdict": decoding.diagnose().verdict,
            "forged": forged,
            "sentences": sentences,
            "has_totals": bool(sentences or quantiles or smaller_limits),
            "quantiles": quantiles,
            "smaller_limits": smaller_limits,
            "detection_limit": " ".join(detection_limit_lines(decoding)),
            "fit_tests": list(fit_test_rows(decoding.fit_tests)),
            "residual_summary": None if summary is None else str(summary),
            "largest_residuals": [] if summary is None else summary.largest,
            "shows_residuals": residuals is not None and residuals.size <= _MAX_CELLS,
        },
    )


def _shown(decoding: Decoding) -> list[Estimate]:
    """Estimates in the order of the terminal's table, at most MAX_ROWS; by name if none is detected, since noise has no ranking."""
    if decoding.is_tested and not decoding.detected:
        return sorted(decoding, key=lambda estimate: estimate.group)[:MAX_ROWS]
    preferred = sorted(range(len(decoding)), key=lambda i: not decoding[i].detected)[:MAX_ROWS]
    kept = {id(decoding[i]) for i in preferred}
    return [estimate for estimate in decoding.in_display_order(decoding) if id(estimate) in kept]


def _largest_without_smallest_q(rows: Sequence[Row]) -> str:
    """Label of the detected row with the largest share if another one has a smaller q value; "" otherwise."""
    found = [row for row in rows if row.estimate.detected]
    if not found:
        return ""
    largest = max(found, key=lambda row: row.estimate.share)
    smallest = min(row.estimate.q_value for row in found)
    is_larger = smallest < largest.estimate.q_value and format_q_value(smallest) != format_q_value(
        largest.estimate.q_value
    )
    return largest.label if is_larger else ""


def _active_installations(decoding: Decoding) -> Iterator[tuple[str, str, str]]:
    """Yield the number of reports of a period as that of installations; nothing where no period is known, as of foreign data."""
    if decoding.periods:
        mean = "" if len(decoding.periods) == 1 else " on average"
        yield (
            "Active installations",
            f"{decoding.num_reports / len(decoding.periods):,.0f}{mean}",
            f"ran with consent in a {decoding.metric.period}, and sent one report of it; a person may have several, and forged reports count",
        )


def _figures(decoding: Decoding) -> Iterator[tuple[str, str, str]]:
    """Yield label, number and note of the figures at the top."""
    of = "these reporters" if decoding.target == "reporters" else "the population"
    forged = f", and hold if {100 * decoding.fabricated:.3g}% of the reports are forged" if decoding.fabricated else ""
    yield "Reports", f"{decoding.num_reports:,}", f"intervals are for {of}{forged}"
    yield from _active_installations(decoding)
    if decoding.is_tested:
        yield (
            "Detected",
            f"{len(decoding.detected):,} of {len(decoding):,}",
            f"at most {decoding.fdr:.0%} false on average",
        )
        limit = decoding.detection_limit
        shown = "above 100%" if limit >= 1 else f"{limit:.2%}" if limit > 0 else "not known"
        if decoding.is_ambiguous:
            yield "Detection limit", "none", "too few cohorts to tell a candidate from a random string"
        else:
            yield "Detection limit", shown, "share found with probability 0.9"
    elif decoding.estimates:
        yield "Estimated", format_count(len(decoding), "share"), "a closed list of values is not tested"
    epsilon = privacy_figures(decoding.metric, Policy()).epsilon_report
    yield "Epsilon of a report", shown_epsilon(epsilon), "see Privacy"
    failed = sum(test.p_value < MAX_P_VALUE for test in decoding.fit_tests)
    tests = len(decoding.fit_tests)
    yield "Goodness of fit", "not tested" if not tests else f"{failed} of {tests} tests fail", ""


def _chart_data(decoding: Decoding, rows: Sequence[Row], residuals: Floats | None) -> dict[str, Any]:
    """Numbers of the charts, with the rows in the order of the table."""
    data = estimates_data(decoding, rows)
    if residuals is not None and residuals.size <= _MAX_CELLS:
        cohorts, bits = residuals.shape
        data["residuals"] = {"cohorts": cohorts, "bits": bits, "values": json_numbers(residuals.ravel().tolist(), 2)}
    if decoding.numbers is not None and decoding.numbers.distribution:
        names = ("edge", "share", "low", "high")
        known = (point for point in decoding.numbers.distribution if math.isfinite(point.share))
        points = [{name: getattr(point, name) for name in names} for point in known]
        data["distribution"] = {"points": points, "unit": decoding.numbers.definition.unit or decoding.metric.name}
    return data


def estimates_data(decoding: Decoding, rows: Sequence[Row]) -> dict[str, Any]:
    """Numbers of the chart of intervals, with the rows from top to bottom."""
    estimates = [row.estimate for row in rows]
    known_joint = any(math.isfinite(e.simultaneous_low) for e in estimates) and len(estimates) > 1
    return {
        "level": format_level(decoding.confidence),
        "estimates": {
            "labels": [row.label for row in rows],
            **{name: json_numbers([getattr(e, name) for e in estimates]) for name in ("share", "low", "high")},
            "joint_low": json_numbers([e.simultaneous_low for e in estimates]) if known_joint else None,
            "joint_high": json_numbers([e.simultaneous_high for e in estimates]) if known_joint else None,
            "truth": json_numbers([row.truth for row in rows if row.truth is not None]) or None,
            "detected": [e.detected for e in estimates] if decoding.is_tested else None,
        },
    }


def fit_test_rows(tests: Sequence[FitTest]) -> Iterator[tuple[str, str, str, bool]]:
    """Yield question, name, p-value and whether the test fails; it fails where the decoding has a warning about it."""
    for test in tests:
        yield QUESTIONS[test.name], test.name, _format(test.p_value), test.p_value < MAX_P_VALUE


def _format(p_value: float) -> str:
    """P-value as text.

    >>> _format(0.25), _format(2e-9), _format(0.0)
    ('0.250', '2e-09', 'below 1e-300')
    """
    return f"{p_value:.3f}" if p_value >= 0.001 else f"{p_value:.0e}" if p_value > 0 else "below 1e-300"
