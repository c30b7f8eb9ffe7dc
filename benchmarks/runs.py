"""Errors of one decoding of a simulated population against the true shares, and the means of several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.tables import Row
from hubbub_decoder import Decoding

REPORTS = 1_000_000


class Run(NamedTuple):
    """Figures of one decoding against the true shares."""

    total_variation: float
    found: int
    false: int
    covered_present: float
    covered_null: float
    selected: list[bool]
    seconds: float


def compare(decoding: Decoding, truth: dict[str, float], seconds: float) -> Run:
    """Compare a decoding with the true shares of its candidates."""
    missing = 1 - sum(truth.values())
    estimated = [e for e in decoding if not math.isnan(e.share)]
    covered = {
        present: [e.low <= truth[e.candidate] <= e.high for e in estimated if (truth[e.candidate] > 0) == present]
        for present in (True, False)
    }
    off = sum(abs((0 if math.isnan(e.posterior_median) else e.posterior_median) - truth[e.candidate]) for e in decoding)
    return Run(
        total_variation=(off + missing) / 2,
        found=sum(truth[e.candidate] > 0 for e in decoding.detected),
        false=sum(truth[e.candidate] == 0 for e in decoding.detected),
        covered_present=float(np.mean(covered[True])),
        covered_null=float(np.mean(covered[False])),
        selected=[
            e.selection_adjusted_low <= truth[e.candidate] <= e.selection_adjusted_high for e in decoding.detected
        ],
        seconds=seconds,
    )


def mean_figures(runs: Sequence[Run]) -> Row:
    """Cells of a row of the table: means over the runs, and standard errors."""
    variation = [run.total_variation for run in runs]
    false = [100 * run.false / max(1, run.false + run.found) for run in runs]
    return {
        "tv": f"{np.mean(variation):.3f}",
        "tv_se": f"{standard_error(variation):.3f}",
        "found": f"{np.mean([run.found for run in runs]):.1f}",
        "false_percent": f"{np.mean(false):.1f}",
        "false_percent_se": f"{standard_error(false):.1f}",
        "covers_present": f"{np.mean([run.covered_present for run in runs]):.3f}",
        "covers_absent": f"{np.mean([run.covered_null for run in runs]):.3f}",
        "covers_selected": f"{np.mean([inside for run in runs for inside in run.selected]):.3f}",
        "seconds": f"{np.mean([run.seconds for run in runs]):.1f}",
    }


def standard_error(values: Sequence[float]) -> float:
    """Standard error of the mean; NaN for one value."""
    return float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan
