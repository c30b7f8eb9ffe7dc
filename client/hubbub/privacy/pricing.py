"""Price of a metric: epsilon of one unit of its budget, and the number of units that fit into an epsilon."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hubbub.metrics.metric import Kind, Metric
from hubbub.privacy.loss import epsilon, epsilon_permanent

ROUNDING_SLACK = 1e-9
"""Slack of comparisons of epsilons, so that float rounding never costs a unit."""


@dataclass(frozen=True, slots=True)
class Price:
    """What a metric is charged for: each distinct `value`, each `epoch` of a hold, or each `period`."""

    unit: str
    epsilon: float


def unit_price(metric: Metric) -> Price:
    """Return what one unit of a metric costs.

    - hold = E: an epoch costs eps(E), and epochs compose
    - no hold, f > 0: a distinct value costs the epsilon of its permanent response, however often it is reported
    - no hold, f = 0: there is no permanent response; every period's report costs eps(1)

    >>> two_coins = unit_price(Metric.boolean("two_coins", prob_p=0, prob_q=1, prob_f=0.5))
    >>> two_coins.unit, round(math.exp(two_coins.epsilon), 9)
    ('value', 3.0)
    >>> unit_price(Metric.boolean("unmemoized", prob_p=0.25, prob_q=0.75, prob_f=0)).unit
    'period'
    """
    if metric.hold is not None:
        return Price("epoch", epsilon(metric.params, metric.hold))
    permanent = epsilon_permanent(metric.params)
    if math.isfinite(permanent):
        return Price("value", permanent)
    return Price("period", epsilon(metric.params))


def affordable_units(epsilon: float, price: float) -> float:
    """Return how many units of a price fit into an epsilon.

    >>> affordable_units(20.0, 4.39), affordable_units(math.inf, math.inf), affordable_units(-1.0, 2.0)
    (4, inf, 0)
    """
    if epsilon == math.inf:
        return math.inf
    return max(0, math.floor((epsilon + ROUNDING_SLACK) / price))


def distinct_values(metric: Metric) -> float:
    """Return how many values, "no value" among them, look different before any noise.

    >>> distinct_values(Metric.boolean("survey", prob_p=0, prob_q=1, prob_f=0.5))
    2
    """
    match metric.kind:
        case Kind.BOOLEAN:
            return 2
        case Kind.CATEGORICAL:
            return len(metric.categories) + 1
        case _:
            return math.inf


def shown_epsilon(epsilon: float) -> str:
    """Write an epsilon with three decimals, rounded up: a printed bound is never below the real one.

    >>> shown_epsilon(4.3944), shown_epsilon(2.0), shown_epsilon(math.inf)
    ('4.395', '2.000', 'no bound')
    """
    if math.isinf(epsilon):
        return "no bound"
    return f"{math.ceil((epsilon - ROUNDING_SLACK) * 1000) / 1000:.3f}"
