"""Validate arrays against a metric's parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hubbub.errors import SummaryError
from hubbub.metrics.metric import Metric
from hubbub.metrics.params import Params

ByteData = bytes | NDArray[np.uint8]


def metric_or_unnamed(metric: Metric | Params) -> Metric:
    """Return the metric; for `Params` of a Bloom filter, an unnamed string metric."""
    if isinstance(metric, Metric):
        return metric
    if metric.hash_scheme not in ("one-hot", "threshold-v1"):
        return Metric.string("unnamed", metric)
    raise SummaryError(f"{metric.hash_scheme} parameters do not contain the categories or edges: pass the Metric")


def check_counts(name: str, values: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return an array of counts as a read-only int64 array; raises SummaryError for another shape, fractions or negative numbers."""
    given = np.asarray(values)
    if given.shape != shape:
        raise SummaryError(
            f"{name} must have shape {shape} for these parameters, got {given.shape}: "
            "the summary was made under other parameters"
        )
    if given.dtype.kind not in "iu" and not (given.dtype.kind == "f" and np.array_equal(given, np.floor(given))):
        raise SummaryError(f"{name} must be integers, got {given.dtype}")
    counts = given.astype(np.int64)
    if counts.size and counts.min() < 0:
        raise SummaryError(f"{name} must not be negative, got {counts.min()}")
    counts.flags.writeable = False
    return counts


def view_rows(metric: Metric, cohorts: ByteData, rows: ByteData) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return bytes of reports as arrays: cohorts (n,) and rows (n, ceil(k / 8))."""
    width = metric.row_bytes
    cohort_of, bits = np.frombuffer(cohorts, np.uint8), np.frombuffer(rows, np.uint8)
    if len(bits) != len(cohort_of) * width:
        raise SummaryError(f"{metric.name}: rows must have {len(cohort_of)} x {width} bytes, got {len(bits)}")
    if len(cohort_of) and cohort_of.max() >= metric.num_cohorts:
        raise SummaryError(f"{metric.name}: cohorts must be below {metric.num_cohorts}, got {cohort_of.max()}")
    return cohort_of, bits.reshape(-1, width)


def check_report_rows(metric: Metric, cohorts: ArrayLike, rows: ArrayLike) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Return checked, read-only arrays: cohorts (n,), uint8 or (m > 256) uint16, and rows (n, ceil(k / 8)) uint8.

    Raises SummaryError for a wrong shape or type, a cohort from m on, or a padding bit that is set.
    """
    given, bits = np.asarray(cohorts), np.asarray(rows)
    if bits.shape != (given.size, metric.row_bytes) or given.ndim != 1:
        raise SummaryError(
            f"{metric.name}: rows must have shape ({given.size}, {metric.row_bytes}), {metric.num_bits} bits per report, got {bits.shape}"
        )
    cohort_of = check_counts("cohorts", given, given.shape) if given.size else given
    if given.size and cohort_of.max() >= metric.num_cohorts:
        raise SummaryError(f"{metric.name}: cohorts must be below {metric.num_cohorts}, got {cohort_of.max()}")
    if bits.dtype != np.uint8:
        if bits.size and (bits.dtype.kind not in "iu" or bits.min() < 0 or bits.max() > 255):
            raise SummaryError(f"{metric.name}: rows must be integers from 0 to 255, got {bits.dtype}")
        bits = bits.astype(np.uint8)
    padding = -metric.num_bits % 8
    if padding and (bits[:, -1] >> (8 - padding)).any():
        raise SummaryError(
            f"{metric.name}: a padding bit is set: the last {padding} bits of each report of {metric.num_bits} bits must be 0"
        )
    checked = cohort_of.astype(np.uint8 if metric.num_cohorts <= 256 else np.uint16), bits.view()
    for array in checked:
        array.flags.writeable = False
    return checked
