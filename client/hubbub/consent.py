"""Consent levels, and what the environment variables allow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Consent(StrEnum):
    """What the user allows, from least to most.

    off   : the client records nothing, keeps nothing but the ledger, and sends nothing
    local : the client makes reports and keeps them on this device, to be inspected; it sends none of them, now or later
    on    : the client sends one report per metric and period, of what was recorded under `on`
    """

    OFF = "off"
    LOCAL = "local"
    ON = "on"


@dataclass(frozen=True, slots=True)
class ConsentRecord:
    """What the user agreed to, and what holds in this process.

    level     : what the user agreed to
    text      : the text that the user read, or its version, as `set_consent` was given it
    time      : when the user first agreed to this level and text; None if nobody was asked
    effective : the lesser of `level` and what this process allows: its environment, and a withdrawal that the disk refused
    """

    level: Consent
    text: str
    time: datetime | None
    effective: Consent


_NOT_SET = ("", "0", "false", "no")
_ORDER = tuple(Consent)


def consent_limit(environment: Mapping[str, str]) -> Consent:
    """Return the most that the environment allows.

    `DO_NOT_TRACK` set to anything but 0, false or no is `off`; `HUBBUB_CONSENT` is `off`, `local` or `on`, and whatever
    else it says is `off`. One that is empty is not set.

    >>> consent_limit({}), consent_limit({"DO_NOT_TRACK": "1"}), consent_limit({"HUBBUB_CONSENT": "local"})
    (<Consent.ON: 'on'>, <Consent.OFF: 'off'>, <Consent.LOCAL: 'local'>)
    """
    if environment.get("DO_NOT_TRACK", "").strip().lower() not in _NOT_SET:
        return Consent.OFF
    said = environment.get("HUBBUB_CONSENT", "").strip().lower() or Consent.ON
    return Consent(said) if said in _ORDER else Consent.OFF


def stricter_consent(one: Consent, other: Consent) -> Consent:
    """Return which of two lets less go."""
    return min(one, other, key=_ORDER.index)
