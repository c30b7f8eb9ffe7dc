"""`plan`: a metric definition from wishes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date

from hubbub.metrics.metric import Kind, Metric
from hubbub.privacy import amplified
from hubbub_decoder.array_types import Floats
from hubbub_decoder.planning.definition import build_metric, toml_lines
from hubbub_decoder.planning.description import DELTA, data_of
from hubbub_decoder.planning.law.accuracy import MAX_REPORTS, Accuracy
from hubbub_decoder.planning.law.chain import Chain
from hubbub_decoder.planning.law.collisions import Shares
from hubbub_decoder.planning.probabilities import Limits, best_chain
from hubbub_decoder.planning.sizes import COHORTS, best_size
from hubbub_decoder.planning.wishes import PlanError, Wishes, repetition_of

POWER = 0.8
_HASHES = (1, 2, 3)
_TIE = 0.002
"""Weight of b in the choice of probabilities: of equal variances, a response with few ones identifies a client less."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Result of `plan`.

    metric    : the definition
    wishes    : as they were stated
    accuracy  : law of its estimates, at the stated or needed number of reports
    smallest  : smallest share that matters
    reports_needed : reports of a period that detect it with probability .8; infinite if none do
    symmetric : the smallest variance of a share of 0 with a symmetric permanent response, over that of this plan
    notes     : limits of the definition, a sentence each
    """

    metric: Metric
    wishes: Wishes
    accuracy: Accuracy
    smallest: float
    reports_needed: float
    symmetric: float
    notes: tuple[str, ...]

    def toml(self) -> str:
        """Definition as TOML text."""
        return "\n".join(toml_lines(self.metric)) + "\n"


def plan(
    wishes: Wishes, *, name: str = "metric", categories: Sequence[str] | None = None, expires: date | None = None
) -> Plan:
    """Definition with the smallest mean variance within the wishes.

    The mean is over half the smallest share that matters and half the candidates, with shares under Zipf's law.

    name, expires : of the definition      categories : their names; None: placeholders

    Raises PlanError for wishes that no definition fulfils.
    """
    shares = Shares.zipf(wishes.candidates, 0.5 if wishes.kind is Kind.BOOLEAN else 1.0)
    smallest = wishes.share or float(shares.values[0])
    mean_share = (smallest + shares.total / shares.count) / 2
    repetition = repetition_of(wishes.periods, wishes.hold)

    def best(hashes: int, *, symmetric: bool = False) -> Chain:
        def objective(chain: Chain) -> Floats:
            return chain.noise(mean_share, repetition) / hashes * (1 + _TIE * chain.b)

        return best_chain(_limits(wishes, hashes), objective, symmetric=symmetric)

    def noise(hashes: int, chain: Chain) -> float:
        return float(chain.noise(mean_share, repetition)) / hashes

    h = min(_HASHES if wishes.kind is Kind.STRING else _HASHES[:1], key=lambda each: noise(each, best(each)))
    chain = best(h)
    clients = float(wishes.reports or MAX_REPORTS)

    def law(size: tuple[int, int, int], of_chain: Chain) -> Accuracy:
        data = data_of(wishes.kind, size[0], retained=wishes.retained)
        return Accuracy(wishes.kind, size, of_chain, clients, repetition, shares, data)

    cohorts = _allowed_cohorts(wishes, float(chain.epsilon(wishes.kind, h, wishes.periods)))
    size = (wishes.candidates, 1, 1)
    if wishes.kind is Kind.STRING:
        size = best_size(h, cohorts, lambda each: law(each, chain), smallest)
    names = categories or [f"category {i + 1}" for i in range(wishes.candidates)]
    metric = build_metric(wishes, name, size, chain, names)
    metric = replace(
        metric, description="What the metric collects, for its users.", owner="you@example.org", expires=expires
    )
    accuracy = law(size, Chain.of_params(metric.params))
    needed = accuracy.clients_needed(smallest, POWER)
    if wishes.reports is None:
        if math.isinf(needed):
            raise PlanError(
                f"share = {smallest:g} is not detected with {MAX_REPORTS:.0e} reports: among {wishes.candidates:,} candidates other "
                "strings hide it. Pass a larger share, or fewer candidates."
            )
        accuracy = replace(accuracy, clients=needed)
    if not math.isfinite(float(accuracy.variance(0.0))):
        raise PlanError(
            f"{wishes.candidates:,} candidates are too many for {wishes.reports:,} reports: no share can be estimated. "
            "Pass fewer candidates, more reports, or a larger epsilon."
        )
    return Plan(metric, wishes, accuracy, smallest, needed, noise(h, best(h, symmetric=True)) / noise(h, chain), ())


def _limits(wishes: Wishes, hashes: int) -> Limits:
    unit = wishes.epsilon_unit
    if unit is None:
        return Limits(wishes.kind, hashes, wishes.epsilon)
    return Limits(wishes.kind, hashes, wishes.epsilon, unit, wishes.hold or math.inf)


def _allowed_cohorts(wishes: Wishes, epsilon: float) -> tuple[int, ...]:
    """Numbers of cohorts in which the wanted central epsilon is kept: the others of a cohort hide a client.

    epsilon : of a client's reports in the periods decoded together
    """
    if wishes.central is None:
        return COHORTS
    reports, choices = wishes.reports or 0, COHORTS if wishes.kind is Kind.STRING else (1,)
    kept = tuple(m for m in choices if reports >= m and amplified(epsilon, reports // m, DELTA) <= wishes.central)
    if not kept:
        least = min(choices)
        found = amplified(epsilon, max(1, reports // least), DELTA)
        raise PlanError(
            f"central = {wishes.central:g} is not reached: {reports:,} reports in {least} cohort{'s' * (least > 1)} have a central epsilon of "
            f"{found:.3g} at delta = {DELTA:g}, because only the reports of one cohort hide each other. "
            f"{_reports_for(epsilon, wishes.central, least)}"
        )
    return kept


def _reports_for(epsilon: float, central: float, cohorts: int) -> str:
    """Sentence with the number of reports that reach a central epsilon."""
    low, high = 1, MAX_REPORTS
    if amplified(epsilon, high, DELTA) > central:
        return "No number of reports reaches it. Pass a smaller epsilon, or a larger central."
    while high > 1.01 * low:
        middle = math.isqrt(low * high)
        low, high = (low, middle) if amplified(epsilon, middle, DELTA) <= central else (middle, high)
        if middle in (low, high) and high - low <= 1:
            break
    return f"It needs {high * cohorts:,} reports. Pass so many reports, a smaller epsilon, or a larger central."
