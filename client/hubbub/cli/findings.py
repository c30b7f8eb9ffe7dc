"""Findings: what was looked at, what was seen, why it matters, and the next step."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click

_SKEW = timedelta(minutes=1)


class Health(StrEnum):
    """How bad it is: `wrong` does not work, or does harm; a `warning` may be meant."""

    FINE = "fine"
    WARNING = "warning"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, what was seen, why it matters, and the next step."""

    health: Health
    about: str
    what: str
    why: str = ""
    next_step: str = ""


@dataclass(frozen=True, slots=True)
class Checks:
    """Checks that another package registers with `hubbub doctor`.

    options : the command-line options that they take
    run     : (definitions, now, **values of the options) -> findings
    """

    options: Sequence[click.Parameter]
    run: Callable[..., Iterable[Finding]]


def fine(about: str, what: str) -> Finding:
    """Say that all is well."""
    return Finding(Health.FINE, about, what)


def warning(about: str, what: str, why: str, next_step: str) -> Finding:
    """Say what may be meant, and may not."""
    return Finding(Health.WARNING, about, what, why, next_step)


def wrong(about: str, what: str, why: str, next_step: str) -> Finding:
    """Say what must be changed."""
    return Finding(Health.WRONG, about, what, why, next_step)


def clock_before(files: Mapping[Path, datetime], now: datetime) -> Finding:
    """Compare the clock with the times at which files were changed, all of which are past."""
    ahead = {path: changed for path, changed in files.items() if changed > now + _SKEW}
    if not ahead:
        return fine("clock", f"{now:%Y-%m-%d %H:%M} UTC")
    path, changed = max(ahead.items(), key=lambda item: item[1])
    return wrong(
        "clock",
        f"it is {now:%Y-%m-%d %H:%M} UTC, and {path} was changed at {changed:%Y-%m-%d %H:%M}",
        "a report made under a wrong date is refused, or counted in the wrong period",
        "set the clock, and let something keep it (ntp, chrony)",
    )


def changed_at(*paths: Path) -> dict[Path, datetime]:
    """Return when files were changed last, of those that can be seen."""
    seen = (path for path in paths if os.path.exists(path))  # noqa: PTH110  (Path.exists raises where it may not look)
    return {path: datetime.fromtimestamp(path.stat().st_mtime, UTC) for path in seen}
