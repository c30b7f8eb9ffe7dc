"""Definition of a planned metric: probabilities rounded within the epsilons, and the TOML text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from hubbub.mechanisms.mechanism import Mechanism
from hubbub.mechanisms.probability import DYADIC_DIGITS
from hubbub.metrics.buckets import format_number
from hubbub.metrics.metric import Metric
from hubbub.metrics.rules import PLACEHOLDER

PLACEHOLDER_DESCRIPTION = f"{PLACEHOLDER}: what the metric collects, in words for its users"
PLACEHOLDER_OWNER = f"{PLACEHOLDER}: address of the person or team that answers questions"


def toml_lines(metric: Metric) -> Iterator[str]:
    """Yield the lines of a [[metric]] table; `hubbub metrics check` accepts them if the metric has `expires`, and no placeholder.

    Without `expires`, a comment stands in its place.
    """
    yield "[[metric]]"
    for field in ("name", "kind", "description", "owner"):
        yield f"{field} = {_toml_string(getattr(metric, field))}"
    fields = metric.kind.to_table()
    discover = fields.pop("discover", {})
    yield from (f"{field} = {_toml_value(value)}" for field, value in fields.items())
    yield from _mechanism_lines(metric.params.mechanism)
    yield f"period = {_toml_string(metric.period)}"
    if metric.hold is not None:
        yield f"hold = {metric.hold}"
    if metric.lifetime_epsilon is not None:
        yield f"lifetime_epsilon = {format_number(metric.lifetime_epsilon)}"
    if metric.group is not None:
        group = metric.group
        yield f"group = {{ name = {_toml_string(group.name)}, values = {_toml_value(group.values)} }}"
    yield "# expires = YYYY-MM-DD" if metric.expires is None else f"expires = {metric.expires}"
    if discover:
        yield "\n[metric.discover]"
        yield from (f"{field} = {_toml_value(value)}" for field, value in discover.items())


def _mechanism_lines(mechanism: Mechanism) -> Iterator[str]:
    for field, value in {**mechanism.word_field, **mechanism.fields}.items():
        yield f"{field} = {shortest_decimal(value) if isinstance(value, float) else _toml_value(value)}"


def shortest_decimal(probability: float) -> str:
    """Shortest decimal that rounds to the same multiple of 2**-24.

    >>> shortest_decimal(0.5), shortest_decimal(1999 / 2**24)
    ('0.5', '0.00011915')
    """
    wanted = round(probability * (1 << DYADIC_DIGITS))
    for digits in range(1, 17):
        text = f"{probability:.{digits}f}"
        if round(float(text) * (1 << DYADIC_DIGITS)) == wanted:
            return text
    return repr(probability)


def _toml_value(value: str | float | Sequence[str | float]) -> str:
    """Text, number, or list of texts or numbers."""
    if isinstance(value, str):
        return _toml_string(value)
    if isinstance(value, Sequence):
        return f"[{', '.join(map(_toml_value, value))}]"
    return format_number(value)


def _toml_string(text: str) -> str:
    """Basic string of TOML, which escapes as JSON does."""
    return json.dumps(str(text), ensure_ascii=False).replace("\x7f", "\\u007f")
