"""Summaries and their files."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubbub import Metric, Report, SummaryError
from hubbub.summary import (
    BitCounts,
    PatternCounts,
    Reports,
    read_collected,
    read_summary,
    summary_from_bytes,
    summary_to_bytes,
    write_summary,
)
from tests.support.crafted_reports import metric, metric_and_reports


@given(metric_and_reports())
def test_vectorized_counts_equal_counts_bit_by_bit(drawn: tuple[Metric, list[Report]]) -> None:
    of, reports = drawn
    counts = BitCounts.from_reports(of, reports)
    for cohort in range(4):
        here = [report.bits for report in reports if report.cohort == cohort]
        assert counts.reports[cohort] == len(here)
        assert counts.ones[cohort].tolist() == [sum(bits[i] for bits in here) for i in range(of.params.num_bits)]


@settings(max_examples=30)
@given(metric_and_reports(max_bits=12))
def test_pattern_counts_determine_bit_counts(drawn: tuple[Metric, list[Report]]) -> None:
    of, reports = drawn
    patterns = PatternCounts.from_reports(of, reports)
    for report in reports:
        index = int.from_bytes(report.to_bytes(), "little")
        same = sum(other == report for other in reports)
        assert patterns.counts[report.cohort, index] == same
    assert patterns.num_reports == len(reports)
    assert patterns.bit_counts() == BitCounts.from_reports(of, reports)


@given(metric_and_reports(max_bits=12), st.integers(0, 30), st.booleans())
def test_summaries_add_in_any_order_and_round_trip(drawn: tuple[Metric, list[Report]], cut: int, swap: bool) -> None:
    of, reports = drawn
    first, second = (reports[cut:], reports[:cut]) if swap else (reports[:cut], reports[cut:])
    bits = BitCounts.from_reports(of, first) + BitCounts.from_reports(of, second)
    assert bits + BitCounts.empty(of) == BitCounts.from_reports(of, reports)
    assert summary_from_bytes(summary_to_bytes(bits)) == bits
    patterns = PatternCounts.from_reports(of, first) + PatternCounts.from_reports(of, second)
    assert patterns + PatternCounts.empty(of) == PatternCounts.from_reports(of, reports)
    assert summary_from_bytes(summary_to_bytes(patterns)) == patterns


def test_summary_file_metadata_describes_the_summary(tmp_path: Path) -> None:
    summary = BitCounts.from_rows(metric(13), bytes([1, 1]), b"\x01\x00\x03\x10", periods=["2013-01-02", "2013-01-01"])
    write_summary(summary, tmp_path / "s.parquet")
    about = json.loads(pq.read_schema(tmp_path / "s.parquet").metadata[b"hubbub"])
    assert about["format"] == "hubbub-summary/1"
    assert about["num_reports"] == 2
    assert about["periods"] == ["2013-01-01", "2013-01-02"]
    assert Metric.from_dict(about["metric"]) == metric(13)
    assert read_summary(tmp_path / "s.parquet") == summary


def rewritten(about: dict[str, Any] | None = None, **columns: Any) -> bytes:
    table = pq.read_table(io.BytesIO(summary_to_bytes(BitCounts.empty(metric(13)))))
    metadata = json.loads(table.schema.metadata[b"hubbub"])
    for name, values in columns.items():
        table = (
            table.drop_columns([name])
            if values is None
            else table.set_column(table.schema.get_field_index(name), name, values)
        )
    table = table.replace_schema_metadata({"hubbub": json.dumps({**metadata, **(about or {})})})
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def parquet_without_metadata() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": [1]}), sink)
    return sink.getvalue()


NOT_SUMMARIES = [
    b"",
    b"PAR1",
    b"hello, world",
    b"PAR1" + bytes(100) + b"PAR1",
    rewritten({"format": "hubbub-summary/9"}),
    rewritten({"counts": "word-counts"}),
    rewritten({"metric": {"name": "x"}}),
    rewritten({"metric": None}),
    rewritten({"metric": {**metric(13).to_dict(), "num_bits": 14}}),
    rewritten({"metric": metric(14).to_dict()}),
    rewritten(reports=None),
    rewritten(reports=pa.array([-1, 0, 0, 0])),
    rewritten(cohort=pa.array([0, 0, 1, 2], pa.int32())),
    rewritten(ones=pa.array([[1] * 13] * 4)),
    rewritten(ones=pa.array([[0] * 12] * 4)),
    rewritten(ones=pa.array(["a"] * 4)),
]


@pytest.mark.parametrize("content", NOT_SUMMARIES)
def test_rejects_other_files_with_their_name(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "not.parquet"
    path.write_bytes(content)
    with pytest.raises(SummaryError) as caught:
        read_summary(path)
    assert str(path) in str(caught.value)


def test_rejects_truncated_summary() -> None:
    whole = summary_to_bytes(BitCounts.empty(metric(13)))
    for length in range(0, len(whole), 17):
        with pytest.raises(SummaryError):
            summary_from_bytes(whole[:length])


def test_a_file_is_replaced_by_a_whole_one_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_summary(BitCounts.empty(metric(8)), path)
    before = path.read_bytes()
    reports: Any = Reports.empty(metric(8))
    with pytest.raises(SummaryError, match="got Reports: `write_reports` writes reports"):
        write_summary(reports, path)
    assert [(file, file.read_bytes()) for file in tmp_path.iterdir()] == [(path, before)]
    with pytest.raises(SummaryError):
        write_summary(reports, tmp_path / "new.parquet")
    assert list(tmp_path.iterdir()) == [path]


def test_rejects_sum_of_different_definitions() -> None:
    with pytest.raises(SummaryError, match="different definitions cannot be added"):
        BitCounts.empty(metric(13)) + BitCounts.empty(metric(14))
    with pytest.raises(SummaryError, match="different definitions cannot be added"):
        PatternCounts.empty(metric(13)) + PatternCounts.empty(metric(12))


@pytest.mark.parametrize(
    ("reports", "ones", "message"),
    [
        ([1, 1], [[0] * 8] * 4, "reports must have shape"),
        ([1] * 4, [[0] * 9] * 4, "the summary was made under other parameters"),
        ([1] * 4, [[2] * 8] * 4, "2 ones at one bit but only 1 reports"),
        ([1.5] * 4, [[0] * 8] * 4, "reports must be integers"),
        ([-1] * 4, [[0] * 8] * 4, "must not be negative, got -1"),
    ],
)
def test_rejects_arrays_that_do_not_fit_the_parameters(reports: Any, ones: Any, message: str) -> None:
    with pytest.raises(SummaryError, match=message):
        BitCounts(metric(8), reports, ones)


def test_summary_arrays_are_read_only() -> None:
    summary = BitCounts.empty(metric(8))
    with pytest.raises(ValueError, match="read-only"):
        summary.ones[0, 0] = 1


def test_accepts_params_for_an_unnamed_metric() -> None:
    params = metric(8).params
    assert BitCounts(params, np.zeros(4), np.zeros((4, 8))).metric == Metric.string("unnamed", params)


@pytest.mark.parametrize("read", [read_summary, read_collected])
@pytest.mark.parametrize("path", [None, 5])
def test_summary_file_must_be_a_path(read: Any, path: Any) -> None:
    with pytest.raises(SummaryError, match="path must be the path of a summary file, got"):
        read(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"hello, world", "this is not a Parquet file, or it is damaged: use a file"),
        (parquet_without_metadata(), "this Parquet file has no hubbub metadata: use a file"),
        (rewritten({"format": "hubbub-summary/9"}), "format 'hubbub-summary/9', .*: install the newer hubbub"),
    ],
)
def test_error_names_the_reason_that_a_file_is_no_summary(content: bytes, message: str) -> None:
    with pytest.raises(SummaryError, match=message):
        summary_from_bytes(content)


def test_pattern_counts_of_many_bits_name_the_option() -> None:
    with pytest.raises(
        SummaryError, match=r"need num_bits <= 16, got 17.*use BitCounts \(--content bits\), or retain the reports"
    ):
        PatternCounts.empty(metric(17))
