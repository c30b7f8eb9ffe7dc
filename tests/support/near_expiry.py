"""Definitions of the documentation, with an expiry that is near on the day of the test."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_HALF_A_YEAR = timedelta(days=182)


def with_near_expiry(definitions: str) -> str:
    """Return a definitions text in which every metric expires half a year from today; the text itself becomes old."""
    day = datetime.now(UTC).date() + _HALF_A_YEAR
    text, replaced = re.subn(r"^expires = \d{4}-\d\d-\d\d$", f"expires = {day}", definitions, flags=re.MULTILINE)
    assert replaced, "the definitions have no expiry"
    return text
