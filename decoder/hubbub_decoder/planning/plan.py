"""`plan`: a metric definition from wishes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

import numpy as np

from hubbub.metrics.buckets import Buckets, Estimand
from hubbub.metrics.discovery import Discovery
from hubbub.metrics.kinds import KindWord
from hubbub.metrics.metric import Metric
from hubbub.metrics.params import MEAN_COHORTS
from hubbub.privacy import amplified, epsilon
from hubbub.privacy.allocation import policy_problems, policy_warnings
from hubbub.privacy.linkability import LINKABLE_GROUP_SIZE
from hubbub.privacy.policy import Policy
from hubbub.wire.json_values import json_value
from hubbub_decoder.errors import PlanError
from hubbub_decoder.planning.definition import (
    PLACEHOLDER_DESCRIPTION,
    PLACEHOLDER_OWNER,
    build_metric,
    toml_lines,
)
from hubbub_decoder.planning.description import DELTA, DISCOVERED, Description, data_of, describe_accuracy
from hubbub_decoder.planning.groups import best_groups
from hubbub_decoder.planning.law.accuracy import MAX_REPORTS, Accuracy
from hubbub_decoder.planning.law.chain import Chain
from hubbub_decoder.planning.law.collisions import Shares
from hubbub_decoder.planning.law.discovery import DiscoveryAccuracy
from hubbub_decoder.planning.responses import chain_of, choose_hold, limits_of, noise_of
from hubbub_decoder.planning.sizes import COHORTS, best_size
from hubbub_decoder.planning.wishes import Wishes, repetition_of

POWER = 0.8
_HASHES = (1, 2, 3)
_FIRST_SHARE = 0.002  # of a string to discover, before the limit of discovery is known
_ANY_DAY = date(2000, 1, 1)


@dataclass(frozen=True, slots=True)
class Plan:
    """Result of `plan`.

    metric    : the definition
    wishes    : as they were stated; with `hold` if the plan chose it
    description : what it buys, at the stated or needed number of reports
    smallest  : smallest share that matters
    reports_needed : reports of a period that detect it with probability .8; infinite if none do
    symmetric : smallest variance with a symmetric permanent response over that of this plan, collisions apart
    notes     : limits of the definition, a sentence each
    """

    metric: Metric
    wishes: Wishes
    description: Description
    smallest: float
    reports_needed: float
    symmetric: float
    notes: tuple[str, ...]

    def toml(self) -> str:
        """Definition as TOML text."""
        return "\n".join(toml_lines(self.metric)) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """Return the definition and what it buys as JSON values; an infinite number is the string "inf"."""
        figures: dict[str, Any] = json_value(
            {"toml": self.toml(), "reports_needed": self.reports_needed, "notes": list(self.notes)}
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
    """Definition with the smallest mean variance within the wishes.

    The mean is over half the smallest share that matters and half the candidates, with shares under Zipf's law.

    name, description, owner, expires : of the definition; without expires, its TOML text has a comment to complete. `hubbub metrics check`
                        refuses the placeholders of description and owner
    categories, edges : names, or edges of the buckets; None: placeholders

    Raises PlanError for wishes that no definition fulfils.
    """
    kind = wishes.law_kind
    number = wishes.candidates if wishes.longest is None else DISCOVERED
    shares = Shares.zipf(number, 0.5 if kind is KindWord.BOOLEAN else 1.0)
    smallest = wishes.share or float(shares.values[0])
    mean_share = (smallest + shares.total / shares.count) / 2 if wishes.longest is None else _FIRST_SHARE
    chosen: tuple[str, ...] = ()
    if wishes.chooses_hold:
        wishes, reason = choose_hold(wishes, mean_share)
        chosen = (reason,)
    repetition = repetition_of(wishes.periods, wishes.hold)

    def noise(hashes: int, of_chain: Chain) -> float:
        return noise_of(wishes, mean_share, of_chain, hashes)

    many = wishes.kind is KindWord.STRING and wishes.longest is None
    chains = {h: chain_of(wishes, mean_share, h) for h in (_HASHES if many else _HASHES[:1])}
    h, chain = min(chains.items(), key=lambda each: noise(*each))
    clients = float(wishes.reports or MAX_REPORTS)

    discover: Discovery | None = None

    def law(size: tuple[int, int, int], of_chain: Chain, decoded: Wishes = wishes) -> Accuracy:
        fields = (kind, size, of_chain, clients, repetition, shares, data_of(kind, size[0], retained=decoded.retained))
        return Accuracy(*fields) if discover is None else DiscoveryAccuracy(*fields, discover=discover)

    limits = limits_of(wishes, h)
    cohorts = _allowed_cohorts(wishes, float(chain.epsilon(limits.num_bits, limits.possible_ones, wishes.periods)))
    size = (wishes.candidates, 1, 1)
    if wishes.longest is not None:

        def of_groups(bits: int, groups: Discovery) -> DiscoveryAccuracy:
            size = (bits, h, max(cohorts))
            return DiscoveryAccuracy(kind, size, chain, clients, repetition, shares, "bits", discover=groups)

        bits, discover = best_groups(wishes.longest, wishes.alphabet, max(cohorts), wishes.bits, of_groups)
        size, mean_share = (bits, h, max(cohorts)), of_groups(bits, discover).detection_limit(POWER)
        smallest, chain = wishes.share or mean_share, chain_of(wishes, mean_share, h)
    elif wishes.kind is KindWord.STRING:
        counted = replace(wishes, retained=False)  # the law of bits orders sizes as that of reports does, and is fast
        size = best_size(h, cohorts, wishes.bits, lambda each: law(each, chain, counted), smallest)
    values: Sequence[Any] = categories or [f"category {i + 1}" for i in range(wishes.candidates)]
    if wishes.kind is KindWord.ORDINAL:
        values = edges or range(wishes.candidates + 1)
    metric = build_metric(wishes, name, size, chain, values, discover)
    metric = replace(metric, description=description, owner=owner, expires=expires)
    accuracy = law(size, Chain.of_mechanism(metric.params.mechanism))
    needed = accuracy.clients_needed(smallest, POWER)
    if wishes.reports is None:
        if math.isinf(needed):
            raise PlanError(
                f"share = {smallest:g} is not detected with {MAX_REPORTS:.0e} reports: noise and {wishes.candidates:,} candidates hide it. "
                "Pass a larger share, a larger epsilon, or fewer candidates."
            )
        accuracy = replace(accuracy, clients=needed)
    if not math.isfinite(float(accuracy.variance(0.0))):
        raise PlanError(
            f"{wishes.candidates:,} candidates are too many for {wishes.reports:,} reports: no share can be estimated. "
            "Pass fewer candidates, more reports, or a larger epsilon."
        )
    symmetric = noise(h, chain_of(wishes, mean_share, h, symmetric=True)) / noise(h, chain)
    planned = Plan(metric, wishes, describe_accuracy(metric, accuracy), smallest, needed, symmetric, ())
    return replace(planned, notes=(*chosen, *_notes(planned)))


def _notes(planned: Plan) -> Iterator[str]:
    """Yield what limits the definition: accuracy, permanent response, changes, budget, linkability."""
    wishes, metric, law = planned.wishes, planned.metric, planned.description.accuracy
    params, limits = metric.params, planned.description.detection_limits
    if metric.buckets is not None:
        yield (_mean_accuracy if metric.buckets.is_mean else _number_accuracy)(metric.buckets, law)
    if wishes.share is not None and planned.reports_needed > law.clients:
        needed = (
            f"{planned.reports_needed:,.0f}" if planned.reports_needed < math.inf else f"more than {MAX_REPORTS:.0e}"
        )
        yield (
            f"{law.clients:,.0f} reports detect shares from {100 * limits[0]:.3g} % with probability {POWER:g}, not share = {100 * wishes.share:.3g} %. "
            f"It needs {needed} reports of a period. Raise reports, periods or epsilon, or look for fewer candidates."
        )
    unit = wishes.epsilon_unit
    if unit is None and wishes.periods > 1:
        yield (
            f"Without lifetime there is no permanent noise: {wishes.periods} reports cost epsilon = "
            f"{wishes.periods * epsilon(params):.3f} together. Pass lifetime to bound any number of reports."
        )
    if unit is not None and wishes.hold is None and wishes.law_kind is not KindWord.BOOLEAN:
        reach, wanted = math.tanh(unit / 4), math.expm1(wishes.epsilon) / (math.exp(wishes.epsilon) + 3)
        if wanted > reach:
            yield (
                f"A symmetric permanent response (prob_f) does not reach the variance of optimized unary encoding for one report: "
                f"(e^e1 - 1)/(e^e1 + 3) = {wanted:.3f} is above tanh(einf/4) = {reach:.3f}. "
                "This definition has permanent_p and permanent_q instead."
            )
    if planned.symmetric > 1.01:
        yield f"The best symmetric permanent response (prob_f) has {planned.symmetric:.2f} times this variance."
    if wishes.values > 1 and unit is not None:
        yield (
            f"Each of {wishes.values} distinct values costs epsilon = {unit:.3f}. Linked reports show when a value changes. "
            "To hide changes, pass lifetime_periods, and the plan chooses hold: each epoch then costs epsilon, however often the value changes."
        )
    for texts in (policy_problems, policy_warnings):
        yield from (f"Under the default Policy: {text}." for text in texts(Policy(), [metric], _ANY_DAY))
    if planned.description.group_size >= LINKABLE_GROUP_SIZE:
        yield (
            f"Two reports of one client can be linked among up to {planned.description.group_size:,.3g} clients by their permanent noise. "
            "Pass fewer bits (bits), a smaller epsilon, or hold = 1."
        )


def _number_accuracy(buckets: Buckets, law: Accuracy) -> str:
    """Sentence with the standard errors of the mean and of the distribution function, where every bucket has the same share.

    Var(mean) = V sum_i (c_i - c)**2        Var(F) = V k / 4 at the middle edge        V: variance of a share of 1/k
    """
    k, centers = len(buckets), np.array(buckets.centers)
    error = law.std_error(1 / k)
    of_mean = error * float(np.sqrt(((centers - centers.mean()) ** 2).sum()))
    return (
        f"With numbers spread evenly over the {k} buckets, the standard error of their mean is {of_mean:.3g} and that of the "
        f"distribution function up to {100 * error * math.sqrt(k) / 2:.3g} %. Fewer buckets lower both."
    )


def _mean_accuracy(buckets: Buckets, law: Accuracy) -> str:
    """Sentence with the standard error of the mean of the reporters, where numbers are spread evenly over the range.

    Var(mean) = (e_1 - e_0)**2 (V + 1 / (12 N))        V: noise of a share of 1/2        1 / 12 = int t (1 - t) dt - 1 / 12
    """
    of_mean = (buckets.edges[1] - buckets.edges[0]) * math.sqrt(float(law.variance(0.5)) + 1 / (12 * law.clients))
    return (
        f"With numbers spread evenly over the range, the standard error of their mean is {of_mean:.3g}. A smaller range lowers it. "
        "The detection limit above is that of a share of the range."
    )


def _allowed_cohorts(wishes: Wishes, local: float) -> tuple[int, ...]:
    """Numbers of cohorts in which the wanted central epsilon is kept: the others of a cohort hide a client.

    local : epsilon of a client's reports in the periods decoded together
    """
    if wishes.central is None:
        return COHORTS
    reports = wishes.reports or 0
    fixed = MEAN_COHORTS if wishes.estimate is Estimand.MEAN else 1
    choices = COHORTS if wishes.kind is KindWord.STRING else (fixed,)
    kept = tuple(m for m in choices if reports >= m and amplified(local, reports // m, DELTA) <= wishes.central)
    if not kept:
        least = min(choices)
        found = amplified(local, max(1, reports // least), DELTA)
        raise PlanError(
            f"central = {wishes.central:g} is not reached: {reports:,} reports in {least} cohort{'s' * (least > 1)} have a central epsilon of "
            f"{found:.3g} at delta = {DELTA:g}, because only the reports of one cohort hide each other. "
            f"{_reports_for(local, wishes.central, least)}"
        )
    return kept


def _reports_for(local: float, central: float, cohorts: int) -> str:
    """Sentence with the number of reports that reach a central epsilon."""
    low, high = 1, MAX_REPORTS
    if amplified(local, high, DELTA) > central:
        return "No number of reports reaches it. Pass a smaller epsilon, or a larger central."
    while high > 1.01 * low:
        middle = math.isqrt(low * high)
        low, high = (low, middle) if amplified(local, middle, DELTA) <= central else (middle, high)
        if middle in (low, high) and high - low <= 1:
            break
    return f"It needs {high * cohorts:,} reports. Pass so many reports, a smaller epsilon, or a larger central."
