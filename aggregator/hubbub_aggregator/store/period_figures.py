"""Figures of a summary, computed when folding and stored beside it, for the dashboard and /metrics."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hubbub.metrics.params import Params
from hubbub.summary.counting import CountProfile
from hubbub.summary.plausibility import find_implausible


@dataclass(frozen=True, slots=True)
class PeriodFigures:
    """Figures of the summary of one metric version and period.

    reports         : number of reports in the summary
    smallest_cohort : fewest reports of a cohort with reports; 0: no reports
    implausible     : kinds of failed implausibility tests
    """

    reports: int = 0
    smallest_cohort: int = 0
    implausible: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredFigures:
    """Stored figures of one metric version and period.

    revision : number of folds into the summary
    figures  : None: not computed yet
    is_stale : the summary has changed since the figures were computed
    """

    digest: str
    period: str
    revision: int
    figures: PeriodFigures | None
    is_stale: bool


@dataclass(frozen=True, slots=True)
class VersionTotals:
    """Stored figures of one metric version, over all its periods.

    reports     : number of reports in summaries
    latest      : latest folded period; None: none
    implausible : number of periods with a failed implausibility test
    stale       : number of periods whose figures are not computed yet
    """

    reports: int = 0
    latest: str | None = None
    implausible: int = 0
    stale: int = 0


def figures_of(blocks: tuple[Params, ...], profile: CountProfile) -> PeriodFigures:
    """Return the figures of a summary with this profile.

    >>> params = Params.one_hot(1, prob_p=0.25, prob_q=0.75, prob_f=0.5)
    >>> figures_of(params.blocks, CountProfile(np.array([9, 0, 7]), None, 1))
    PeriodFigures(reports=16, smallest_cohort=7, implausible=())
    """
    cohorts = profile.reports
    return PeriodFigures(
        reports=profile.num_reports,
        smallest_cohort=int(np.min(cohorts[cohorts > 0], initial=cohorts.max())),
        implausible=tuple(finding.kind for finding in find_implausible(blocks, profile)),
    )
