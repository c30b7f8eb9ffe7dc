"""Lifetime epsilon of a metric under a policy, and all privacy figures that commands, pages and APIs print.

    unit                 unit of the ledger: an epoch (with `hold`), a distinct value (f > 0), a period's report (f = 0)
    epsilon_enrollment = units_enrollment * epsilon_unit     all reports under one secret
    epsilon_lifetime   = units_lifetime * epsilon_unit       all reports of one client, under every secret that it ever draws

A client draws a new secret when consent is withdrawn and given again, and when the secret is lost. Epochs, and reports without
permanent noise, are independent given the values, so their sum bounds any two histories. The sum over distinct values bounds
only histories that change, and return to earlier values, at the same times (`SamePattern`): docs/explanation/privacy.md, "Limits of epsilon".
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from hubbub.metrics.metric import Metric
from hubbub.privacy.guarantee import SAME_RUNS, AnyRecordings, Guarantee, Observer, Unit, guarantees
from hubbub.privacy.loss import epsilon, epsilon_permanent
from hubbub.privacy.pricing import shown_epsilon, unit_price
from hubbub.wire.json_values import json_value

if TYPE_CHECKING:
    from hubbub.privacy.policy import Policy

_ROUNDING_SLACK = 1e-9
_UNIT_NOUNS = {"epoch": "epoch", "value": "distinct value", "period": "report"}
_UNIT_NOUNS_LIFETIME = _UNIT_NOUNS | {"value": "value"}  # a value counts once in each enrollment
_ANY = AnyRecordings()
_LABELS: dict[Unit, str] = {unit: f"per {unit}" for unit in Unit} | {Unit.LIFETIME: "lifetime"}


class FigureRow(NamedTuple):
    """One line of the figures.

    label   : name of the figure
    epsilon : its value
    note    : what it covers, and the condition of its guarantee
    """

    label: str
    epsilon: float
    note: str

    @property
    def title(self) -> str:
        """Label that stands alone, at the beginning of a line."""
        return "Lifetime epsilon" if self.label == _LABELS[Unit.LIFETIME] else f"Epsilon {self.label}"


@dataclass(frozen=True, slots=True)
class PrivacyFigures:
    """Every epsilon of one metric under one policy.

    Attributes
    ----------
    period
        Reporting period of the metric.
    hold
        Epoch length in periods. None: the permanent response of a value never changes under one secret.
    epsilon_report
        Epsilon of one report.
    epsilon_permanent
        Epsilon of any number of reports drawn from one permanent response; infinite at f = 0.
    unit
        Unit of the ledger: "epoch", "value" or "period".
    epsilon_unit
        Epsilon of one unit.
    units_enrollment
        Units that the policy allows under one secret. 0: the policy blocks the metric.
    epsilon_enrollment
        Epsilon of `units_enrollment` units. It is infinite if the policy blocks the metric, because a client that
        reports it must have another, unknown policy.
    units_lifetime
        Units that the policy allows under all secrets of one client. 0: the policy blocks the metric.
    epsilon_lifetime
        Epsilon of `units_lifetime` units. It is infinite if the policy blocks the metric.
    objection
        Reason why the policy blocks the metric. None: it allows the metric.
    guarantees
        Observer, unit and condition of each epsilon.
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
    guarantees: tuple[Guarantee, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON values.

        Returns
        -------
        dict[str, Any]
            Figures by name. An infinite epsilon is the string "inf".
        """
        figures = {name: getattr(self, name) for name in self.__slots__}
        figures["guarantees"] = [guarantee.to_dict() for guarantee in self.guarantees]
        document: dict[str, Any] = json_value(figures)
        return document

    def of_operator(self) -> dict[Unit, Guarantee]:
        """Return the guarantees towards the operator.

        Returns
        -------
        dict[Unit, Guarantee]
            Guarantee of each unit.
        """
        return {of.unit: of for of in self.guarantees if of.observer is Observer.OPERATOR}

    def rows(self) -> Iterator[FigureRow]:
        """Yield the figures in the order in which commands, pages and APIs print them: what holds whatever is recorded is the first.

        The first note names the observer of all of them, and what their conditions have in common.
        """
        found = self.of_operator()
        rows = [FigureRow(_LABELS[unit], of.epsilon, self._note(of)) for unit, of in found.items()]
        if found[Unit.LIFETIME].is_unconditional:
            rows.insert(0, rows.pop())
        elif self.objection is None:
            rows.insert(
                0, FigureRow(f"of {_ANY.name}", math.inf, f"{_ANY.sentence}: `hold` in the definition gives a bound")
            )
        rows[0] = rows[0]._replace(note=f"{rows[0].note}. All figures: for the {Observer.OPERATOR}, {SAME_RUNS}")
        yield from rows

    def _note(self, guarantee: Guarantee) -> str:
        """Return what the epsilon of a guarantee covers, and its condition."""
        condition, number = guarantee.condition.sentence, guarantee.num_units
        match guarantee.unit:
            case Unit.REPORT:
                drawn = "; no permanent noise" if self.unit == "period" else ""
                return f"odds between two values change {_odds(guarantee.epsilon)}, {condition}{drawn}"
            case Unit.EPOCH:
                drawn = "no permanent noise" if math.isinf(self.epsilon_permanent) else "one permanent response"
                lasts = _count_text(self.hold or 0, self.period)
                return f"hold = {self.hold}: one value and {drawn} for {lasts}, {condition}"
            case Unit.VALUE:
                most = (
                    ""
                    if math.isinf(self.units_enrollment) or self.objection
                    else f", up to V = {self.units_enrollment}"
                )
                return f"{condition}, from one permanent response; V distinct values cost V times as much{most}"
        if self.objection is not None:
            return f"the policy blocks the metric{f': {self.objection}' if guarantee.unit is Unit.LIFETIME else ''}"
        if guarantee.unit is Unit.ENROLLMENT:
            covered = f"one secret, {_up_to(number, _UNIT_NOUNS[self.unit])}"
        else:
            all_secrets = "all enrollments (consent withdrawn and given again, a lost secret)"
            covered = f"{all_secrets}, {_up_to(number, _UNIT_NOUNS_LIFETIME[self.unit])}"
        end = ", then the client sends no more reports" if guarantee.is_unconditional else ""
        return f"{covered}{end}; {condition}"

    def sentence(self) -> str:
        """Return the figures in one line.

        Returns
        -------
        str
            One sentence with the epsilon of a report, of a unit, of an enrollment and of the lifetime, their observer
            and their condition. What holds whatever is recorded is the first.

        Examples
        --------
        >>> from hubbub.privacy.policy import Policy
        >>> from hubbub import UnaryResponse
        >>> two_coins = UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5)
        >>> privacy_figures(Metric.boolean("dark", two_coins, hold=7), Policy()).sentence().rpartition("; ")[0]
        'lifetime epsilon 39.551 (36 epochs) whatever is recorded; epsilon 1.099 per report, 1.099 per epoch (hold = 7), 19.776 per enrollment (18 epochs)'
        >>> privacy_figures(Metric.boolean("survey", two_coins), Policy()).sentence().partition("; ")[0]
        'no epsilon whatever is recorded'
        """
        lifetime = self.of_operator()[Unit.LIFETIME]
        details = {"per epoch": f" (hold = {self.hold})"}
        for label, units in (("per enrollment", self.units_enrollment), ("lifetime", self.units_lifetime)):
            units_text = _count_text(units, _UNIT_NOUNS_LIFETIME[self.unit])
            details[label] = " (the policy blocks the metric)" if self.objection else f" ({units_text})"
        parts = []
        for row in self.rows():
            shown, detail = shown_epsilon(row.epsilon), details.get(row.label, "")
            figure = f"lifetime epsilon {shown}" if row.label == "lifetime" else f"{shown} {row.label}"
            parts.append(figure + detail)
        if self.objection is not None:
            return f"epsilon {', '.join(parts)}; for the {lifetime.observer}, {SAME_RUNS}"
        first = f"{parts[0]} {_ANY.sentence}" if lifetime.is_unconditional else f"no epsilon {_ANY.sentence}"
        same = "" if lifetime.is_unconditional else f"; enrollment and lifetime: {lifetime.condition.sentence}"
        return f"{first}; epsilon {', '.join(parts[1:])}{same}; for the {lifetime.observer}, {SAME_RUNS}"


def privacy_figures(metric: Metric, policy: Policy) -> PrivacyFigures:
    """Return every epsilon of a metric under a policy, and under the metric's own `lifetime_epsilon`.

    Commands, pages and APIs print these figures only.

    Parameters
    ----------
    metric
        Definition of the metric.
    policy
        Policy of the client.

    Returns
    -------
    PrivacyFigures
        Epsilon of a report, of the permanent response, of an enrollment and of the lifetime.
    """
    price, all_of_them = unit_price(metric), guarantees(metric, policy)
    found = {of.unit: of for of in all_of_them if of.observer is Observer.OPERATOR}
    enrollment, lifetime = found[Unit.ENROLLMENT], found[Unit.LIFETIME]
    return PrivacyFigures(
        period=str(metric.period),
        hold=metric.hold,
        epsilon_report=found[Unit.REPORT].epsilon,
        epsilon_permanent=epsilon_permanent(metric),
        unit=price.unit,
        epsilon_unit=price.epsilon,
        units_enrollment=enrollment.num_units,
        epsilon_enrollment=enrollment.epsilon,
        units_lifetime=lifetime.num_units,
        epsilon_lifetime=lifetime.epsilon,
        objection=policy.objection(metric),
        guarantees=all_of_them,
    )


def epsilon_of_reports(metric: Metric, units: int, reports: int) -> float:
    """Return a bound on the privacy loss of reports of one client that the ledger charged with some units.

        sum_j eps(1 + floor((reports - u) / j)), j = 1 .. u = min(units, reports)

    The j-th largest number of reports of one unit is at most that in the brackets, since the others have one report or more. The bound is
    exact if there is one unit, and if each unit has one report. It holds under the condition of an enrollment.

    >>> from hubbub import UnaryResponse
    >>> survey = Metric.boolean("survey", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5))
    >>> epsilon_of_reports(survey, 1, 30) == epsilon(survey, 30), epsilon_of_reports(survey, 0, 0)
    (True, 0.0)
    """
    longest = metric.hold or math.inf
    units = min(units, reports)
    most = (min(1 + (reports - units) // j, longest) for j in range(1, units + 1))
    return math.fsum(epsilon(metric, num_reports) for num_reports in most)


def epsilon_lifetime(metric: Metric, policy: Policy) -> float:
    """Return the epsilon of all reports of a metric that one client ever sends, over all its secrets.

    Parameters
    ----------
    metric
        Definition of the metric.
    policy
        Policy of the client.

    Returns
    -------
    float
        Epsilon in (0, inf]. It is infinite if the policy blocks the metric, because a client that reports it must have
        another, unknown policy.

    Examples
    --------
    >>> from hubbub.privacy.policy import Policy
    >>> from hubbub import UnaryResponse
    >>> monthly = Metric.boolean("dark", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5), hold=1)
    >>> round(math.exp(epsilon_lifetime(monthly, Policy(epsilon_metric=4.4))), 9)  # four epochs of the two-coin survey
    81.0
    """
    return privacy_figures(metric, policy).epsilon_lifetime


def _odds(epsilon: float) -> str:
    """Return the largest factor by which odds can change, as text, rounded up to a tenth.

    >>> _odds(math.log(3)), _odds(math.inf)
    ('by a factor of at most 3', 'without bound')
    """
    if epsilon > math.log(1e6):
        return "without bound" if math.isinf(epsilon) else "by a factor of more than a million"
    return f"by a factor of at most {math.ceil((math.exp(epsilon) - _ROUNDING_SLACK) * 10) / 10:,.10g}"


def _up_to(units: float, noun: str) -> str:
    return f"{'' if math.isinf(units) else 'up to '}{_count_text(units, noun)}"


def _count_text(number: float, noun: str) -> str:
    return f"{'any number of' if math.isinf(number) else f'{number:,.0f}'} {noun}{'' if number == 1 else 's'}"
