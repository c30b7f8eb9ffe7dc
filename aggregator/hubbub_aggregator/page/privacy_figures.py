"""The privacy figures of one metric version, as the pages show them: numbers and words, no markup."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hubbub import privacy
from hubbub.metric import Metric


@dataclass(frozen=True, slots=True)
class Figure:
    """A number under its label, and what it means."""

    label: str
    value: str
    meaning: str


def epsilon_of_report(metric: Metric) -> str:
    """Return the epsilon of one report, for a column of the table of metrics.

    >>> epsilon_of_report(Metric.boolean("b", prob_p=0, prob_q=1, prob_f=0.5))
    '1.10'
    """
    epsilon = privacy.epsilon(metric.params)
    return "no bound" if math.isinf(epsilon) else f"{epsilon:.2f}"


def privacy_figures(metric: Metric) -> tuple[Figure, ...]:
    """Return what one person's reports of this metric can reveal."""
    return (
        _figure("One report", privacy.epsilon(metric.params)),
        _figure("Unchanging value, any number of reports", privacy.epsilon_forever(metric.params)),
    )


def _figure(label: str, epsilon: float) -> Figure:
    if math.isinf(epsilon):
        return Figure(label, "no bound", "enough reports reveal the value")
    return Figure(label, f"eps {epsilon:.2f}", f"odds change by at most a factor {math.exp(epsilon):,.3g}")
