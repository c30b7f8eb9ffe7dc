"""What the user agreed to: off, local or on; the environment can only take back."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Consent(StrEnum):
    """How far a value may go, from least to most.

    off   : nothing is recorded, kept or sent
    local : drafts and reports are made and kept as with `on`, nothing is sent
    on    : reports are sent
    """

    OFF = "off"
    LOCAL = "local"
    ON = "on"


_NOT_SET = ("", "0", "false", "no")
_ORDER = tuple(Consent)


def allowed_by(environment: Mapping[str, str]) -> Consent:
    """Return the most that the environment allows.

    `DO_NOT_TRACK` set to anything but 0, false or no is `off`; `HUBBUB_CONSENT` is `off`, `local` or `on`, and whatever
    else it says is `off`. One that is empty is not set.

    >>> allowed_by({}), allowed_by({"DO_NOT_TRACK": "1"}), allowed_by({"HUBBUB_CONSENT": "local"})
    (<Consent.ON: 'on'>, <Consent.OFF: 'off'>, <Consent.LOCAL: 'local'>)
    """
    if environment.get("DO_NOT_TRACK", "").strip().lower() not in _NOT_SET:
        return Consent.OFF
    said = environment.get("HUBBUB_CONSENT", "").strip().lower() or Consent.ON
    return Consent(said) if said in _ORDER else Consent.OFF


def lesser(one: Consent, other: Consent) -> Consent:
    """Return which of two lets less go."""
    return min(one, other, key=_ORDER.index)
