"""Base class of results, for equality."""

from __future__ import annotations

import math
from dataclasses import fields


class Result:
    """Frozen dataclass that compares by its fields, where nan equals nan.

    A subclass is declared with eq=False. A generated `__eq__` compares fields with ==, so from Python 3.13 on a result
    with an undetermined number is unequal to itself.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Result) or other.__class__ is not self.__class__:
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def _values(self) -> tuple[object, ...]:
        """Return the fields, with one object for every nan."""
        values = (getattr(self, field.name) for field in fields(self) if field.compare)  # type: ignore[arg-type]  # subclasses are dataclasses
        return tuple(_NAN if isinstance(value, float) and math.isnan(value) else value for value in values)


_NAN = object()
