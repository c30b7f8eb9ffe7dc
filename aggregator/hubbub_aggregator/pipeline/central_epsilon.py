"""Among how many reports a person's report is hidden, from who sees what is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from hubbub.metrics.metric import Metric
from hubbub.privacy import central_epsilon
from hubbub.wire.dates import parse_period
from hubbub_aggregator.pipeline.retention import keeps_reports
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.interface import Store

DELTA = 1e-9


@dataclass(frozen=True, slots=True)
class CentralEpsilon:
    """The crowd of one period.

    reports : the fewest that a report is one of. Where only counts are stored: the reports of the smallest cohort. Where the reports are
              retained: those of the smallest commit if there is one cohort, else 1, since a report may be its cohort's only one in a commit
    epsilon : of (epsilon, 1e-9)-DP towards who sees what is stored of this period, once it is folded
    """

    period: str
    reports: int
    epsilon: float


def last_central_epsilon(
    store: Store, settings: Settings, metric: Metric, smallest_cohorts: Mapping[str, int], now: datetime
) -> CentralEpsilon | None:
    """Return the crowd of the last period whose reports should be in: the one after it has ended too.

    smallest_cohorts : of each period that was folded, the fewest reports of a cohort that has any
    """
    for text, smallest_cohort in sorted(smallest_cohorts.items(), reverse=True):
        if now < parse_period(metric.period, text).next().closes(timedelta(0)):
            continue
        reports = smallest_cohort
        if keeps_reports(metric, settings, text, now):
            smallest = store.smallest_segment(metric.digest, text) or 0
            reports = smallest if metric.params.num_cohorts == 1 else min(smallest, 1)
        if reports:
            return CentralEpsilon(text, reports, central_epsilon(metric.params, _rounded_down(reports), DELTA))
    return None


def _rounded_down(reports: int) -> int:
    """Keep two digits, so that the bound is not computed anew for every report; fewer reports hide less.

    >>> _rounded_down(1_234_567), _rounded_down(42)
    (1200000, 42)
    """
    unit = int(10 ** max(0, len(str(reports)) - 2))
    return reports // unit * unit
