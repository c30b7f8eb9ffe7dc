"""Privacy figures of a metric version for the pages, without markup."""

from __future__ import annotations

from dataclasses import dataclass

from hubbub import privacy
from hubbub.metrics.metric import Metric
from hubbub.privacy.policy import Policy
from hubbub.privacy.pricing import shown_epsilon

_TITLES = {"lifetime": "Lifetime epsilon"}


@dataclass(frozen=True, slots=True)
class Figure:
    """A label, a number and its meaning."""

    label: str
    value: str
    meaning: str


def epsilon_of_report(metric: Metric) -> str:
    """Return the epsilon of one report, for a column of the table of metrics.

    >>> epsilon_of_report(Metric.boolean("b", prob_p=0, prob_q=1, prob_f=0.5))
    '1.099'
    """
    return shown_epsilon(privacy.epsilon(metric))


def privacy_rows(metric: Metric) -> tuple[Figure, ...]:
    """Return the epsilons of one person's reports of a metric under the client's default policy.

    >>> [figure.label for figure in privacy_rows(Metric.boolean("b", prob_p=0, prob_q=1, prob_f=0.5, hold=7))]
    ['Epsilon per report', 'Epsilon per epoch', 'Epsilon per enrollment', 'Lifetime epsilon']
    """
    return tuple(
        Figure(_TITLES.get(row.label, f"Epsilon {row.label}"), shown_epsilon(row.epsilon), row.note)
        for row in privacy.privacy_figures(metric, Policy()).rows()
    )
