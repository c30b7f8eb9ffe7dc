"""Figures of the last run of `hubbub publish`, for the textfile collector of Prometheus's node exporter."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from hubbub_decoder.data.output_files import atomic_write
from hubbub_decoder.publishing.plan import PeriodResult, PeriodStatus

_SUCCESS = "hubbub_publish_success_timestamp_seconds"


def write_textfile(path: Path, results: Iterable[PeriodResult], *, ended: float) -> None:
    """Write the figures of a run that ended; the file is replaced in one step.

    A run in which a period failed keeps the time of the last success that the file names.

    results : of all periods      ended : POSIX seconds

    Raises OutputError if the file cannot be written.
    """
    found = list(results)
    statuses = {status: sum(each.status is status for each in found) for status in PeriodStatus}
    days = [each.name.rpartition("/")[2] for each in found if each.status is PeriodStatus.PUBLISHED]
    success = _last_success(path) if statuses[PeriodStatus.FAILED] else ended
    gauges = [
        ("hubbub_publish_end_timestamp_seconds", "End of the last run of hubbub publish.", {"": ended}),
        (_SUCCESS, "End of the last run in which no period failed.", {"": success}),
        (
            "hubbub_publish_newest_period_timestamp_seconds",
            "Start of the newest period that is published.",
            {"": max(map(_seconds, days), default=0.0)},
        ),
        (
            "hubbub_publish_periods",
            "Periods of the last run, by status.",
            {f'{{status="{status}"}}': float(number) for status, number in statuses.items()},
        ),
    ]
    with atomic_write(path) as file:
        for name, meaning, samples in gauges:
            file.write(f"# HELP {name} {meaning}\n# TYPE {name} gauge\n".encode())
            file.writelines(f"{name}{labels} {value!r}\n".encode() for labels, value in samples.items())


def _last_success(path: Path) -> float:
    """Time of the last success that an earlier run wrote; 0: it names none."""
    with suppress(OSError, UnicodeDecodeError):
        found = re.search(rf"^{_SUCCESS} (\d+(?:\.\d+)?)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        return 0.0 if found is None else float(found[1])
    return 0.0


def _seconds(day: str) -> float:
    return datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()
