"""Bit counts, pattern counts and reports of one metric, and their Parquet files.

Needs numpy and pyarrow, which the extras `decoder` and `aggregator` install. The SDK never imports this package.
"""

from __future__ import annotations

from hubbub.summary.base import ByteData
from hubbub.summary.bit_counts import BitCounts
from hubbub.summary.counting import CountProfile
from hubbub.summary.pattern_counts import PatternCounts
from hubbub.summary.report_file import (
    ReportBlock,
    ReportFile,
    ReportWriter,
    read_collected,
    read_reports,
    reports_from_bytes,
    reports_to_bytes,
    write_reports,
)
from hubbub.summary.reports import Reports
from hubbub.summary.summary_file import Summary, read_summary, summary_from_bytes, summary_to_bytes, write_summary

__all__ = [
    "BitCounts",
    "ByteData",
    "CountProfile",
    "PatternCounts",
    "ReportBlock",
    "ReportFile",
    "ReportWriter",
    "Reports",
    "Summary",
    "read_collected",
    "read_reports",
    "read_summary",
    "reports_from_bytes",
    "reports_to_bytes",
    "summary_from_bytes",
    "summary_to_bytes",
    "write_reports",
    "write_summary",
]
