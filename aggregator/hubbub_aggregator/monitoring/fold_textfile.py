"""Figures of one run of `hubbub fold` as a file for the textfile collector of Prometheus's node exporter.

A run ends before Prometheus could scrape it. The file holds the figures of the last run until the next one replaces it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile


def write_fold_textfile(
    path: Path, results: Iterable[Mapping[str, str | int]], *, ended: float, seconds: float
) -> None:
    """Replace the file in one step.

    results : one for each metric version and period, as `hubbub fold --json` prints them
    ended   : end of the run, POSIX seconds          seconds : its duration

    Raises OSError if the file cannot be written.
    """
    folders, totals = Counter[str]({"folded": 0, "failed": 0}), Counter[str]()
    for each in results:
        folders[str(each["status"])] += 1
        totals.update({name: int(each.get(name, 0)) for name in ("segments", "batches", "repeated")})
    registry = CollectorRegistry(auto_describe=False)
    gauges = {
        "hubbub_fold_end_timestamp_seconds": ("End of the last run of hubbub fold.", ended),
        "hubbub_fold_duration_seconds": ("Duration of the last run of hubbub fold.", seconds),
        "hubbub_fold_segments": ("Segments that the last run folded.", totals["segments"]),
        "hubbub_fold_batches": ("Batches that the last run counted.", totals["batches"]),
        "hubbub_fold_repeated_batches": ("Repeated batches that the last run did not count.", totals["repeated"]),
    }
    for name, (meaning, value) in gauges.items():
        Gauge(name, meaning, registry=registry).set(value)
    by_status = Gauge(
        "hubbub_fold_folders", "Metric versions and periods of the last run, by status.", ["status"], registry=registry
    )
    for status, number in folders.items():
        by_status.labels(status).set(number)
    write_to_textfile(str(path), registry)
