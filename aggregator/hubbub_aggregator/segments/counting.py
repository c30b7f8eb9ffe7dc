"""Counting of segments: the kernel of all engines, on chosen rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from hubbub.metrics.metric import Metric
from hubbub.summary import Summary
from hubbub_aggregator.pipeline.folding import summary_type
from hubbub_aggregator.segments.segment_file import reports_of

_MAX_REPORTS_AT_ONCE = 1 << 20


def count_segments(
    metric: Metric, period: str, read: Callable[[str], bytes], segments: Iterable[tuple[str, np.ndarray]]
) -> Summary:
    """Return the summary of some rows of segments, given by name and rows; one segment is in memory at a time.

    Segments are counted together up to about a million reports: a sum of pattern counts costs m 2**k additions, whatever was counted.
    """
    counts = summary_type(metric)
    total: Summary = counts.empty(metric)
    for cohorts, reports in _joined(
        reports_of(name, read(name), rows, metric.params.row_bytes) for name, rows in segments
    ):
        total = total + counts.from_rows(metric, cohorts, reports, [period])  # type: ignore[operator]
    return total


def _joined(parts: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """Yield cohorts and reports of several parts at once; nothing if there is no report."""
    cohorts, reports = bytearray(), bytearray()
    for some_cohorts, some_reports in parts:
        cohorts += some_cohorts
        reports += some_reports
        if len(cohorts) >= _MAX_REPORTS_AT_ONCE:
            yield bytes(cohorts), bytes(reports)
            cohorts, reports = bytearray(), bytearray()
    if cohorts:
        yield bytes(cohorts), bytes(reports)
