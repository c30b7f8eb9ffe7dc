"""Which values of a group are withheld, and what the counts of a group and of its sum reveal together.

A reader subtracts the published values from the sum, and so knows the counts of those that are withheld, together. So all withheld ones
together have as many reports as a published period needs: the last in the definition are withheld with the small ones. That order never changes,
so a value that is published tonight is not exchanged for another one tomorrow. All that is published of a period is then a release of the
counts of disjoint reports: of each published value, and of the withheld ones together.

A value that was published before is known to readers, whatever is withheld now.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from hubbub.metrics.metric import Metric
from hubbub.privacy import epsilon
from hubbub.privacy.central import release_epsilon
from hubbub_decoder.publishing.complete_period import CompletePeriod, by_value, reason_of_few_reports
from hubbub_decoder.results_store.store import PeriodKey, Release


def reasons_to_withhold(
    periods: Sequence[CompletePeriod], min_reports: int, known: Collection[PeriodKey] = ()
) -> dict[PeriodKey, str]:
    """Why some of these periods are not published; known : those that were published before."""
    few = reason_of_few_reports(min_reports)
    reasons = {period.key: few for period in periods if period.num_reports < min_reports}
    wholes = {period.key for period in periods if not period.key.group_value}
    for key, values in by_value(periods).items():
        withheld = [value for value in values if value.key in reasons and value.key not in known]
        small = ", ".join(value.key.group_value for value in withheld)
        shown = [value for value in values if value.key not in reasons and value.key not in known]
        while withheld and shown and sum(value.num_reports for value in withheld) < min_reports:
            last = shown.pop()
            reasons[last.key] = (
                f"it protects {small}, with too few reports: all of {last.task.metric.name} is published, and a reader could subtract the other "
                "values from it. Of the values with enough reports, it is the last in the definition"
            )
            withheld.append(last)
        if withheld and key in wholes and sum(value.num_reports for value in withheld) < min_reports:
            reasons.setdefault(
                key,
                f"it protects {small}, with too few reports: a reader could subtract the values that were published before",
            )
    return reasons


def smallest_cohorts(
    periods: Sequence[CompletePeriod], withheld: Mapping[PeriodKey, str], known: Collection[PeriodKey] = ()
) -> dict[PeriodKey, int]:
    """Fewest reports of a cohort that each published period reveals, also a sum beside the values of its group that readers know."""
    groups = by_value(periods)
    hidden = {key for key in withheld if key not in known}
    found = dict[PeriodKey, int]()
    for period in periods:
        if period.key in withheld:
            continue
        values = [] if period.key.group_value else groups.get(period.key, [])
        rest = np.atleast_1d(np.sum([value.cohorts for value in values if value.key in hidden], axis=0))
        shown = [value.smallest_cohort for value in values if value.key not in hidden]
        found[period.key] = min([period.smallest_cohort, *shown, *rest[rest > 0].astype(int).tolist()])
    return found


def is_replaced(releases: Iterable[Release]) -> bool:
    """Whether different counts of one period were published."""
    return len({release.counts_hash for release in releases}) > 1


def composed_epsilon(metric: Metric, smallest_cohorts: Iterable[int], *, replaced: bool) -> float:
    """Central epsilon, with delta 1e-9, of all releases of one period together; that of a report on its client, if different counts were published.

    smallest_cohorts : of each release
    replaced : whether different counts of this period were published, also of another value of the group, or of their sum: a reader
               computes the reports between from all of them
    """
    return epsilon(metric) if replaced else release_epsilon(metric, min(smallest_cohorts))
