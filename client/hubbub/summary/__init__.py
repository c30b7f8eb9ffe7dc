"""Mergeable sufficient statistics of reports, and their file.

Needs numpy, and pyarrow for the file (`pip install 'hubbub[decoder]'` or `[aggregator]`); the bare client never imports it.
"""

from __future__ import annotations

from hubbub.summary.bit_counts import BitCounts
from hubbub.summary.parquet import Summary, read_summary, summary_from_bytes, summary_to_bytes, write_summary
from hubbub.summary.pattern_counts import PatternCounts

__all__ = [
    "BitCounts",
    "PatternCounts",
    "Summary",
    "read_summary",
    "summary_from_bytes",
    "summary_to_bytes",
    "write_summary",
]
