"""Price of a metric: epsilon of one unit of its budget, and the number of units that fit into an epsilon."""

from __future__ import annotations

import math
from typing import NamedTuple

from hubbub.metrics.metric import Metric
from hubbub.privacy.loss import epsilon

ROUNDING_SLACK = 1e-9
"""Slack of comparisons of epsilons, so that rounding of floats never costs a unit."""


class Price(NamedTuple):
    """Unit that the ledger charges (each distinct `value`, each `epoch`, or each `period`) and its epsilon."""

    unit: str
    epsilon: float


def unit_price(metric: Metric) -> Price:
    """Return the unit that the ledger charges for a metric, and its epsilon.

    - hold = E:         each epoch costs eps(E)
    - no hold, f > 0:   each distinct value costs `epsilon_permanent`, for any number of reports
    - no hold, f = 0:   each report costs eps(1), because there is no permanent response

    A value is what `encoding.bloom.ValueKey` distinguishes: a string, a category, a bucket. For a joint metric it is the combination of
    its parts' values, because the client draws the permanent bits of all parts again when one part's value changes.

    permanent_p = 0 or permanent_q = 1 with permanent noise: a value has no bound, because t correlated reports can cost more than
    t eps(1).

    >>> from hubbub import UnaryResponse
    >>> two_coins = unit_price(Metric.boolean("two_coins", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5)))
    >>> two_coins.unit, round(math.exp(two_coins.epsilon), 9)
    ('value', 3.0)
    >>> unit_price(Metric.boolean("unmemoized", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0))).unit
    'period'
    """
    unit = "epoch" if metric.hold is not None else "value" if math.isinf(metric.reports_per_unit) else "period"
    return Price(unit, epsilon(metric, metric.reports_per_unit))


def affordable_units(epsilon: float, price: float) -> float:
    """Return the largest number of units with a total price of at most epsilon.

    >>> affordable_units(20.0, 4.39), affordable_units(math.inf, math.inf), affordable_units(-1.0, 2.0)
    (4, inf, 0)
    """
    if epsilon == math.inf:
        return math.inf
    return max(0, math.floor((epsilon + ROUNDING_SLACK) / price))


def cost_text(unit: str, epsilon: float) -> str:
    """Return the epsilon of one report or unit in words.

    >>> cost_text("value", 4.3944), cost_text("report", math.inf)
    ('a value costs epsilon = 4.395', "a report's epsilon is unbounded")
    """
    name = f"{'an' if unit[0] in 'aeiou' else 'a'} {unit}"
    return (
        f"{name}'s epsilon is unbounded" if math.isinf(epsilon) else f"{name} costs epsilon = {shown_epsilon(epsilon)}"
    )


def shown_epsilon(epsilon: float) -> str:
    """Return an epsilon with three decimals, rounded up so that a printed bound is never below the epsilon.

    >>> shown_epsilon(4.3944), shown_epsilon(4.3940000001), shown_epsilon(2.0), shown_epsilon(math.inf)
    ('4.395', '4.395', '2.000', 'no bound')
    """
    from decimal import ROUND_CEILING, Context, Decimal

    if math.isinf(epsilon):
        return "no bound"
    rounding_up = Context(prec=400, rounding=ROUND_CEILING)
    return f"{Decimal(repr(float(epsilon))).quantize(Decimal('0.001'), context=rounding_up):f}"
