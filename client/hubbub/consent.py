"""Consent levels, and the limits that environment variables set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Consent(StrEnum):
    """Consent level of the user, from least to most.

    Attributes
    ----------
    OFF
        The client records nothing, stores only the ledger, and sends nothing.
    LOCAL
        The client creates reports and keeps them on this device for inspection. It never sends them.
    ON
        The client sends one report per metric and period, made from values recorded under `ON`.
    """

    OFF = "off"
    LOCAL = "local"
    ON = "on"


@dataclass(frozen=True, slots=True)
class ConsentRecord:
    """Consent of the user, and the consent level of this process.

    Attributes
    ----------
    level
        Level that the user chose.
    text
        Text that the user read, or its version, as passed to `set_consent`.
    time
        Time at which the user first chose this level and text; None if the user was never asked.
    effective
        The stricter of `level` and the limits of this process: its environment, a pause, and a withdrawal that could
        not be saved.
    paused
        Why this process records, stores and sends nothing, such as "automation (CI)" or "platform (win32)"; empty if it is not
        paused.
    """

    level: Consent
    text: str
    time: datetime | None
    effective: Consent
    paused: str = ""


_FALSE_VALUES = ("", "0", "false", "no")
_LEVELS = tuple(Consent)
_MAX_SHOWN_CHARACTERS = 32


def consent_limit(environment: Mapping[str, str]) -> Consent:
    """Return the highest consent level that the environment variables allow.

    `DO_NOT_TRACK` with any value except 0, false and no means `off`. `HUBBUB_CONSENT` is `off`, `local` or `on`; any other
    value means `off`. An empty variable counts as not set.

    >>> consent_limit({}), consent_limit({"DO_NOT_TRACK": "1"}), consent_limit({"HUBBUB_CONSENT": "local"})
    (<Consent.ON: 'on'>, <Consent.OFF: 'off'>, <Consent.LOCAL: 'local'>)
    """
    if environment.get("DO_NOT_TRACK", "").strip().lower() not in _FALSE_VALUES:
        return Consent.OFF
    level = environment.get("HUBBUB_CONSENT", "").strip().lower() or Consent.ON
    return Consent(level) if level in _LEVELS else Consent.OFF


def consent_variable_warning(environment: Mapping[str, str]) -> str | None:
    """Return a warning about a `HUBBUB_CONSENT` that is not a level, or None.

    >>> consent_variable_warning({"HUBBUB_CONSENT": "yes"}), consent_variable_warning({"HUBBUB_CONSENT": "on"})
    ("HUBBUB_CONSENT='yes' is not off, local or on: off applies", None)
    """
    value = environment.get("HUBBUB_CONSENT", "")
    if value.strip().lower() in ("", *_LEVELS):
        return None
    return f"HUBBUB_CONSENT={value[:_MAX_SHOWN_CHARACTERS]!r} is not off, local or on: off applies"


def stricter_consent(one: Consent, other: Consent) -> Consent:
    """Return the lower of two consent levels."""
    return min(one, other, key=_LEVELS.index)
