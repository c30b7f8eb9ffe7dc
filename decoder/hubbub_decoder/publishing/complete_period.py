"""`CompletePeriod`: what alone a published result is made from, and why other summaries give none.

A period is published once. Later runs repeat its counts, which reveals nothing more. Two versions of the counts of one period, such as those of
an open period on two nights, differ by the reports that came between. They share the noise of all others, so a reader can subtract them, and
single reports are protected by their local epsilon alone.

Subtracting the values of a group from their sum would reveal a value that is missing, and nobody would have counted it. So the values have to
add up to the sum, in the reports of each cohort and the ones of each bit, or nothing of the period is published.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import SummaryError
from hubbub.files.regular_files import open_regular
from hubbub.text import escape_untrusted
from hubbub_decoder.batch_decoding.tasks import Task
from hubbub_decoder.errors import CandidateError
from hubbub_decoder.publishing.names import METRICS_FILE
from hubbub_decoder.results_store.store import PeriodKey, SummaryFile

_OPEN = (
    "its file does not say that the period was closed when the reports were counted, and who reads an open period twice learns the reports "
    "between. When the aggregator has closed it, pull or fold the counts again"
)
_AGAIN = "Write all files of the period again: `hubbub pull --by-group`, or `hubbub fold`"


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
    """Tasks without the sums over groups that were computed from files of their values: such a sum shows no missing value."""
    of_values = [task for task in tasks if task.metric.group and task.metric.group.value]
    files = {file for task in of_values for file in task.files}
    return [task for task in tasks if task in of_values or files.isdisjoint(task.files)]


def reason_of_file(task: Task) -> str | None:
    """Why a file is never published, whatever its counts are; None: it may be."""
    if len(task.periods) != 1:
        held = f"adds up {len(task.periods):,} periods" if task.periods else "names no period"
        return f"the file {held}: publish single periods, of which readers can take the sum"
    return None


def read_period(
    task: Task, read: Callable[[Task], SummaryFile], shown: Mapping[PeriodKey, frozenset[str]]
) -> CountedPeriod | str:
    """Counts of the file of a task, which has one period, or why the period is not over; shown : hashes of the counts that were published.

    Raises HubbubError if there are several files, or if the name, the file or the candidates cannot be used.
    """
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
    return period if period.file.closed or period.counts in shown.get(period.key, ()) else _OPEN


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
    for each in periods:
        if each.key.group_value and each.num_reports:
            values.setdefault(each.key.whole, []).append(each)
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
        reason = _reason_of_incomplete_group(values, whole, is_known=key in known_values)
        if reason is not None:
            reasons |= {period.key: reason for period in of_period}
        elif key in lost:
            new = [period.key for period in of_period if published.get(period.key) != period.counts]
            reasons = dict.fromkeys(new, _BESIDE_LOST) | reasons
    complete = [CompletePeriod(each.task, each.key, each.file) for each in periods if each.key not in reasons]
    return complete, reasons


_BESIDE_LOST = (
    "published counts of the same metric and period have changed since, or their file is gone, and a reader of all of them would learn the "
    f"reports between. {_AGAIN}"
)


def _reason_of_incomplete_group(
    values: Sequence[CountedPeriod], whole: CountedPeriod | None, *, is_known: bool
) -> str | None:
    """Reason for the values of a group and their sum; is_known : whether values of the period were published before."""
    if whole is None:
        name = values[0].task.metric.name
        return f"there is no file of all values of {name} in this period that can be published, to show that no value is missing. {_AGAIN}"
    if (not values and not is_known) or _is_sum(whole, values):
        return None
    found, expected, name = sum(value.num_reports for value in values), whole.num_reports, whole.task.metric.name
    return (
        f"the values of {name} have {found:,} reports together, and the file of all values has {expected:,}. {_AGAIN}"
    )


def _is_sum(whole: CountedPeriod, values: Sequence[CountedPeriod]) -> bool:
    return np.array_equal(whole.cohorts, np.sum([value.cohorts for value in values], axis=0)) and np.array_equal(
        whole.file.bit_ones, np.sum([value.file.bit_ones for value in values], axis=0)
    )
