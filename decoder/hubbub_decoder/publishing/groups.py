"""Which values of a group are withheld, and what the counts of a group and of its sum reveal together.

A reader subtracts the published values from the sum, and so knows the counts of those that are withheld, together. So all withheld ones
together have as many reports as a published period needs: the last in the definition are withheld with the small ones. That order never changes,
so a value that is published tonight is not exchanged for another one tomorrow. All that is published of a period is then a release of the
counts of disjoint reports: of each published value, and of the withheld ones together.

A value that was published before is known to readers, whatever is withheld now.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hubbub.summary import BitCounts
from hubbub_decoder.batch_decoding.tasks import Task, folder_of
from hubbub_decoder.publishing.releases import Release


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A period that may be published; cohorts : (m,) reports of each cohort      ones : (k,) reports with a one at each bit."""

    task: Task
    release: Release
    cohorts: NDArray[np.int64]
    ones: NDArray[np.int64]

    @classmethod
    def of(cls, task: Task, counts: BitCounts) -> Candidate:
        """Counts of a task of one period."""
        return cls(task, Release.of(counts, task.periods[0]), counts.reports, counts.ones.sum(axis=0))

    @property
    def of_value(self) -> bool:
        """Whether it is of one value of a group."""
        return bool(self.value)

    @property
    def value(self) -> str:
        """Value of the group; "" without one."""
        group = self.task.metric.group
        return "" if group is None else group.value or ""

    @property
    def whole(self) -> tuple[str, str]:
        """Metric version and period, the same for all values of a group and their sum."""
        return self.release.whole

    @property
    def names_of_values(self) -> set[str]:
        """Names of the values of a sum in its period; none without a group."""
        metric = self.task.metric
        values = () if metric.group is None else metric.group.values
        return {f"{folder_of(metric.in_group(value))}/{self.release.period}" for value in values}


def reasons_of_incomplete_groups(
    candidates: Sequence[Candidate], known: Set[str] = frozenset(), changed: Set[str] = frozenset()
) -> dict[str, str]:
    """Why values of groups, and their sums, are not published because files are missing, damaged, changed or of different times.

    Subtracting the values from the sum would reveal what is missing, and nobody would have counted it. So the values have to add up to
    the sum, in the reports of each cohort and the ones of each bit, or nothing of the period is published. A sum alone is complete, unless
    readers know values of its period. Nothing new is published beside counts that a reader knows and that have changed since.

    known   : names of what was published before
    changed : names of what was published before with other counts, and is not to be replaced
    """
    reasons = dict[str, str]()
    groups = _values(candidates)
    wholes = {candidate.whole: candidate for candidate in candidates if not candidate.of_value}
    for key in {**groups, **wholes}:
        values, whole = groups.get(key, []), wholes.get(key)
        of_period = [*values, *([] if whole is None else [whole])]
        reason = _reason_of_incomplete_group(values, whole, known)
        if reason is not None:
            reasons |= {candidate.task.name: reason for candidate in of_period}
        elif any(candidate.task.name in changed for candidate in of_period):
            reasons |= {candidate.task.name: _CHANGED for candidate in of_period if candidate.task.name not in known}
    return reasons


def _reason_of_incomplete_group(values: Sequence[Candidate], whole: Candidate | None, known: Set[str]) -> str | None:
    if whole is None:
        name = values[0].task.metric.name
        return f"there is no file of all values of {name} in this period that can be published, to show that no value is missing. {_AGAIN}"
    if (not values and known.isdisjoint(whole.names_of_values)) or _is_sum(whole, values):
        return None
    found, expected = sum(value.release.num_reports for value in values), whole.release.num_reports
    name = whole.task.metric.name
    return (
        f"the values of {name} have {found:,} reports together, and the file of all values has {expected:,}. {_AGAIN}"
    )


_AGAIN = "Write all files of the period again: `hubbub pull --by-group`, or `hubbub fold`"
_CHANGED = "published counts of the same metric and period have changed since, and a reader of all of them would learn the reports between"


def _is_sum(whole: Candidate, values: Sequence[Candidate]) -> bool:
    return np.array_equal(whole.cohorts, np.sum([value.cohorts for value in values], axis=0)) and np.array_equal(
        whole.ones, np.sum([value.ones for value in values], axis=0)
    )


def reasons_to_withhold(
    candidates: Sequence[Candidate], min_reports: int, known: Collection[str] = ()
) -> dict[str, str]:
    """Why some of these periods are not published, by the names of their tasks; known : names of those that were published before."""
    reasons = {
        each.task.name: f"fewer than {min_reports:,} reports"
        for each in candidates
        if each.release.num_reports < min_reports
    }
    wholes = {each.whole: each.task for each in candidates if not each.of_value}
    for key, values in _values(candidates).items():
        withheld = [each for each in values if each.task.name in reasons and each.task.name not in known]
        small = ", ".join(each.value for each in withheld)
        shown = [each for each in values if each.task.name not in reasons and each.task.name not in known]
        while withheld and shown and sum(each.release.num_reports for each in withheld) < min_reports:
            last = shown.pop()
            reasons[last.task.name] = (
                f"it protects {small}, with too few reports: all of {last.task.metric.name} is published, and a reader could subtract the other "
                "values from it. Of the values with enough reports, it is the last in the definition"
            )
            withheld.append(last)
        if withheld and key in wholes and sum(each.release.num_reports for each in withheld) < min_reports:
            reasons.setdefault(
                wholes[key].name,
                f"it protects {small}, with too few reports: a reader could subtract the values that were published before",
            )
    return reasons


def releases_of(
    candidates: Sequence[Candidate], withheld: Mapping[str, str], known: Collection[str] = ()
) -> Iterator[tuple[Task, Release]]:
    """Yield what is published, and the release; that of a sum counts what it reveals beside the values of its group that readers know."""
    groups = _values(candidates)
    hidden = {name for name in withheld if name not in known}
    for each in candidates:
        if each.task.name in withheld:
            continue
        values = [] if each.of_value else groups.get(each.whole, [])
        rest = np.sum([value.cohorts for value in values if value.task.name in hidden], axis=0)
        sizes = [
            each.release.smallest_cohort,
            *(value.release.smallest_cohort for value in values if value.task.name not in hidden),
            *np.atleast_1d(rest)[np.atleast_1d(rest) > 0].astype(int).tolist(),
        ]
        yield each.task, replace(each.release, smallest_cohort=min(sizes))


def _values(candidates: Iterable[Candidate]) -> dict[tuple[str, str], list[Candidate]]:
    """Values with reports in the order of the definition, which no later night changes, by metric version and period."""
    values: dict[tuple[str, str], list[Candidate]] = {}
    for each in candidates:
        if each.of_value and each.release.num_reports:
            values.setdefault(each.whole, []).append(each)
    for listed in values.values():
        listed.sort(key=lambda one: one.task.metric.group.values.index(one.value) if one.task.metric.group else 0)
    return values
