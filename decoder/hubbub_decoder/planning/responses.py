"""Probabilities and epochs of the wishes: the best chain, and the length of an epoch where values change.

A client with V values in L periods needs n >= V epochs, each of E = ceil(L / n) periods and lifetime / n. Fewer epochs have more epsilon
each, so the variance falls with n until the epsilon of a report binds alone. The choice is the shortest epoch whose variance is within 1 %
of the longest one's, because a changed value waits for the next epoch.
"""

from __future__ import annotations

import math
from dataclasses import replace

from hubbub.metrics.kinds import KindWord
from hubbub_decoder.array_types import Floats
from hubbub_decoder.errors import PlanError
from hubbub_decoder.planning.law.chain import Chain
from hubbub_decoder.planning.probabilities import Limits, best_chain
from hubbub_decoder.planning.wishes import Wishes, repetition_of

_TOLERANCE = 1.01
_TIE = 0.002
"""Weight of b in the choice of probabilities: of equal variances, a response with few ones identifies a client less."""


def chain_of(wishes: Wishes, share: float, hashes: int = 1, *, symmetric: bool = False) -> Chain:
    """Probabilities with the smallest variance of a share within the wishes, collisions apart."""
    repetition = repetition_of(wishes.periods, wishes.hold)

    def objective(chain: Chain) -> Floats:
        return chain.noise(share, repetition) / hashes * (1 + _TIE * chain.b)

    return best_chain(limits_of(wishes, hashes), objective, symmetric=symmetric)


def noise_of(wishes: Wishes, share: float, chain: Chain, hashes: int = 1) -> float:
    """N T Var of a share, collisions apart."""
    return float(chain.noise(share, repetition_of(wishes.periods, wishes.hold))) / hashes


def choose_hold(wishes: Wishes, share: float) -> tuple[Wishes, str]:
    """Wishes with the best `hold` instead of `values`, and the reason as a sentence.

    wishes : with `lifetime`, `lifetime_periods` and several `values`      share : of which the variance is minimized

    Raises PlanError where a client has more values than periods.
    """
    values, last = wishes.values, wishes.lifetime_periods or wishes.periods
    if values > last:
        raise PlanError(
            f"values = {values} in lifetime_periods = {last}: a client has at most one value in a period. "
            "Pass fewer values, or more lifetime_periods."
        )
    lengths = sorted({math.ceil(last / epochs) for epochs in range(values, last + 1)})
    lengths = [length for length in lengths if math.ceil(last / length) >= values]

    def held(length: int) -> Wishes:
        return replace(wishes, values=1, hold=length)

    def variance(length: int) -> float:
        return noise_of(held(length), share, chain_of(held(length), share))

    longest, shortest = variance(lengths[-1]), variance(1)
    low, high = 0, len(lengths) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if variance(lengths[middle]) <= _TOLERANCE * longest else (middle + 1, high)
    chosen = held(lengths[high])
    why = ""
    if high < len(lengths) - 1:
        why = f"Longer epochs have the same variance within {_TOLERANCE - 1:.0%}. "
    elif high:
        why = f"More epochs leave less epsilon for each: hold = 1 has {shortest / longest:.3g} times this variance. "
    return chosen, (
        f"hold = {chosen.hold} is chosen, {chosen.epochs} epochs: a client needs at least {values} for {values} values in {last} periods. "
        f"{why}A changed value is reported from the next epoch on."
    )


def limits_of(wishes: Wishes, hashes: int = 1) -> Limits:
    """Largest epsilons of a metric whose values set so many bits."""
    num_bits = 1 if wishes.law_kind is KindWord.BOOLEAN else wishes.bits
    limits = Limits(num_bits, (0, hashes), wishes.epsilon)
    unit = wishes.epsilon_unit
    return limits if unit is None else replace(limits, unit=unit, unit_reports=wishes.hold or math.inf)
