"""Bit counts of one group of a metric with `discover`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hubbub.metrics.discovery import Discovery
from hubbub.summary import BitCounts


def group_counts(counts: BitCounts, cohorts: range) -> BitCounts:
    """Return the counts with the reports of all other cohorts left out."""
    inside = np.zeros(len(counts.reports), bool)
    inside[cohorts.start : cohorts.stop] = True
    return replace(
        counts,
        reports=np.where(inside, counts.reports, 0),
        ones=np.where(inside[:, None], counts.ones, 0),
        ones_histogram=None,
    )


def held_out_counts(counts: BitCounts, discover: Discovery) -> BitCounts:
    """Return the counts of the held-out group, of which the clients report whole values."""
    return group_counts(counts, discover.cohorts(len(discover.lengths), counts.metric.params.num_cohorts))
