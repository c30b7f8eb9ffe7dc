"""JSON representation of results."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any


def json_value(value: Any) -> Any:
    """Return a nested value as JSON has it: a dataclass is an object of its fields, and a time is text in ISO 8601.

    A number that is not determined (nan) is None, and an infinite one the text "inf", in all output.

    >>> json_value({"epsilon": (1.5, math.inf, math.nan)})
    {'epsilon': [1.5, 'inf', None]}
    """
    match value:
        case float():
            return value if math.isfinite(value) else None if math.isnan(value) else str(value)
        case str():
            return str(value)
        case dict():
            return {key: json_value(item) for key, item in value.items()}
        case list() | tuple():
            return [json_value(item) for item in value]
        case datetime():
            return value.isoformat(timespec="seconds")
        case _ if is_dataclass(value):
            return {field.name: json_value(getattr(value, field.name)) for field in fields(value)}
        case _:
            return value
