"""`Policy`: the largest epsilon a client may spend, independent of definitions files and servers."""

from __future__ import annotations

from dataclasses import dataclass

from hubbub.metrics.metric import Metric
from hubbub.number_checks import check_number
from hubbub.privacy.loss import epsilon
from hubbub.privacy.pricing import ROUNDING_SLACK, affordable_units, cost_text, unit_price


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Limits of the privacy loss of one client. Only the app's code can change them.

    Each definition of a metric has its own budget. `epsilon_total` limits their sum.

    Parameters
    ----------
    epsilon_report
        Largest epsilon of one report, in (0, inf].
    epsilon_enrollment
        Largest epsilon of one metric definition under one secret, for all its values until consent is withdrawn, in
        (0, inf].
    epsilon_metric
        Largest epsilon of one metric definition over all enrollments, in (0, inf].
    epsilon_total
        Largest epsilon of all metrics and all their definitions over all enrollments, in (0, inf].

    Raises
    ------
    ParameterError
        A limit is not a number in (0, inf].

    Notes
    -----
    The limits bound the ratio between two histories whose values change, and return to earlier values, at the same
    times. For metrics with `hold` or f = 0 they bound any two histories.
    """

    epsilon_report: float = 3.0
    epsilon_enrollment: float = 20.0
    epsilon_metric: float = 40.0
    epsilon_total: float = 100.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            hint = 'to collect nothing, call set_consent("off")'
            check_number(name, getattr(self, name), "(0, inf]", hint=hint)

    def objection(self, metric: Metric) -> str | None:
        """Return the reason why the policy blocks a metric, or None.

        Parameters
        ----------
        metric
            Metric that a client would collect.

        Returns
        -------
        str | None
            A sentence with the remedy. None: the policy allows the metric.
        """
        once, price = epsilon(metric), unit_price(metric)
        if once > self.epsilon_report + ROUNDING_SLACK:
            return (
                f"{metric.name}: {cost_text('report', once)}, above Policy.epsilon_report = {self.epsilon_report:g}: "
                "define the metric with more noise, or raise epsilon_report"
            )
        name = min(
            ("epsilon_enrollment", "epsilon_metric", "epsilon_total"), key=lambda limit: float(getattr(self, limit))
        )
        if price.epsilon > getattr(self, name) + ROUNDING_SLACK:
            return (
                f"{metric.name}: {cost_text(price.unit, price.epsilon)}, above "
                f"Policy.{name} = {getattr(self, name):g}: define the metric with more noise, or raise {name}"
            )
        return None

    def units(self, price: float, spent_units: float = 0) -> float:
        """Return the number of units that one metric may have spent by the end of an enrollment.

        Parameters
        ----------
        price
            Epsilon of one unit.
        spent_units
            Units that were spent before this enrollment.

        Returns
        -------
        float
            Number of units. It is infinite if the limits are.
        """
        return min(
            affordable_units(self.epsilon_metric, price), spent_units + affordable_units(self.epsilon_enrollment, price)
        )
