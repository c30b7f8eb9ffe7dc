"""`CompletePeriod`: what alone a published result is made from, and why other summaries give none.

A period is published once. Later runs repeat its counts, which reveals nothing more. Two versions of the counts of one period, such as those of
an open period on two nights, differ by the reports that came between. They share the noise of all others, so a reader can subtract them, and
single reports are protected by their local epsilon alone.

Subtracting the values of a group from their sum would reveal a value that is missing, and nobody would have counted it. So the values have to
add up to the sum (`reason_of_incomplete_group`), or nothing of the period is published.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import SummaryError
from hubbub.files.regular_files import open_regular
from hubbub.text import escape_untrusted
from hubbub_decoder.batch_decoding.tasks import Task
from hubbub_decoder.errors import CandidateError
from hubbub_decoder.model.group_counts import WRITE_AGAIN, reason_of_incomplete_group
from hubbub_decoder.publishing.names import METRICS_FILE
from hubbub_decoder.results_store.store import PeriodKey, SummaryFile

_OPEN = (
    "its file does not say that the period was closed when the reports were counted, and who reads an open period twice learns the reports "
    "between. When the aggregator has closed it, pull or fold the counts again"
)


@dataclass(frozen=True, slots=True, eq=False)
class CountedPeriod:
    """Counts of a period in one file, which are closed or the same as some that were published."""

    task: Task
    key: PeriodKey
    file: SummaryFile

    @property
    def name(self) -> str:
        """Path of its page, without a suffix."""
        return self.task.name

    @property
    def counts(self) -> str:
        """Hash of the counts."""
        return self.file.counts_hash

    @property
    def cohorts(self) -> NDArray[np.int64]:
        """Reports of each cohort, (m,)."""
        return self.file.cohort_reports

    @property
    def num_reports(self) -> int:
        """Of all cohorts."""
        return self.file.num_reports

    @property
    def smallest_cohort(self) -> int:
        """Fewest reports of a cohort with reports."""
        return min(self.cohorts[self.cohorts > 0].tolist(), default=0)


class CompletePeriod(CountedPeriod):
    """Counts that have all reports of a period, and of a group together with all its values; `complete_periods` alone makes it.

    Only from this a result is published.
    """

    __slots__ = ()


def tasks_of_files(tasks: Sequence[Task]) -> list[Task]:
    """Tasks that have a file; `complete_periods` compares the values of a group with their sum, for all of a period at once."""
    return [replace(task, group=None) for task in tasks if task.group is None or task.group.wholes]


def read_period(
    task: Task, read: Callable[[Task], SummaryFile], shown: Mapping[PeriodKey, frozenset[str]], min_reports: int
) -> CountedPeriod | str:
    """Counts of the file of a task, or why its period waits; shown : hashes of the counts that were published.

    Raises HubbubError if there are several files, if the file has not one period, if the name, the file or the candidates cannot be used, and for
    a period that is over, has at least `min_reports` reports, and has no candidates.
    """
    if len(task.periods) != 1:
        held = f"adds up {len(task.periods):,} periods" if task.periods else "names no period"
        raise SummaryError(
            f"the file {held}: publish a file for each period, as `hubbub pull --all` writes it, or `hubbub simulate --out-dir`"
        )
    if task.metric.name == METRICS_FILE:
        raise SummaryError(
            f"{METRICS_FILE}.json of the site is the list of its metrics, so no metric of this name is published: collect it under another "
            f"name, and pass --withhold {METRICS_FILE}"
        )
    _check_approved(task.candidates)
    if len(task.files) > 1:
        names = ", ".join(escape_untrusted(file.name) for file in task.files)
        raise SummaryError(f"several files have this period, where one has all its reports: keep one of {names}")
    period = CountedPeriod(task, PeriodKey.of(task.metric, task.periods[0]), read(task))
    if not period.file.closed and period.counts not in shown.get(period.key, ()):
        return _OPEN
    if task.reason_to_skip is not None:
        if period.num_reports < min_reports:
            return reason_of_few_reports(min_reports)
        raise CandidateError(f"{task.reason_to_skip}, or pass --withhold {task.metric.name}")
    return period


def reason_of_few_reports(min_reports: int) -> str:
    """Why a period with fewer reports is not published."""
    return f"fewer than {min_reports:,} reports"


def _check_approved(candidates: Path | None) -> None:
    """Raise CandidateError for a table of results: strings that `hubbub discover` found are published when somebody has listed them."""
    try:
        with open_regular(candidates) if candidates is not None else nullcontext(io.BytesIO()) as file:
            header = file.readline(1_000).strip().split(b",")
    except OSError as problem:
        raise CandidateError(f"{candidates} cannot be read: {problem.strerror}.") from None
    if b"share" in header:
        raise CandidateError(f"{candidates} is a table of results. List the strings that may be published, one a line.")


_Counted = TypeVar("_Counted", bound=CountedPeriod)


def by_value(periods: Iterable[_Counted]) -> dict[PeriodKey, list[_Counted]]:
    """Values with reports in the order of the definition, which no later night changes, by the key of all values."""
    values: dict[PeriodKey, list[_Counted]] = {}
    for period in periods:
        if period.key.group_value and period.num_reports:
            values.setdefault(period.key.whole, []).append(period)
    for listed in values.values():
        listed.sort(
            key=lambda one: one.task.metric.group.values.index(one.key.group_value) if one.task.metric.group else 0
        )
    return values


def complete_periods(
    periods: Sequence[CountedPeriod], published: Mapping[PeriodKey, str], changed: Mapping[PeriodKey, str]
) -> tuple[list[CompletePeriod], dict[PeriodKey, str]]:
    """Complete periods, and why the values of other groups, and their sums, are not: files are missing, damaged, changed or of different times.

    A sum alone is complete, unless readers know values of its period. Other counts than those that were published are complete only if each
    page of the same metric and period that was published has counts now which are the same, or replace it: the reports of a value that is
    gone may be those of another one, and a reader of both would learn the reports between.

    published : hash of the last counts before this run      changed : why other counts than these do not replace them
    """
    reasons = dict(changed)
    groups = by_value(periods)
    wholes = {period.key: period for period in periods if not period.key.group_value}
    lost = {key.whole for key in published.keys() - {period.key for period in periods} | changed.keys()}
    known_values = {key.whole for key in published if key.group_value}
    for key in {**groups, **wholes}:
        values, whole = groups.get(key, []), wholes.get(key)
        of_period = [*values, *([] if whole is None else [whole])]
        is_alone = whole is not None and not values and key not in known_values
        of_all = [] if whole is None else [whole.file]
        reason = None if is_alone else reason_of_incomplete_group(of_all, [value.file for value in values])
        if reason is not None:
            reasons |= {period.key: reason for period in of_period}
        elif key in lost:
            new = [period.key for period in of_period if published.get(period.key) != period.counts]
            reasons = dict.fromkeys(new, _BESIDE_LOST) | reasons
    complete = [CompletePeriod(period.task, period.key, period.file) for period in periods if period.key not in reasons]
    return complete, reasons


_BESIDE_LOST = (
    "published counts of the same metric and period have changed since, or their file is gone, and a reader of all of them would learn the "
    f"reports between. {WRITE_AGAIN}"
)
