"""Search for the prefix lengths, the held-out share and the number of bits of a metric with `discover`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from hubbub.errors import DefinitionError
from hubbub.metrics.discovery import MAX_STEP, Discovery
from hubbub_decoder.errors import PlanError
from hubbub_decoder.planning.law.discovery import DiscoveryAccuracy
from hubbub_decoder.planning.sizes import BITS, TOLERANCE

_HELD_OUT = (0.05, 0.1, 0.15, 0.2)
_POWER = 0.8


def best_groups(
    longest: int, alphabet: str | None, cohorts: int, most_bits: int, law: Callable[[int, Discovery], DiscoveryAccuracy]
) -> tuple[int, Discovery]:
    """Number of bits and groups with the smallest share that is found with probability .8.

    Lengths are compared with a tenth of the cohorts held out, then the held-out shares. Of the numbers of bits within 1 % of the best,
    the plan takes the fewest.

    law : accuracy of a number of bits and groups

    Raises PlanError if the cohorts are too few for any groups, or no string is found.
    """

    def limit(bits: int, groups: Discovery) -> float:
        return law(bits, groups).detection_limit(_POWER)

    sizes = [bits for bits in BITS if bits <= most_bits]
    possible = list(_possible(longest, alphabet, cohorts))
    if not possible:
        raise PlanError(
            f"longest = {longest} with {cohorts} cohorts: each prefix group and the held-out group needs 8 cohorts, and no step has so few "
            "groups and prefixes. Pass a smaller longest, a smaller alphabet, or no central."
        )
    groups = min(possible, key=lambda each: limit(sizes[-1], each))
    held_out = [each for share in _HELD_OUT if _fits(each := replace(groups, held_out=share), cohorts)]
    groups = min(held_out or [groups], key=lambda each: limit(sizes[-1], each))
    best = limit(sizes[-1], groups)
    if best > 1:
        raise PlanError(
            "No string is found with probability 0.8, even of a share of 30 %: the reports of each group are too few. "
            "Pass more reports, a larger epsilon, or a smaller longest."
        )
    return next(bits for bits in sizes if limit(bits, groups) <= TOLERANCE * best), groups


def _possible(longest: int, alphabet: str | None, cohorts: int) -> Iterator[Discovery]:
    """Yield all steps and first lengths that the definition allows."""
    for step in range(1, min(MAX_STEP, longest + 1) + 1):
        for first in range(step, min(MAX_STEP, longest + 1) + 1):
            try:
                groups = Discovery(longest=longest, step=step, first=first, alphabet=alphabet)
            except DefinitionError as error:
                if "prefixes to compare" not in str(error):
                    raise PlanError(f"{error}: pass another longest or alphabet.") from None
                break
            if _fits(groups, cohorts):
                yield groups


def _fits(groups: Discovery, cohorts: int) -> bool:
    try:
        groups.check_cohorts(cohorts)
    except DefinitionError:
        return False
    return True
