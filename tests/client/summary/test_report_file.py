"""Report files."""

from __future__ import annotations

import io
import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hubbub import Metric, Params, Report, SummaryError
from hubbub.summary import (
    BitCounts,
    PatternCounts,
    ReportFile,
    Reports,
    ReportWriter,
    read_reports,
    read_summary,
    reports_from_bytes,
    reports_to_bytes,
    summary_from_bytes,
    summary_to_bytes,
    write_reports,
)
from hubbub.summary import report_file as report_file_module
from tests.support.crafted_reports import metric, metric_and_reports


@settings(max_examples=50)
@given(metric_and_reports(), st.integers(0, 30))
def test_reports_round_trip_in_blocks_and_count_like_a_summary(drawn: tuple[Metric, list[Report]], cut: int) -> None:
    of, given_reports = drawn
    reports = Reports.from_reports(of, given_reports[:cut]) + Reports.from_reports(of, given_reports[cut:])
    assert reports == Reports.from_reports(of, given_reports)
    sink = io.BytesIO()
    with ReportWriter(sink, of) as writer:
        for part in (slice(None, cut), slice(cut, None)):
            writer.write(reports.cohorts[part], reports.rows[part])
    assert ReportFile(sink).read() == reports
    assert ReportFile(sink).bit_counts() == reports.bit_counts() == BitCounts.from_reports(of, given_reports)


@settings(max_examples=30)
@given(metric_and_reports(max_bits=12))
def test_reports_with_few_bits_have_pattern_counts(drawn: tuple[Metric, list[Report]]) -> None:
    of, given_reports = drawn
    reports = Reports.from_reports(of, given_reports)
    patterns = PatternCounts.from_reports(of, given_reports)
    assert reports.pattern_counts() == patterns
    assert ReportFile(io.BytesIO(reports_to_bytes(reports))).pattern_counts() == patterns


def test_report_file_metadata_describes_the_reports(tmp_path: Path) -> None:
    of = metric(13, num_cohorts=512)
    reports = Reports(of, [511, 0], [[1, 31], [2, 0]], ["2013-01-02", "2013-01-01"])
    write_reports(reports, tmp_path / "r.parquet")
    about = json.loads(pq.read_schema(tmp_path / "r.parquet").metadata[b"hubbub"])
    assert (about["format"], about["counts"], about["periods"]) == (
        "hubbub-summary/1",
        "reports",
        ["2013-01-01", "2013-01-02"],
    )
    assert read_reports(tmp_path / "r.parquet") == reports
    file = ReportFile(tmp_path / "r.parquet")
    assert (file.metric, file.num_reports, file.periods) == (of, 2, reports.periods)
    assert file.bit_counts().periods == reports.periods


def test_rejects_summary_as_reports_and_reports_as_summary(tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    path.write_bytes(summary_to_bytes(BitCounts.empty(metric(13))))
    with pytest.raises(SummaryError, match=r"file\.parquet: the file contains bit-counts, not reports"):
        read_reports(path)
    write_reports(Reports.empty(metric(13)), path)
    with pytest.raises(SummaryError, match=r"file\.parquet: the file contains reports, not a summary"):
        read_summary(path)


def test_rejects_pattern_counts_of_more_than_16_bits() -> None:
    with pytest.raises(SummaryError, match="pattern counts need num_bits <= 16, got 17"):
        Reports.empty(metric(17)).pattern_counts()


def test_reading_and_writing_in_blocks_bounds_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """160,000 reports of 128 bytes (20 MB) in blocks of 2,000 need at most a fifth of the memory."""
    monkeypatch.setattr(report_file_module, "BLOCK_REPORTS", 2_000)
    of = metric(1024)
    block = np.random.default_rng(1).integers(0, 256, (2_000, 128), np.uint8)
    path = tmp_path / "many.parquet"
    before = pa.total_allocated_bytes()
    peak = 0
    with path.open("wb") as sink, ReportWriter(sink, of) as writer:
        for _ in range(80):
            writer.write(np.zeros(2_000, np.uint8), block)
            peak = max(peak, pa.total_allocated_bytes() - before)
    tracemalloc.start()
    counted = 0
    for cohorts, _ in ReportFile(path).blocks():
        counted += len(cohorts)
        peak = max(peak, pa.total_allocated_bytes() - before)
    peak += tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert counted == 160_000
    assert peak < 4_000_000


def rewritten(about: dict[str, Any] | None = None, columns: dict[str, Any] | None = None) -> bytes:
    table = pq.read_table(io.BytesIO(reports_to_bytes(Reports(metric(13), [0, 3], [[1, 31], [2, 0]]))))
    metadata = json.loads(table.schema.metadata[b"hubbub"])
    for name, values in (columns or {}).items():
        table = table.set_column(table.schema.get_field_index(name), name, values)
    sink = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({"hubbub": json.dumps({**metadata, **(about or {})})}), sink)
    return sink.getvalue()


def bits(*rows: bytes | None, width: int = 2) -> pa.Array:
    return pa.array(rows, pa.binary(width))


NOT_REPORTS = {
    "empty": b"",
    "text": b"hello, world",
    "hollow": b"PAR1" + bytes(100) + b"PAR1",
    "other version": rewritten({"format": "hubbub-summary/9"}),
    "other kind": rewritten({"counts": "word-counts"}),
    "no metric": rewritten({"metric": None}),
    "metric of other bits": rewritten({"metric": metric(24).to_dict()}),
    "metric that lies": rewritten({"metric": {**metric(13).to_dict(), "num_bits": 14}}),
    "fewer cohorts": rewritten({"metric": metric(13, 2).to_dict()}),
    "periods that are none": rewritten({"periods": 7}),
    "cohort beyond": rewritten(columns={"cohort": pa.array([0, 4], pa.uint16())}),
    "cohort missing": rewritten(columns={"cohort": pa.array([0, None], pa.uint16())}),
    "signed cohorts": rewritten(columns={"cohort": pa.array([0, -1], pa.int32())}),
    "padding set": rewritten(columns={"bits": bits(b"\x01\x1f", b"\x00\x20")}),
    "bits missing": rewritten(columns={"bits": bits(b"\x01\x1f", None)}),
    "short rows": rewritten(columns={"bits": bits(b"\x01", b"\x00", width=1)}),
    "rows of any length": rewritten(columns={"bits": pa.array([b"\x01\x1f", b"\x00"], pa.binary())}),
}


@pytest.mark.parametrize("name", NOT_REPORTS)
def test_rejects_other_files_with_their_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / "not.parquet"
    path.write_bytes(NOT_REPORTS[name])
    with pytest.raises(SummaryError) as caught:
        read_reports(path)
    assert str(path) in str(caught.value)


def test_rejects_missing_file_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(SummaryError, match=r"nowhere\.parquet: cannot be read"):
        read_reports(tmp_path / "nowhere.parquet")


def test_truncated_or_changed_file_is_rejected_or_valid() -> None:
    whole = reports_to_bytes(Reports(metric(13), [0, 3] * 50, [[1, 31], [2, 0]] * 50))
    for length in range(0, len(whole), 13):
        with pytest.raises(SummaryError):
            reports_from_bytes(whole[:length])
    for place in range(0, len(whole), 7):
        changed = whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :]
        try:
            reports = reports_from_bytes(changed)
        except SummaryError:
            continue
        assert reports.cohorts.max(initial=0) < reports.metric.num_cohorts


@pytest.mark.parametrize(
    ("cohorts", "rows", "message"),
    [
        ([0], [[0, 0], [0, 0]], r"rows must have shape \(1, 2\), 13 bits per report, got \(2, 2\)"),
        ([0], [[0]], r"rows must have shape \(1, 2\), 13 bits per report, got \(1, 1\)"),
        ([[0]], [[0, 0]], "cohorts must|rows"),
        ([4], [[0, 0]], "cohorts must be below 4, got 4"),
        ([-1], [[0, 0]], "cohorts must not be negative"),
        ([0.5], [[0, 0]], "cohorts must be integers"),
        ([0], [[0, 32]], "the last 3 bits of each report of 13 bits must be 0"),
        ([0], [[0, 256]], "rows must be integers from 0 to 255"),
        ([0], [[0.0, 1.0]], "rows must be integers from 0 to 255"),
    ],
)
def test_rejects_arrays_that_do_not_fit_the_parameters(cohorts: Any, rows: Any, message: str) -> None:
    with pytest.raises(SummaryError, match=message):
        Reports(metric(13), cohorts, rows)


def test_rejects_sum_of_different_definitions() -> None:
    with pytest.raises(SummaryError, match="different definitions cannot be added"):
        Reports.empty(metric(13)) + Reports.empty(metric(14))


def test_implausible_rejected_is_kept_in_files_and_sums() -> None:
    of = metric(12)
    reports = Reports(of, [0, 1], [[1, 0], [2, 0]], implausible_rejected=True)
    for collected in (
        reports,
        ReportFile(io.BytesIO(reports_to_bytes(reports))),
        reports_from_bytes(reports_to_bytes(reports)),
    ):
        assert collected.implausible_rejected
        assert collected.bit_counts().implausible_rejected
        assert collected.pattern_counts().implausible_rejected
    bits, patterns = reports.bit_counts(), reports.pattern_counts()
    for summary in (bits, patterns):
        assert summary_from_bytes(summary_to_bytes(summary)) == summary
    assert patterns.bit_counts().implausible_rejected
    assert (bits + BitCounts.empty(of)).implausible_rejected
    assert (PatternCounts.empty(of) + patterns).implausible_rejected
    assert (Reports.empty(of) + reports).implausible_rejected
    assert not (BitCounts.empty(of) + BitCounts.empty(of)).implausible_rejected


def test_reprs_are_one_line_without_the_data(tmp_path: Path) -> None:
    """Of a million reports a notebook shows one line."""
    of = Metric.string("home", Params(num_bits=8, num_hashes=2, num_cohorts=4, prob_p=0.25, prob_q=0.75, prob_f=0))
    reports = Reports(of, [0, 3, 3], [[1], [2], [7]], ["2026-03-01", "2026-03-02"])
    write_reports(reports, tmp_path / "reports.parquet")
    about = "home: 3 reports, 4 cohorts x 8 bits, 2 periods"
    assert repr(reports) == f"<Reports of {about}>"
    assert repr(reports.bit_counts()) == f"<BitCounts of {about}>"
    assert repr(reports.pattern_counts()) == f"<PatternCounts of {about}>"
    assert repr(ReportFile(tmp_path / "reports.parquet")) == f"<ReportFile of {about}>"
    assert repr(BitCounts.empty(of)) == "<BitCounts of home: 0 reports, 4 cohorts x 8 bits>"
