"""Privacy figures of a metric version for the pages, without markup."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from hubbub import privacy
from hubbub.metrics.metric import Metric
from hubbub.privacy.central import release_epsilon
from hubbub.privacy.policy import Policy
from hubbub.privacy.pricing import shown_epsilon
from hubbub.wire.dates import parse_period
from hubbub_aggregator.pipeline.retention import keeps_reports
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.interface import PeriodStore


@dataclass(frozen=True, slots=True)
class Figure:
    """A label, a number and its meaning."""

    label: str
    value: str
    meaning: str


def epsilon_of_report(metric: Metric) -> str:
    """Return the epsilon of one report, for a column of the table of metrics.

    >>> from hubbub import UnaryResponse
    >>> epsilon_of_report(Metric.boolean("b", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5)))
    '1.099'
    """
    return shown_epsilon(privacy.epsilon(metric))


def privacy_rows(metric: Metric) -> tuple[Figure, ...]:
    """Return the epsilons of one person's reports of a metric under the client's default policy.

    >>> from hubbub import UnaryResponse
    >>> [figure.label for figure in privacy_rows(Metric.boolean("b", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5), hold=7))]
    ['Lifetime epsilon', 'Epsilon per report', 'Epsilon per epoch', 'Epsilon per enrollment']
    """
    return tuple(
        Figure(row.title, shown_epsilon(row.epsilon), row.note)
        for row in privacy.privacy_figures(metric, Policy()).rows()
    )


@dataclass(frozen=True, slots=True)
class CentralEpsilon:
    """Central privacy guarantee of one period: (epsilon, 1e-9)-DP for readers of its stored data after folding.

    reports : smallest number of reports among which a report is shuffled. If only counts are stored: the reports of
              the smallest cohort. If reports are retained: those of the smallest commit with one cohort, else 1,
              because a commit may hold one report of a cohort.
    """

    period: str
    reports: int
    epsilon: float


def last_central_epsilon(
    store: PeriodStore, settings: Settings, metric: Metric, smallest_cohorts: Mapping[str, int], now: datetime
) -> CentralEpsilon | None:
    """Return the central epsilon of the last complete period: the period after it has also ended, so its reports have arrived.

    smallest_cohorts : fewest reports of a cohort with reports, in any value of the group, by folded period
    """
    unruled = set() if metric.name in settings.keep_reports else set(store.periods_retained())
    for text, smallest_cohort in sorted(smallest_cohorts.items(), reverse=True):
        if now < parse_period(metric.period, text).next().closes(timedelta(0)):
            continue
        reports = smallest_cohort
        if keeps_reports(metric, settings, text, now) or (
            unruled & {(part.digest, text) for part in metric.collections}
        ):
            sizes = [store.smallest_segment(part.digest, text) for part in metric.collections]
            smallest = min((size for size in sizes if size is not None), default=0)
            reports = smallest if metric.num_cohorts == 1 else min(smallest, 1)
        if reports:
            return CentralEpsilon(text, reports, release_epsilon(metric, reports))
    return None
