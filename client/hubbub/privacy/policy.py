"""What an app lets its telemetry reveal, whatever a definitions file or a server says."""

from __future__ import annotations

from dataclasses import dataclass

from hubbub.errors import ParameterError
from hubbub.metrics.metric import Metric
from hubbub.privacy.loss import epsilon
from hubbub.privacy.pricing import ROUNDING_SLACK, affordable_units, shown_epsilon, unit_price


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The largest privacy losses that a client spends; nothing but the app's own code can change them.

    What is bounded tells apart two histories of values that change at the same times. Changed against unchanged, it is bounded for metrics with
    `hold` or f = 0 only. A metric's definitions have a budget each, under one total: whoever adds one could as well add a name.

    epsilon_report    : of one report, (0, inf]
    epsilon_enrollment : of one definition of a metric under one secret, over all the values that it takes until consent is withdrawn, (0, inf]
    epsilon_metric    : of one definition of a metric over all enrollments, (0, inf]
    epsilon_total     : of all metrics and all their definitions, over all enrollments, (0, inf]
    """

    epsilon_report: float = 3.0
    epsilon_enrollment: float = 20.0
    epsilon_metric: float = 40.0
    epsilon_total: float = 100.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool):
                raise ParameterError(f"{name} must be a number above 0, got {value!r}")
            if not value > 0:
                raise ParameterError(f"{name} must be above 0, got {value}: to collect nothing, set consent to off")

    def objection(self, metric: Metric) -> str | None:
        """Say why a metric may not be collected at all, or None."""
        once, price = epsilon(metric.params), unit_price(metric)
        if once > self.epsilon_report + ROUNDING_SLACK:
            return (
                f"{metric.name}: a report costs eps = {shown_epsilon(once)}, the policy allows epsilon_report = {self.epsilon_report:g}: "
                "define it with more noise, or raise that in Policy"
            )
        name = min(
            ("epsilon_enrollment", "epsilon_metric", "epsilon_total"), key=lambda each: float(getattr(self, each))
        )
        if price.epsilon > getattr(self, name) + ROUNDING_SLACK:
            return (
                f"{metric.name}: a {price.unit} costs eps = {shown_epsilon(price.epsilon)}, the policy allows "
                f"{name} = {getattr(self, name):g}: define it with more noise, or raise that in Policy"
            )
        return None

    def units(self, price: float, base: float = 0) -> float:
        """Return how many units of a price one metric may have spent at the end of an enrollment before which it had spent `base`."""
        return min(
            affordable_units(self.epsilon_metric, price), base + affordable_units(self.epsilon_enrollment, price)
        )
