"""Pages of a report directory over the pages of single decodings: one for each metric, and the index."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from hubbub_decoder.batch_decoding.run import Outcome, Status
from hubbub_decoder.batch_decoding.tasks import Task, UnreadableFile
from hubbub_decoder.data.output_files import PAGE, atomic_write
from hubbub_decoder.errors import OutputError
from hubbub_decoder.report.index_page import MetricRow, Problem, render_index
from hubbub_decoder.report.metric_page import PeriodRow, render_metric
from hubbub_decoder.report.rendering import SHARED_SCRIPT, shared_script, shared_scripts

_SHOWN = {Status.DECODED: "OK", Status.UNCHANGED: "OK", Status.SKIPPED: "SKIPPED", Status.FAILED: "FAILED"}


def write_pages(
    out: Path, tasks: Sequence[Task], unreadable: Sequence[UnreadableFile], outcomes: Mapping[str, Outcome]
) -> Path:
    """Write the page of each metric, the index and the shared script; return the path of the index.

    outcomes : by name, of all tasks. A page of a metric is kept if its last line names the same inputs

    Raises OutputError if a page cannot be written, or a result cannot be read.
    """
    _write(out / SHARED_SCRIPT, shared_script())
    metrics: list[MetricRow] = []
    for folder, group in groupby(sorted(tasks, key=_order), key=_folder):
        members = list(group)
        rows = tuple(_period_row(task, outcomes[task.name]) for task in members)
        metrics.append(MetricRow(members[0].metric, f"{folder}/index.html", rows))
        page = out / folder / f"index{PAGE}"
        last_line = _last_line(rows, [outcomes[task.name].fingerprint for task in members])
        if not _ends_with(page, last_line):
            documents = [
                _read(out / f"{task.name}.json") for task, row in zip(members, rows, strict=True) if row.address
            ]
            links = [("All metrics", "../index.html")]
            text = render_metric(members[0].metric, rows, documents, shared_scripts("../"), path=links)
            _write(page, text + last_line)
    problems = [*_problems(metrics), *(Problem(file.name, "FAILED", "", file.reason) for file in unreadable)]
    _write(out / f"index{PAGE}", render_index(metrics, problems, shared_scripts("")))
    return out / f"index{PAGE}"


def _folder(task: Task) -> str:
    return task.name.partition("/")[0]


def _order(task: Task) -> tuple[str, str, tuple[str, ...]]:
    return task.metric.name, _folder(task), task.periods


def _period_row(task: Task, outcome: Outcome) -> PeriodRow:
    period, status = task.name.partition("/")[2], _SHOWN[outcome.status]
    if status != "OK":
        return PeriodRow(period, status, outcome.reason)
    return PeriodRow(
        period, status, "", f"{period}{PAGE}", outcome.num_reports, outcome.num_detected, outcome.num_warnings
    )


def _problems(metrics: Iterable[MetricRow]) -> Iterable[Problem]:
    """Yield each reason of a metric once, with its periods."""
    for row in metrics:
        reasons: dict[tuple[str, str], list[str]] = {}
        for period in row.periods:
            if period.reason:
                reasons.setdefault((period.status, period.reason), []).append(period.period)
        for (status, reason), periods in reasons.items():
            shown = periods[0] if len(periods) == 1 else f"{periods[0]} .. {periods[-1]} ({len(periods)})"
            yield Problem(row.metric.name, status, shown, reason)


def _last_line(rows: Sequence[PeriodRow], fingerprints: Sequence[str]) -> str:
    """Comment with the digest of all that a metric's page depends on: a run that was killed left the older page."""
    inputs = json.dumps([[asdict(row) for row in rows], fingerprints])
    return f"\n<!-- inputs {hashlib.sha256(inputs.encode()).hexdigest()} -->\n"


def _ends_with(page: Path, last_line: str) -> bool:
    try:
        return page.read_bytes().endswith(last_line.encode())
    except OSError:
        return False


def _read(path: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError):
        raise OutputError(f"{path} is damaged. Delete it, and run `hubbub report` again.") from None
    return document


def _write(path: Path, text: str) -> None:
    """Write a file unless it has this content already."""
    data = text.encode()
    with suppress(OSError):
        if path.read_bytes() == data:
            return
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(data)
