"""`plan`: a metric definition from wishes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from hubbub.metrics.metric import Metric, name_errors
from hubbub.metrics.periods import PeriodKind
from hubbub.privacy.allocation import policy_problems, policy_warnings
from hubbub.privacy.guarantee import guarantee_of_reports
from hubbub.privacy.linkability import LINKABLE_GROUP_SIZE
from hubbub.privacy.policy import Policy
from hubbub.privacy.pricing import shown_epsilon
from hubbub.wire.json_values import json_value
from hubbub_decoder.documents.finding import Finding, Severity
from hubbub_decoder.errors import PlanError
from hubbub_decoder.inference.intervals import DETECTION_POWER
from hubbub_decoder.planning.definition import PLACEHOLDER_DESCRIPTION, PLACEHOLDER_OWNER, toml_lines
from hubbub_decoder.planning.description import Description, describe_accuracy
from hubbub_decoder.planning.law.accuracy import MAX_REPORTS, Accuracy
from hubbub_decoder.planning.probabilities import chain_of, choose_hold, limits_of, noise_of
from hubbub_decoder.planning.wishes import Design, Wishes, planner_for

_ANY_DAY = date(2000, 1, 1)
_PERIODS_OF_A_YEAR = {PeriodKind.DAY: 366, PeriodKind.WEEK: 53, PeriodKind.MONTH: 12}


@dataclass(frozen=True, slots=True)
class Plan:
    """Result of `plan`.

    Attributes
    ----------
    metric
        The definition.
    wishes
        Wishes as they were stated, with `hold` if the plan chose it.
    description
        What the definition buys, at the stated or needed number of reports.
    smallest
        Smallest share that matters.
    reports_needed
        Number of reports of a period that detect the smallest share with probability .9. It is infinite if no number
        does.
    symmetric
        Smallest variance with a symmetric permanent response, divided by the variance of this plan, without
        collisions.
    other
        Smallest variance with another mechanism, such as unary encoding in place of subset selection, divided by the
        variance of this plan. None: the kind has one mechanism.
    notes
        Reasons of the choice, a sentence each.
    warnings
        Limits of the definition, a sentence each.
    """

    metric: Metric
    wishes: Wishes
    description: Description
    smallest: float
    reports_needed: float
    symmetric: float
    other: float | None
    notes: tuple[str, ...]
    warnings: tuple[str, ...]

    def __repr__(self) -> str:
        return repr(self.description).replace("<Description", "<Plan", 1)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The warnings and the notes, with their levels."""
        return (
            *(Finding("limit", text) for text in self.warnings),
            *(Finding("reason", text, severity=Severity.NOTE) for text in self.notes),
        )

    def toml(self) -> str:
        """Return the definition as TOML text.

        Returns
        -------
        str
            A `[[metric]]` table for a definitions file.
        """
        return "\n".join(toml_lines(self.metric)) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """Return the definition and what it buys as JSON values.

        Returns
        -------
        dict[str, Any]
            Fields by name. An infinite number is the string "inf".
        """
        figures: dict[str, Any] = json_value(
            {
                "toml": self.toml(),
                "reports_needed": self.reports_needed,
                "notes": list(self.notes),
                "warnings": list(self.warnings),
            }
        )
        return figures | self.description.to_dict()


def plan(
    wishes: Wishes,
    *,
    name: str = "metric",
    description: str = PLACEHOLDER_DESCRIPTION,
    owner: str = PLACEHOLDER_OWNER,
    categories: Sequence[str] | None = None,
    edges: Sequence[float] | None = None,
    expires: date | None = None,
) -> Plan:
    """Return the definition with the smallest mean variance within the wishes.

    Parameters
    ----------
    wishes
        Requirements of the metric.
    name
        Name of the metric.
    description, owner
        Texts of the definition. `hubbub metrics check` refuses the placeholders.
    categories
        Names of the categories. None: placeholders.
    edges
        Edges of the buckets. None: placeholders.
    expires
        First day without collection. None: the TOML text has a comment to complete.

    Returns
    -------
    Plan
        The definition, what it buys, and the reasons of the choice.

    Raises
    ------
    DefinitionError
        The name, the categories or the edges are none of a metric.
    PlanError
        No definition fulfils the wishes.

    Notes
    -----
    The mean is over half the smallest share that matters and half the candidates, with shares under Zipf's law.
    """
    planner, chosen = planner_for(wishes), list[str]()
    if wishes.chooses_hold:
        wishes, reason = choose_hold(wishes, planner.mean_share(wishes))
        chosen.append(reason)
    design = planner.design(wishes)
    with name_errors(name):
        kind = planner.kind(design, categories=categories, edges=edges)
    fields: dict[str, Any] = {"period": wishes.period, "hold": wishes.hold, "expires": expires}
    fields["lifetime_epsilon"] = wishes.lifetime_epsilon
    metric = Metric(name, kind, **fields, description=description, owner=owner)
    accuracy = planner.accuracy(kind, planner.population(wishes), retained=wishes.retained)
    needed = accuracy.clients_needed(design.smallest)
    if wishes.num_reports is None:
        accuracy = replace(accuracy, clients=needed)
    _check_accuracy(wishes, design.smallest, accuracy)
    planned = Plan(
        metric=metric,
        wishes=wishes,
        description=describe_accuracy(metric, accuracy, wishes.share),
        smallest=design.smallest,
        reports_needed=needed,
        symmetric=_symmetric_noise(wishes, design),
        other=design.other,
        notes=(),
        warnings=(),
    )
    notes = (*chosen, *_notes(planned, design), *planner.advice(wishes, design.smallest, needed))
    return replace(planned, notes=notes, warnings=tuple(_warnings(planned)))


def _check_accuracy(wishes: Wishes, smallest: float, accuracy: Accuracy) -> None:
    """Raise PlanError if no number of reports detects the smallest share, or if no share can be estimated."""
    if math.isinf(accuracy.clients):
        hidden = (
            "the search loses it among the prefixes. Pass a larger `share`, a larger `epsilon`, a smaller `longest`, or a shorter `alphabet`."
            if accuracy.searches
            else f"noise and {wishes.num_candidates:,} candidates hide it. Pass a larger `share`, a larger `epsilon`, or fewer `num_candidates`."
        )
        raise PlanError(f"`share = {smallest:g}` is not detected with {MAX_REPORTS:.0e} reports: {hidden}")
    if not math.isfinite(float(accuracy.variance(0.0))):
        raise PlanError(
            f"{wishes.num_candidates:,} candidates are too many for {wishes.num_reports:,} reports: no share can be estimated. "
            "Pass fewer `num_candidates`, more `num_reports`, or a larger `epsilon`."
        )


def _symmetric_noise(wishes: Wishes, design: Design) -> float:
    """Smallest variance with a symmetric permanent response over that of the design, collisions apart."""
    _, hashes, _ = design.size
    best = chain_of(replace(wishes, epsilon=design.epsilon or wishes.epsilon), design.share, hashes, symmetric=True)
    return noise_of(wishes, design.share, best, hashes) / noise_of(wishes, design.share, design.chain, hashes)


def _notes(planned: Plan, design: Design) -> Iterator[str]:
    """Yield the reasons of the choice: its law, the mechanism, and the permanent response."""
    wishes, unit = planned.wishes, planned.wishes.epsilon_unit
    local = design.epsilon or wishes.epsilon
    yield from planned.description.accuracy.notes()
    if design.epsilon is not None:
        yield f"The central epsilon of {wishes.central:g} leaves epsilon = {design.epsilon:.3g} for a report, not {wishes.epsilon:g}."
    yield from design.reasons
    if design.rows is not None:
        return
    if unit is not None and wishes.hold is None and limits_of(wishes).most_exchanged:
        reach, wanted = math.tanh(unit / 4), math.expm1(local) / (math.exp(local) + 3)
        if wanted > reach:
            yield (
                f"A symmetric permanent response (prob_f) does not reach the variance of optimized unary encoding for one report: "
                f"(e^e1 - 1)/(e^e1 + 3) = {wanted:.3f} is above tanh(einf/4) = {reach:.3f}. "
                "This definition has permanent_p and permanent_q instead."
            )
    if planned.symmetric > 1.01:
        yield f"The best symmetric permanent response (prob_f) has {planned.symmetric:.2f} times this variance."


def _proposed_lifetime(planned: Plan) -> str:
    """Propose room for the wished values under two secrets, or for the epochs or reports of a year; at most the default policy's limit."""
    privacy, hold = planned.description.privacy, planned.metric.hold or 1
    if privacy.unit == "value":
        values = int(min(max(planned.wishes.values, 2), planned.metric.kind.distinct_values))
        wanted, room = 2 * values, f'{values} values, "no value" among them, under each of two secrets'
    else:
        wanted = -(-_PERIODS_OF_A_YEAR[planned.metric.period] // hold)
        room = f"the {wanted} {'epochs' if privacy.unit == 'epoch' else 'reports'} of a year"
    units = min(wanted, int(privacy.units_lifetime))
    limit = math.ceil(units * privacy.epsilon_unit * 1000) / 1000
    if units < wanted:
        room = f"{units} of {room}, after which a client {'repeats its last value' if privacy.unit == 'value' else 'sends no more'}"
    return f"Pass lifetime_epsilon = {limit:.10g}, which has room for {room}"


def _warnings(planned: Plan) -> Iterator[str]:
    """Yield what limits the definition: accuracy, changes, budget, linkability."""
    wishes, metric, law = planned.wishes, planned.metric, planned.description.accuracy
    if wishes.share is not None and planned.reports_needed > law.clients:
        needed = (
            f"{planned.reports_needed:,.0f}" if planned.reports_needed < math.inf else f"more than {MAX_REPORTS:.0e}"
        )
        yield (
            f"{law.clients:,.0f} reports detect shares from {100 * planned.description.detection_limit:.3g} % with probability {DETECTION_POWER:g}, not share = {100 * wishes.share:.3g} %. "
            f"It needs {needed} reports of a period. Raise reports, periods or epsilon, or look for {'shorter strings' if law.searches else 'fewer candidates'}."
        )
    unit = wishes.epsilon_unit
    if unit is None and wishes.periods > 1:
        yield (
            f"Without a longitudinal epsilon there is no permanent noise: {wishes.periods} reports cost epsilon = "
            f"{shown_epsilon(guarantee_of_reports(metric, wishes.periods).epsilon)} together. Pass longitudinal to bound any number of reports."
        )
    if wishes.values > 1 and unit is not None:
        yield (
            f"Each of {wishes.values} distinct values costs epsilon = {shown_epsilon(planned.description.privacy.epsilon_unit)}. Linked reports show when a value changes. "
            "To hide changes, pass longitudinal_periods, and the plan chooses hold: each epoch then costs epsilon, however often the value changes."
        )
    if metric.lifetime_epsilon is None and planned.description.privacy.objection is None:
        yield (
            f"The definition has no lifetime_epsilon: under the default Policy a client may spend epsilon = "
            f"{shown_epsilon(planned.description.privacy.epsilon_lifetime)} over all its secrets. {_proposed_lifetime(planned)}."
        )
    for texts in (policy_problems, policy_warnings):
        yield from (f"Under the default Policy: {text}." for text in texts(Policy(), [metric], _ANY_DAY))
    if planned.description.group_size >= LINKABLE_GROUP_SIZE:
        yield (
            f"Two reports of one client can be linked among up to {planned.description.group_size:,.3g} clients by their permanent noise. "
            "Pass fewer bits (bits), a smaller epsilon, or hold = 1."
        )
