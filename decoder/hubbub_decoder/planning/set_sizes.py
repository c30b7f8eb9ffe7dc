"""How many items clients have: what a plan of whole sets knows about its population."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

from hubbub.errors import ParameterError
from hubbub.number_checks import check_integer, check_number

KEPT = 0.95
"""Least part of all items of the clients that their reports stand for."""
_ROUNDING = 0.01  # of percentages


@dataclass(frozen=True, slots=True)
class SetSizes:
    """Numbers of items that clients have, and the part of the clients with each.

    sizes : ascending, the last above 0      parts : above 0, with the sum 1
    """

    sizes: tuple[int, ...]
    parts: tuple[float, ...]

    @classmethod
    def of(cls, own: int | Mapping[int, float]) -> SetSizes:
        """Return the sizes of `Wishes.own`; raises ParameterError for anything but a number, or parts of the clients by number.

        >>> str(SetSizes.of({20: 0.2, 2: 0.3, 5: 0.5})), str(SetSizes.of(8))
        ('2=30%,5=50%,20=20%', '8')
        """
        if not isinstance(own, Mapping):
            check_integer("own", own, 1, hint="pass `own = 1` or more.")
            return cls((own,), (1.0,))
        for size, part in own.items():
            check_integer("own", size, 0, hint="a client has so many items. Pass 5 with the part .5, for example.")
            check_number("own", part, "[0, 1]", hint=f"it is the part of the clients with {size} items.")
        total = math.fsum(own.values())
        if abs(total - 1) > _ROUNDING:
            raise ParameterError(
                "own must have parts of the clients that add up to 100 %",
                f"{100 * total:.4g} %: name the part of each size, and of 0 where clients have no items.",
            )
        sizes = tuple(sorted(size for size, part in own.items() if part > 0))
        if not any(sizes):
            raise ParameterError("own must have a size above 0", "0 alone: pass the sizes of clients with items.")
        return cls(sizes, tuple(own[size] / total for size in sizes))

    def __str__(self) -> str:
        if len(self.sizes) == 1:
            return f"{self.sizes[0]}"
        return ",".join(f"{size}={100 * part:.3g}%" for size, part in zip(self.sizes, self.parts, strict=True))

    @property
    def largest(self) -> int:
        """Largest size."""
        return self.sizes[-1]

    @property
    def max_items(self) -> int:
        """m, the smallest number with which reports stand for 95 % of all items; the size itself where all clients have the same.

        >>> SetSizes.of({4: 0.4, 8: 0.55, 12: 0.05}).max_items, SetSizes.of({2: 0.3, 5: 0.5, 20: 0.2}).max_items
        (8, 19)
        """
        if len(self.sizes) == 1:
            return self.largest
        return bisect_left(range(self.largest), KEPT * self.reported(self.largest), key=self.reported)

    def reported(self, most: int) -> float:
        """Return the mean number of items that reports of at most `most` stand for, E[min(size, m)]; the mean size for the largest."""
        return math.fsum(min(size, most) * part for size, part in zip(self.sizes, self.parts, strict=True))

    def part_above(self, most: int) -> float:
        """Return the part of the clients with more than `most` items."""
        return math.fsum(part for size, part in zip(self.sizes, self.parts, strict=True) if size > most)
