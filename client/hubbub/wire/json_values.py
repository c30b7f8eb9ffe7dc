"""JSON representation of results, and results from their JSON representation."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import EnumType
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints


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


def from_json_value(kind: Any, value: Any) -> Any:
    """Return the value of a type from its JSON representation: the inverse of `json_value` for fields of frozen dataclasses.

    kind : float, an enumeration, a dataclass, a class with `from_dict`, `tuple[kind, ...]`, `kind | None`, or a type that JSON has

    >>> from_json_value(tuple[float, ...], [1.5, "inf", None])
    (1.5, inf, nan)
    """
    if kind is float:
        return math.nan if value is None else float(value)
    if get_origin(kind) is tuple:
        return tuple(from_json_value(get_args(kind)[0], item) for item in value)
    if get_origin(kind) is UnionType:
        return None if value is None else from_json_value(get_args(kind)[0], value)
    if isinstance(kind, EnumType):
        return kind(value)
    if hasattr(kind, "from_dict"):
        return kind.from_dict(value)
    if is_dataclass(kind) and isinstance(kind, type):
        types = get_type_hints(kind)
        return kind(**{field.name: from_json_value(types[field.name], value[field.name]) for field in fields(kind)})
    return value
