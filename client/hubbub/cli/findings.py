"""Findings of health checks: health, check, observation, impact, next step."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any

import click

from hubbub.wire.urls import mask_urls

_COLOUR = {"ok": "green", "warning": "yellow", "error": "red"}
_MAX_CLOCK_SKEW = timedelta(minutes=1)


class Health(StrEnum):
    """Result of a check: `error` means broken or harmful, `warning` means unusual but possibly intended."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check.

    check       : name of the check, such as `clock`
    observation : the facts, with the numbers
    impact      : consequence for recording, uploading or decoding; empty if health is `ok`
    next_step   : action that solves the problem; empty if health is `ok`
    """

    health: Health
    check: str
    observation: str
    impact: str = ""
    next_step: str = ""


@dataclass(frozen=True, slots=True)
class Checks:
    """Checks that another package registers with `hubbub doctor`.

    options : command-line options of the checks
    run     : function (definitions, now, values of the options by name) -> findings
    """

    options: Sequence[click.Parameter]
    run: Callable[[Path, datetime, Mapping[str, Any]], Iterable[Finding]]


def ok(check: str, observation: str) -> Finding:
    """Return a finding without a problem."""
    return Finding(Health.OK, check, mask_urls(observation))


def warning(check: str, observation: str, impact: str, next_step: str) -> Finding:
    """Return a finding that may be intended."""
    return Finding(Health.WARNING, check, *map(mask_urls, (observation, impact, next_step)))


def error(check: str, observation: str, impact: str, next_step: str) -> Finding:
    """Return a finding that needs a change."""
    return Finding(Health.ERROR, check, *map(mask_urls, (observation, impact, next_step)))


def print_findings(findings: Iterable[Finding]) -> int:
    """Print each finding with its impact and its next step; return their number."""
    number = 0
    for finding in findings:
        number += 1
        health = click.style(f"{finding.health:8}", fg=_COLOUR[finding.health])
        click.echo(f"{health} {finding.check:12} {finding.observation}")
        for line in filter(None, (finding.impact, finding.next_step and f"-> {finding.next_step}")):
            click.echo(f"{'':8} {'':12}   {line}")
    return number


def check_clock(files: Mapping[Path, datetime], now: datetime) -> Finding:
    """Compare the system clock with modification times of files, which cannot lie in the future.

    files : path -> time of its last change
    """
    future = {path: changed for path, changed in files.items() if changed > now + _MAX_CLOCK_SKEW}
    if not future:
        return ok("clock", f"{now:%Y-%m-%d %H:%M} UTC")
    path, changed = max(future.items(), key=lambda item: item[1])
    return error(
        "clock",
        f"the clock shows {now:%Y-%m-%d %H:%M} UTC, but {path} was changed at {changed:%Y-%m-%d %H:%M}",
        "with a wrong date, reports are refused or counted in the wrong period",
        "set the clock and keep it synchronized (ntp, chrony)",
    )


def modification_times(*paths: Path) -> dict[Path, datetime]:
    """Return the time of the last change of each path that exists and is accessible."""
    existing = (path for path in paths if os.path.exists(path))  # noqa: PTH110  (Path.exists raises without permission)
    return {path: datetime.fromtimestamp(path.stat().st_mtime, UTC) for path in existing}
