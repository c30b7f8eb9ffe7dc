"""PrivSet with the smallest variance within the wished epsilons.

For given k, m and w the best t is the largest within the epsilon, because a smaller one is the same report followed by more noise. So w alone is
searched. The variance of a small share first falls with w and then grows, so the search ends where it grows. That of a large share falls for longer:
of all w with nearly the smallest variance of a small share, the best one for a share of a half is chosen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from hubbub.mechanisms.privset import MAX_VALUES, PrivSet, numbers_of_rows
from hubbub.mechanisms.probability import DYADIC_DIGITS
from hubbub_decoder.planning.set_sizes import KEPT, SetSizes
from hubbub_decoder.planning.wishes import RowPlanner, Wishes

_WORSE = 3  # numbers of ones with a larger variance than is allowed, after which the search ends
_ALLOWED = 1.05  # variance of the share, over the smallest one, for a smaller variance of large shares
_LARGE_SHARE = 0.5
_LARGEST_ODDS = 2.0**DYADIC_DIGITS


class PrivSetPlanner(RowPlanner[PrivSet]):
    """Planner of rows of whole sets."""

    name = "PrivSet, one row for the whole set"

    def best(self, wishes: Wishes, share: float) -> PrivSet | None:
        sizes, m = sizes_of(wishes), max_items_of(wishes)
        if sizes is None:
            return None
        unit = wishes.epsilon_unit
        if unit is not None and wishes.hold is None:
            return None  # each report costs epsilon again
        of_report = wishes.epsilon if unit is None else min(wishes.epsilon, unit / (wishes.hold or 1))
        items = rows_bits(wishes) - m
        # others of a hashed bucket
        touched = share + sizes.reported(m) / items if is_hashed(wishes) else share
        return best_privset(items, m, of_report, touched)

    def notes(self, mechanism: PrivSet, wishes: Wishes) -> Iterator[str]:
        sizes, m = sizes_of(wishes), mechanism.max_items
        if sizes is None or len(sizes.sizes) == 1:
            yield (
                f"A client with more than {m} items reports a random {m} of them, and the reports do not show its size: the share of an item is between "
                f"its estimate and its estimate times (largest size / {m})."
            )
            return
        kept = sizes.reported(m) / sizes.reported(sizes.largest)
        yield f"max_items = {m} is chosen, the smallest number with which reports stand for {KEPT:.0%} of all items of the clients or more: for {kept:.1%}."
        if m < sizes.largest:
            yield (
                f"{sizes.part_above(m):.2g} of the clients have more than {m} items, and report a random {m} of them. The share of an item that all clients "
                f"use alike is {1 / kept:.3g} times its estimate, and that of an item of the largest sets alone {sizes.largest / m:.3g} times."
            )


def sizes_of(wishes: Wishes) -> SetSizes | None:
    """Return the numbers of items that clients have; None if they are not known."""
    return None if wishes.own is None else SetSizes.of(wishes.own)


def max_items_of(wishes: Wishes) -> int:
    """Return m, the number of items that a row stands for; 0 if the numbers of items of clients are not known."""
    sizes = sizes_of(wishes)
    return 0 if sizes is None else sizes.max_items


def is_hashed(wishes: Wishes) -> bool:
    """Return whether items and blanks are too many for a bit each."""
    return wishes.own is not None and wishes.num_candidates + max_items_of(wishes) > MAX_VALUES


def rows_bits(wishes: Wishes) -> int:
    """Return the number of bits of a row, k: a bit for each item and blank, or as many as a row may have."""
    return min(wishes.num_candidates + max_items_of(wishes), MAX_VALUES)


def best_privset(items: int, own: int, epsilon: float, share: float) -> PrivSet | None:
    """Return the mechanism with about the smallest variance of a share; None if a row has too many bits, or no t is within the epsilon.

    items : M      own : m      epsilon : of one report      share : x of the items

    >>> best = best_privset(100, 5, 1.0, 0.01)
    >>> best.num_ones, best.epsilon(105, (), 1) <= 1.0
    (7, True)
    """
    k = items + own
    if not 1 <= own <= items or k > MAX_VALUES:
        return None
    found: list[tuple[float, float, PrivSet]] = []
    least, worse = math.inf, 0
    for num_ones in range(1, k // 2 + 1):
        mechanism = _within(k, own, num_ones, epsilon)
        if mechanism is None:
            break
        variance = _variance(mechanism, share)
        found.append((_variance(mechanism, max(share, _LARGE_SHARE)), variance, mechanism))
        least = min(least, variance)
        worse = worse + 1 if variance > _ALLOWED * least else 0
        if worse == _WORSE:
            break
    allowed = [row for row in found if row[1] <= _ALLOWED * least]
    return min(allowed, key=lambda row: row[0])[2] if allowed else None


def _variance(mechanism: PrivSet, share: float) -> float:
    """Variance of a share times the number of clients."""
    p, q = mechanism.prob_p, mechanism.prob_q
    return (share * q * (1 - q) + (1 - share) * p * (1 - p)) / (q - p) ** 2


def _within(num_values: int, max_items: int, num_ones: int, epsilon: float) -> PrivSet | None:
    """Mechanism with the largest t within the epsilon, rounded down; None if there is none above that of random rows."""
    touching, missing = numbers_of_rows(num_values, max_items, num_ones)
    if touching > _LARGEST_ODDS * missing:
        return None
    odds = math.exp(min(epsilon, 50.0)) * (touching / missing)
    hit = math.ldexp(
        min(math.floor(math.ldexp(odds / (1 + odds), DYADIC_DIGITS)), 2**DYADIC_DIGITS - 1), -DYADIC_DIGITS
    )
    if hit <= touching / (touching + missing):
        return None
    mechanism = PrivSet(num_values=num_values, max_items=max_items, num_ones=num_ones, prob_hit=hit)
    return mechanism if mechanism.epsilon(num_values, (), 1) <= epsilon else None
