"""JSON representation of infinite numbers and of result objects."""

from __future__ import annotations

import math
from dataclasses import asdict
from datetime import datetime
from enum import StrEnum
from typing import Any


def replace_non_finite(value: Any) -> Any:
    """Return a nested value as JSON has it, in all output: nan, a number that is not determined, is None, and infinity "inf".

    >>> replace_non_finite({"epsilon": [1.5, math.inf, math.nan]})
    {'epsilon': [1.5, 'inf', None]}
    """
    match value:
        case float() if not math.isfinite(value):
            return None if math.isnan(value) else str(value)
        case dict():
            return {key: replace_non_finite(item) for key, item in value.items()}
        case list() | tuple():
            return [replace_non_finite(item) for item in value]
        case _:
            return value


def json_object(result: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as a JSON object: times in ISO 8601, infinity as "inf", nested dataclasses as objects."""
    fields: dict[str, Any] = replace_non_finite(asdict(result, dict_factory=_json_fields))
    return fields


def _json_fields(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: _json_value(value) for name, value in fields}


def _json_value(value: Any) -> Any:
    match value:
        case datetime():
            return value.isoformat(timespec="seconds")
        case StrEnum():
            return str(value)
        case _:
            return value
