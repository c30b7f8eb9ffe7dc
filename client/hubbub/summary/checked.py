"""Arrays that have the shape their metric says, or a clear error."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hubbub.errors import SummaryError
from hubbub.metric import Metric
from hubbub.params import Params


def asked_metric(metric: Metric | Params) -> Metric:
    """Let bare parameters stand for an unnamed metric: boolean or string, as their hash scheme says."""
    if isinstance(metric, Metric):
        return metric
    if metric.hash_scheme != "one-hot":
        return Metric.string("unnamed", metric)
    raise SummaryError("one-hot parameters do not name their categories: give the Metric")


def counts_of(name: str, values: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return whole, non-negative numbers of exactly this shape, as a read-only array."""
    given = np.asarray(values)
    if given.shape != shape:
        raise SummaryError(
            f"{name} must have shape {shape} for these parameters, got {given.shape}: "
            "the summary was made under other parameters"
        )
    if given.dtype.kind not in "iu" and not (given.dtype.kind == "f" and np.array_equal(given, np.floor(given))):
        raise SummaryError(f"{name} must be whole numbers, got {given.dtype}")
    counts = given.astype(np.int64)
    if counts.size and counts.min() < 0:
        raise SummaryError(f"{name} must not be negative, got {counts.min()}")
    counts.flags.writeable = False
    return counts


def rows_of(
    metric: Metric, cohorts: bytes | NDArray[np.uint8], rows: bytes
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """View wire bytes as cohorts (n,) and rows (n, ceil(k / 8))."""
    width = metric.params.row_bytes
    cohort_of = np.frombuffer(cohorts, np.uint8)
    if len(rows) != len(cohort_of) * width:
        raise SummaryError(
            f"{metric.name}: {len(cohort_of)} reports are {len(cohort_of) * width} bytes, got {len(rows)}"
        )
    if len(cohort_of) and cohort_of.max() >= metric.params.num_cohorts:
        raise SummaryError(f"{metric.name}: cohorts must be below {metric.params.num_cohorts}, got {cohort_of.max()}")
    return cohort_of, np.frombuffer(rows, np.uint8).reshape(-1, width)
