"""Buckets of an ordinal metric: the numbers that each bit stands for, and the number of a period with several recordings."""

from __future__ import annotations

import math
import struct
import sys
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from numbers import Rational, Real
from typing import Any

from hubbub.errors import DefinitionError, InvalidValueError
from hubbub.metrics.params import MAX_BITS
from hubbub.text import with_article

BUCKET_FIELDS = ("edges", "several", "unit", "representatives", "default", "estimate")
"""Fields of a definition that describe its buckets; `edges` is required."""

MIN_BUCKETS = 2


class Estimand(StrEnum):
    """What is estimated of an ordinal metric: the distribution of its numbers, or their mean alone.

    Attributes
    ----------
    DISTRIBUTION
        Shares of all buckets. A report has one bit for each bucket.
    MEAN
        The mean alone. A report has one bit.
    """

    DISTRIBUTION = "distribution"
    MEAN = "mean"


class Several(StrEnum):
    """Number that stands for a period with several recordings.

    Attributes
    ----------
    ONE
        One of them, each with the same probability.
    SUM
        Their sum.
    MAX
        The largest.
    LAST
        The last.
    """

    ONE = "one"
    SUM = "sum"
    MAX = "max"
    LAST = "last"


@dataclass(frozen=True)
class Buckets:
    """Buckets e_0 <= v < e_1 <= v < ... <= e_k of an ordinal metric. Bit i of a report stands for bucket i.

    Parameters
    ----------
    edges
        e_0 .. e_k, finite and increasing, k from 2 to 1024. Numbers below e_1 belong to the first bucket, and numbers
        from the last but one edge on to the last bucket: the metric measures numbers cut to [e_0, e_k].
    several
        Number that stands for a period with several recordings.
    unit
        Text for tables and plots, such as "ms".
    representatives
        Number that stands for each bucket in means, within its edges. An empty tuple means the middles of the buckets.
    default
        Number that is reported for a period without a recording. None: "no value" is reported.
    estimate
        "mean" needs one bucket e_0 to e_1, and `default`. The one bit of a report shows whether the number reaches a
        threshold of the client, which is uniform on [e_0, e_1] (1BitMean with fixed rounding points).

    Raises
    ------
    DefinitionError
        A field has the wrong type, or the edges do not increase.

    References
    ----------
    Ding, Kulkarni, Yekhanin 2017, "Collecting Telemetry Data Privately", for estimate = "mean".

    Examples
    --------
    >>> Buckets((0, 10, 20)).index_of(10), Buckets((0, 10, 20)).labels
    (1, ('below 10', '10 or more'))
    """

    edges: tuple[float, ...]
    several: Several = Several.ONE
    unit: str = ""
    representatives: tuple[float, ...] = ()
    default: float | None = None
    estimate: Estimand = Estimand.DISTRIBUTION

    def __post_init__(self) -> None:
        for field in ("edges", "representatives"):
            object.__setattr__(self, field, _numbers(field, getattr(self, field)))
        if self.estimate not in tuple(Estimand):
            raise DefinitionError(f"estimate must be one of {', '.join(Estimand)}, got {self.estimate!r}")
        object.__setattr__(self, "estimate", Estimand(self.estimate))
        if self.is_mean:
            self._check_mean()
        elif not MIN_BUCKETS + 1 <= len(self.edges) <= MAX_BITS + 1:
            raise DefinitionError(
                f"edges must be {MIN_BUCKETS + 1} to {MAX_BITS + 1} numbers, got {len(self.edges)}: k buckets have k + 1 edges"
            )
        for left, right in pairwise(self.edges):
            if left >= right:
                raise DefinitionError(f"edges must increase, got {left:.17g} before {right:.17g}: sort them")
        if self.several not in tuple(Several):
            raise DefinitionError(f"several must be one of {', '.join(Several)}, got {self.several!r}")
        object.__setattr__(self, "several", Several(self.several))
        if not isinstance(self.unit, str):
            raise DefinitionError(f"unit must be a text such as 'ms', got {self.unit!r}")
        if self.representatives:
            self._check_representatives()
        if self.default is not None:
            object.__setattr__(self, "default", _numbers("default", [self.default])[0])

    def _check_mean(self) -> None:
        if len(self.edges) != 2:
            raise DefinitionError(
                f"edges must be 2 numbers with estimate = 'mean', got {len(self.edges)}: the smallest and the largest number that the mean "
                "counts. Remove the edges between them, or remove estimate to collect a distribution"
            )
        if self.default is None:
            raise DefinitionError(
                "default is missing, and estimate = 'mean' needs it: one bit cannot show that a period has no value. "
                "Set default = 0 for a counter, or remove estimate"
            )
        if self.representatives:
            raise DefinitionError(
                "representatives were given with estimate = 'mean', which has no buckets: remove them"
            )
        if not math.isfinite(self.edges[1] - self.edges[0]):
            raise DefinitionError(
                f"edges must have a finite distance, got {self.edges[0]:.17g} and {self.edges[1]:.17g}: use a smaller range"
            )

    def _check_representatives(self) -> None:
        if len(self.representatives) != len(self):
            raise DefinitionError(
                f"representatives must be one number for each of the {len(self)} buckets, got {len(self.representatives)}"
            )
        for number, (left, right) in zip(self.representatives, pairwise(self.edges), strict=True):
            if not left <= number <= right:
                raise DefinitionError(
                    f"a representative must be within the edges of its bucket, got {number:.17g} for {left:.17g} to {right:.17g}"
                )

    def __len__(self) -> int:
        return len(self.edges) - 1

    @property
    def is_mean(self) -> bool:
        """Whether the metric estimates the mean alone, from one bit."""
        return self.estimate is Estimand.MEAN

    def fraction(self, number: float) -> float:
        """Return the place of a number in the range, after it is cut to [e_0, e_k].

        >>> Buckets((0, 10), default=0, estimate=Estimand.MEAN).fraction(2.5)
        0.25
        """
        low, high = self.edges[0], self.edges[-1]
        return min(max((number - low) / (high - low), 0.0), 1.0)

    @cached_property
    def _inner(self) -> tuple[float, ...]:
        return self.edges[1:-1]

    def index_of(self, number: float) -> int:
        """Return the position of the bucket that a number belongs to.

        returns : position in [0, k). A number at an edge belongs to the bucket above the edge.
        """
        return bisect_right(self._inner, number)

    @property
    def labels(self) -> tuple[str, ...]:
        """Text of each bit: "below 10", "10 to 20", "20 or more"; "10 to 20" has the numbers with 10 <= v < 20."""
        if self.is_mean:
            return ("at or above the threshold",)
        texts = [format_number(edge) for edge in self._inner]
        return (
            f"below {texts[0]}",
            *(f"{left} to {right}" for left, right in pairwise(texts)),
            f"{texts[-1]} or more",
        )

    @property
    def centers(self) -> tuple[float, ...]:
        """Number that stands for each bucket in means: its representative, or its middle."""
        return self.representatives or tuple(left / 2 + right / 2 for left, right in pairwise(self.edges))

    @property
    def accumulates(self) -> bool:
        """Whether the number of a period depends on all its recordings.

        If so, a number must be kept until the period ends.
        """
        return self.several is not Several.ONE

    def number(self, value: object) -> float:
        """Return a recorded value as a double; raises InvalidValueError."""
        number = finite_number(value)
        if number is None:
            problem = "NaN or an infinity" if isinstance(value, float) else with_article(type(value).__name__)
            raise InvalidValueError(f"an ordinal metric accepts a finite number or None, got {problem}")
        return number

    def combine(self, earlier: float | None, number: float) -> float:
        """Return the number of a period, given the number of its earlier recordings.

        earlier : number of the earlier recordings of the period. None: there are none.
        """
        if earlier is None or self.several is Several.LAST:
            return number
        return max(earlier, number) if self.several is Several.MAX else _saturated(earlier + number)

    def digest_fields(self) -> dict[str, Any]:
        """Return the fields of the metric digest as JSON values."""
        return {
            "default": None if self.default is None else _hex(self.default),
            "edges": [_hex(edge) for edge in self.edges],
            "several": str(self.several),
            "unit": self.unit,
            **self._estimate_field,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values.

        Returns
        -------
        dict[str, Any]
            Fields by name, as `from_dict` reads them.
        """
        return {
            "edges": list(self.edges),
            "several": str(self.several),
            "unit": self.unit,
            "representatives": list(self.representatives),
            "default": self.default,
            **self._estimate_field,
        }

    @property
    def _estimate_field(self) -> dict[str, str]:
        return {"estimate": str(self.estimate)} if self.is_mean else {}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Buckets:
        """Return the buckets of JSON values or of a table in a definitions file.

        Parameters
        ----------
        fields
            Fields by name, as `to_dict` returns them.

        Returns
        -------
        Buckets
            Buckets that are equal to the original ones.

        Raises
        ------
        DefinitionError
            A field is missing or invalid.
        """
        return cls(**{name: fields[name] for name in BUCKET_FIELDS if name in fields})


def finite_number(value: Any) -> float | None:
    """Return a recorded value as the nearest double; None for a bool, NaN, an infinity and anything that is no real number.

    A finite number beyond the largest double becomes the largest double.

    >>> finite_number(10**400) == sys.float_info.max, finite_number(True), finite_number(math.nan)
    (True, None, None)
    """
    decimal = sys.modules.get("decimal")  # imported where a Decimal exists; `import hubbub` stays fast without it
    is_decimal = decimal is not None and isinstance(value, decimal.Decimal)
    if isinstance(value, bool) or not (is_decimal or isinstance(value, Real)):
        return None
    try:
        finite = value.is_finite() if is_decimal else isinstance(value, Rational) or math.isfinite(value)
        return _saturated(float(value)) if finite else None
    except OverflowError:
        return math.copysign(sys.float_info.max, -1 if value < 0 else 1)


def format_number(number: float) -> str:
    """Return the shortest decimal of a double, without ".0".

    >>> format_number(10.0), format_number(0.1), format_number(1e22)
    ('10', '0.1', '1e+22')
    """
    return repr(number).removesuffix(".0")


def _saturated(number: float) -> float:
    limit = sys.float_info.max
    return min(max(number, -limit), limit) + 0.0  # + 0.0 turns -0.0 into 0.0


def _numbers(field: str, given: Sequence[float]) -> tuple[float, ...]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise DefinitionError(f"{field} must be a list of numbers, got {given!r}")
    numbers = [finite_number(number) for number in given]
    if None in numbers:
        raise DefinitionError(f"{field} must be finite numbers, got {given[numbers.index(None)]!r}: leave it out")
    return tuple(number for number in numbers if number is not None)


def _hex(number: float) -> str:
    return struct.pack(">d", number).hex()
