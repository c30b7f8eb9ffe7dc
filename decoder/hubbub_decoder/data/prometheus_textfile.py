"""Figures of the last run of a command, for the textfile collector of Prometheus's node exporter."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from hubbub_decoder.data.output_files import atomic_write


@dataclass(frozen=True, slots=True)
class RunFigures:
    """What a run did.

    command : as a part of the names of the figures, such as "publish"
    counted : what `numbers` counts, such as "periods"
    numbers : by status, one of which is "failed"
    newest  : first day of the newest closed period of each metric that has a result; without any, the figure is 0
    ended   : POSIX seconds
    """

    command: str
    counted: str
    numbers: Mapping[str, int]
    newest: Mapping[str, str]
    ended: float

    @property
    def success_name(self) -> str:
        """Name of the figure with the time of the last success."""
        return f"hubbub_{self.command}_success_timestamp_seconds"


def newest_days(results: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Newest first day of each metric; results : metrics and first days.

    >>> newest_days([("dark", "2026-03-03"), ("dark", "2026-03-02"), ("page", "2026-03-02")])
    {'dark': '2026-03-03', 'page': '2026-03-02'}
    """
    newest: dict[str, str] = {}
    for metric, day in results:
        newest[metric] = max(day, newest.get(metric, ""))
    return newest


def write_run_textfile(path: Path, run: RunFigures) -> None:
    """Write the figures of a run that ended; the file is replaced in one step.

    A run with a failure keeps the time of the last success that the file names.

    Raises OutputError if the file cannot be written.
    """
    name, command = f"hubbub_{run.command}", f"hubbub {run.command.replace('_', '-')}"
    success = _last_success(path, run.success_name) if run.numbers["failed"] else run.ended
    gauges = [
        (f"{name}_end_timestamp_seconds", f"End of the last run of {command}.", {"": run.ended}),
        (run.success_name, f"End of the last run of {command} in which nothing failed.", {"": success}),
        (
            f"{name}_newest_period_timestamp_seconds",
            "Start of the newest closed period of each metric that has a result.",
            {f'{{metric="{metric}"}}': _seconds(day) for metric, day in sorted(run.newest.items())} or {"": 0.0},
        ),
        (
            f"{name}_{run.counted}",
            f"{run.counted.capitalize()} of the last run, by status.",
            {f'{{status="{status}"}}': float(number) for status, number in run.numbers.items()},
        ),
    ]
    with atomic_write(path) as file:
        for gauge, meaning, samples in gauges:
            file.write(f"# HELP {gauge} {meaning}\n# TYPE {gauge} gauge\n".encode())
            file.writelines(f"{gauge}{labels} {value!r}\n".encode() for labels, value in samples.items())


def _last_success(path: Path, name: str) -> float:
    """Time of the last success that an earlier run wrote; 0: it names none."""
    with suppress(OSError, UnicodeDecodeError):
        found = re.search(rf"^{name} (\d+(?:\.\d+)?)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        return 0.0 if found is None else float(found[1])
    return 0.0


def _seconds(day: str) -> float:
    return datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()
