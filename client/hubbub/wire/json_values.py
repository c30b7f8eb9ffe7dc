"""JSON representation of infinite numbers."""

from __future__ import annotations

import math
from typing import Any


def replace_non_finite(value: Any) -> Any:
    """Return a nested value with non-finite floats replaced by strings: infinity becomes "inf" in all JSON output.

    >>> replace_non_finite({"epsilon": [1.5, math.inf]})
    {'epsilon': [1.5, 'inf']}
    """
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {key: replace_non_finite(item) for key, item in value.items()}
        case list() | tuple():
            return [replace_non_finite(item) for item in value]
        case _:
            return value
