"""Lifetime epsilon of a metric under a policy, and all privacy figures that commands, pages and APIs print.

    unit                 what the ledger charges: an epoch (with `hold`), a distinct value (f > 0), a period's report (f = 0)
    epsilon_enrollment = units_enrollment * epsilon_unit     all reports under one secret
    epsilon_lifetime   = units_lifetime * epsilon_unit       all reports of one client, under every secret that it ever draws

A client draws a new secret when consent is withdrawn and given again, and when the secret is lost. Epochs and reports without
permanent noise are independent given the values, so their sum bounds any two histories. Distinct values bound two histories that
change at the same times only: docs/privacy.md, "What eps does not bound".
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hubbub.metrics.metric import Metric
from hubbub.privacy.loss import epsilon, epsilon_permanent
from hubbub.privacy.pricing import affordable_units, distinct_values, shown_epsilon, unit_price
from hubbub.wire.json_values import replace_non_finite

if TYPE_CHECKING:
    from hubbub.privacy.policy import Policy

_FLOAT_NOISE = 1e-9
_COUNTED = {"epoch": "epoch", "value": "distinct value", "period": "report"}
_COUNTED_LIFETIME = _COUNTED | {"value": "value"}  # a value counts once in each enrollment
_NO_RESPONSE = "no permanent response (f = 0)"
_SILENCE = "then the client sends no more reports"


@dataclass(frozen=True, slots=True)
class FigureRow:
    """One line of the figures: what it is per, its epsilon, and the condition under which it holds."""

    label: str
    epsilon: float
    note: str


@dataclass(frozen=True, slots=True)
class PrivacyFigures:
    """Every epsilon of one metric under one policy.

    period, hold       : of the metric; hold None: the permanent response of a value never changes under one secret
    epsilon_report     : of one report
    epsilon_permanent  : of one permanent response, however many reports are drawn from it; infinite at f = 0
    unit, epsilon_unit : what the ledger charges, `epoch`, `value` or `period`, and its epsilon
    units_enrollment   : units that the policy allows under one secret; 0 where it refuses the metric
    units_lifetime     : units that the policy allows under all secrets of one client; 0 where it refuses the metric
    epsilon_enrollment, epsilon_lifetime : these units' epsilon. Infinite where the policy refuses the metric: a client that
                         sends it nevertheless has another policy, which is not known here
    objection          : why the policy refuses the metric, or None
    """

    period: str
    hold: int | None
    epsilon_report: float
    epsilon_permanent: float
    unit: str
    epsilon_unit: float
    units_enrollment: float
    epsilon_enrollment: float
    units_lifetime: float
    epsilon_lifetime: float
    objection: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON can hold them: no bound is the string "inf"."""
        figures: dict[str, Any] = replace_non_finite({name: getattr(self, name) for name in self.__slots__})
        return figures

    def rows(self) -> Iterator[FigureRow]:
        """Yield the figures in the order in which every surface prints them."""
        odds = f"odds between two values change {_odds(self.epsilon_report)}"
        yield FigureRow("per report", self.epsilon_report, odds if self.unit != "period" else f"{odds}; {_NO_RESPONSE}")
        if self.unit == "epoch":
            drawn = _NO_RESPONSE if math.isinf(self.epsilon_permanent) else "one permanent response"
            lasts = _counted(self.hold or 0, self.period)
            yield FigureRow("per epoch", self.epsilon_unit, f"hold = {self.hold}: one value and {drawn} for {lasts}")
        if self.unit == "value":
            most = "" if math.isinf(self.units_enrollment) or self.objection else f", up to V = {self.units_enrollment}"
            stays = "while the value stays: any number of reports from one permanent response"
            yield FigureRow("per value", self.epsilon_unit, f"{stays}; V distinct values cost V times as much{most}")
        if self.objection is not None:
            yield FigureRow("per enrollment", math.inf, "the policy refuses the metric")
            yield FigureRow("lifetime", math.inf, f"the policy refuses the metric: {self.objection}")
            return
        last = (
            '"no value" is one; between histories that change at the same times' if self.unit == "value" else _SILENCE
        )
        counted = _up_to(self.units_enrollment, _COUNTED[self.unit])
        yield FigureRow("per enrollment", self.epsilon_enrollment, f"one secret, {counted}; {last}")
        counted = _up_to(self.units_lifetime, _COUNTED_LIFETIME[self.unit])
        all_secrets = "all enrollments (consent withdrawn and given again, a lost secret)"
        yield FigureRow("lifetime", self.epsilon_lifetime, f"{all_secrets}, {counted}")

    def sentence(self) -> str:
        """Return the figures in one line.

        >>> from hubbub.privacy.policy import Policy
        >>> privacy_figures(Metric.boolean("dark", prob_p=0, prob_q=1, prob_f=0.5, hold=7), Policy()).sentence()
        'epsilon 1.099 per report, 1.099 per epoch (hold = 7), 19.776 per enrollment (18 epochs), lifetime epsilon 39.551 (36 epochs)'
        """
        details = {"per epoch": f" (hold = {self.hold})"}
        for label, units in (("per enrollment", self.units_enrollment), ("lifetime", self.units_lifetime)):
            units_text = _counted(units, _COUNTED_LIFETIME[self.unit])
            details[label] = " (the policy refuses the metric)" if self.objection else f" ({units_text})"
        parts = []
        for row in self.rows():
            shown, detail = shown_epsilon(row.epsilon), details.get(row.label, "")
            figure = f"lifetime epsilon {shown}" if row.label == "lifetime" else f"{shown} {row.label}"
            parts.append(figure + detail)
        return f"epsilon {', '.join(parts)}"


def privacy_figures(metric: Metric, policy: Policy) -> PrivacyFigures:
    """Return every epsilon of a metric under a policy: the one source of what commands, pages and APIs print."""
    price, objection = unit_price(metric), policy.objection(metric)
    lifetime: float = 0
    enrollment: float = 0
    if objection is None:
        lifetime = min(
            affordable_units(policy.epsilon_metric, price.epsilon),
            affordable_units(policy.epsilon_total, price.epsilon),
        )
        enrollment = min(lifetime, affordable_units(policy.epsilon_enrollment, price.epsilon))
        if price.unit == "value":
            enrollment = min(enrollment, distinct_values(metric))
    return PrivacyFigures(
        period=str(metric.period),
        hold=metric.hold,
        epsilon_report=epsilon(metric.params),
        epsilon_permanent=epsilon_permanent(metric.params),
        unit=price.unit,
        epsilon_unit=price.epsilon,
        units_enrollment=enrollment,
        epsilon_enrollment=enrollment * price.epsilon if enrollment else math.inf,
        units_lifetime=lifetime,
        epsilon_lifetime=lifetime * price.epsilon if lifetime else math.inf,
        objection=objection,
    )


def epsilon_lifetime(metric: Metric, policy: Policy) -> float:
    """Return the epsilon of all reports that one client ever sends of a metric under a policy, under all its secrets.

    Infinite where the policy refuses the metric: a client that sends it has another policy.

    >>> from hubbub.privacy.policy import Policy
    >>> monthly = Metric.boolean("dark", prob_p=0, prob_q=1, prob_f=0.5, hold=1)
    >>> round(math.exp(epsilon_lifetime(monthly, Policy(epsilon_metric=4.4))), 9)  # four epochs of the two-coin survey
    81.0
    """
    return privacy_figures(metric, policy).epsilon_lifetime


def _odds(epsilon: float) -> str:
    """Return in words by how much odds can change, rounded up to a tenth.

    >>> _odds(math.log(3)), _odds(math.inf)
    ('at most 3 times', 'without bound')
    """
    if epsilon > math.log(1e6):
        return "without bound" if math.isinf(epsilon) else "more than a million times"
    return f"at most {math.ceil((math.exp(epsilon) - _FLOAT_NOISE) * 10) / 10:,.10g} times"


def _up_to(units: float, noun: str) -> str:
    return f"{'' if math.isinf(units) else 'up to '}{_counted(units, noun)}"


def _counted(number: float, noun: str) -> str:
    return f"{'any number of' if math.isinf(number) else f'{number:,.0f}'} {noun}{'' if number == 1 else 's'}"
