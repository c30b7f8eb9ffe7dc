"""Numbers that JSON cannot hold, as every JSON surface writes them."""

from __future__ import annotations

import math
from typing import Any


def replace_non_finite(result: Any) -> Any:
    """Replace the floats that JSON cannot hold; no bound is the string "inf" on every surface.

    >>> replace_non_finite({"epsilon": [1.5, math.inf]})
    {'epsilon': [1.5, 'inf']}
    """
    match result:
        case float() if not math.isfinite(result):
            return str(result)
        case dict():
            return {key: replace_non_finite(value) for key, value in result.items()}
        case list() | tuple():
            return [replace_non_finite(value) for value in result]
        case _:
            return result
