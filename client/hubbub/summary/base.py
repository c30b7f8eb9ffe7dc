"""What summaries and reports have in common: one definition, the periods they are of, and that they add up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import SummaryError
from hubbub.metrics.metric import Metric
from hubbub.metrics.params import Params
from hubbub.wire.report import Report


class Collected(ABC):
    """A commutative monoid under `+`: what was made of disjoint reports adds up, in any order, on any machine."""

    metric: Metric
    periods: tuple[str, ...]
    implausible_rejected: bool
    arrays: ClassVar[tuple[str, ...]]
    """The names of what it holds beside."""

    def _hold(
        self, metric: Metric, periods: Iterable[str], implausible_rejected: bool, **arrays: NDArray[Any] | None
    ) -> None:
        """Fill the fields of a frozen dataclass, which were checked."""
        fields = {
            "metric": metric,
            "periods": tuple(sorted(set(periods))),
            "implausible_rejected": implausible_rejected,
            **arrays,
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @classmethod
    @abstractmethod
    def from_rows(
        cls, metric: Metric | Params, cohorts: bytes | NDArray[np.uint8], rows: bytes, periods: Iterable[str] = ()
    ) -> Self:
        """Take wire rows: cohorts (n,) one byte each, rows n x ceil(k / 8) bytes."""

    @classmethod
    def from_reports(cls, metric: Metric | Params, reports: Sequence[Report]) -> Self:
        """Take reports."""
        return cls.from_rows(metric, bytes(r.cohort for r in reports), b"".join(r.to_bytes() for r in reports))

    @classmethod
    def empty(cls, metric: Metric | Params) -> Self:
        """Return the neutral element: no reports."""
        return cls.from_rows(metric, b"", b"")

    def _together(self, other: Self) -> dict[str, Any]:
        """Return what a sum says of itself beside its numbers, if there may be one."""
        if other.metric.digest != self.metric.digest:
            raise SummaryError(
                f"reports of different definitions do not add up: {self.metric.name} {self.metric.digest[:12]} "
                f"and {other.metric.name} {other.metric.digest[:12]}; decode each by itself"
            )
        return {
            "periods": (*self.periods, *other.periods),
            "implausible_rejected": self.implausible_rejected or other.implausible_rejected,
        }

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        return (
            self.metric.digest == other.metric.digest
            and self.periods == other.periods
            and self.implausible_rejected == other.implausible_rejected
            and all(np.array_equal(getattr(self, name), getattr(other, name)) for name in self.arrays)
        )

    __hash__ = None  # type: ignore[assignment]  # arrays inside
