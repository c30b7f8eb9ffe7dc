"""Page of a comparison: the change of each share, with its interval and its test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hubbub_decoder.comparison.results import Comparison, summary_lines
from hubbub_decoder.documents.document import format_level, group_name
from hubbub_decoder.report.about import about, period_text
from hubbub_decoder.report.rendering import Scripts, json_numbers, render
from hubbub_decoder.results.decoding import Decoding

MAX_ROWS = 2_000
"""Largest number of changes on a page: detected ones first, then the largest."""


def render_comparison(
    comparison: Comparison,
    scripts: Scripts,
    *,
    provenance: Iterable[tuple[str, str]] = (),
    path: Sequence[tuple[str, str]] = (),
    view: Mapping[str, Any] | None = None,
) -> str:
    """HTML page of the changes between two samples; for the arguments see `render_decoding`."""
    is_noise = not comparison.detected
    changes = [(group_name(change.group), change) for change in comparison.changes[:MAX_ROWS]]
    if is_noise:
        changes.sort(key=lambda row: row[0])
    level = format_level(comparison.confidence)
    return render(
        "comparison.html.j2",
        scripts,
        {
            "level": level,
            "estimates": {
                "axis": "change of the share of reports (percentage points)",
                "labels": [label for label, _ in changes],
                "share": json_numbers([change.change for _, change in changes]),
                "low": json_numbers([change.low for _, change in changes]),
                "high": json_numbers([change.high for _, change in changes]),
                "joint_low": None,
                "joint_high": None,
                "truth": None,
                "detected": [change.detected for _, change in changes],
            },
        },
        {
            "comparison": comparison,
            **about(comparison.metric, provenance, path, view),
            "before": _sample_text(comparison.a),
            "after": _sample_text(comparison.b),
            "changes": changes,
            "is_noise": is_noise,
            "level": level,
            "lines": list(summary_lines(comparison)),
        },
    )


def _sample_text(decoding: Decoding) -> str:
    """Periods of a sample, with the value of its group."""
    group, periods = decoding.metric.group, period_text(decoding.metric, decoding.periods)
    return periods if group is None or group.value is None else f"{group.name} {group.value}, {periods}"
