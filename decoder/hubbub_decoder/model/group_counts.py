"""Whether the values of a group are complete: only a sum that has all their reports is an estimate of the metric.

Subtracting values from their sum shows a value that is missing. So the values have to add up to the file of all values, in the reports of each
cohort and the ones of each bit. A value without a file has then no reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import SummaryError
from hubbub.metrics.metric import Metric
from hubbub.summary import read_collected
from hubbub_decoder.model.evidence import Evidence

WRITE_AGAIN = (
    "Write all files of the period again: `hubbub pull --by-group`, `hubbub fold`, or `hubbub simulate --out-dir`"
)


class GroupCounts(Protocol):
    """Counts of one value of a group, or of all.

    cohort_reports : (m,) reports of each cohort      bit_ones : (k,) reports with a one at each bit      num_reports : of all cohorts
    """

    @property
    def metric(self) -> Metric: ...
    @property
    def cohort_reports(self) -> NDArray[np.int64]: ...
    @property
    def bit_ones(self) -> NDArray[np.int64]: ...
    @property
    def num_reports(self) -> int: ...


def reason_of_incomplete_group(wholes: Sequence[GroupCounts], values: Sequence[GroupCounts]) -> str | None:
    """Why values do not have all reports of their group; None: they have.

    wholes : counts of all values, of one file or of several that have other periods      values : at least one, if there is none of all values
    """
    name = (*wholes, *values)[0].metric.name
    if not wholes:
        return f"no file of all values of {name} in this period can be used, so nothing shows that no value is missing. {WRITE_AGAIN}"
    if np.array_equal(
        np.sum([counts.cohort_reports for counts in wholes], axis=0),
        np.sum([counts.cohort_reports for counts in values], axis=0),
    ) and np.array_equal(
        np.sum([counts.bit_ones for counts in wholes], axis=0), np.sum([counts.bit_ones for counts in values], axis=0)
    ):
        return None
    found, expected = (sum(counts.num_reports for counts in part) for part in (values, wholes))
    return f"the values of {name} have {found:,} reports together, and the file of all values has {expected:,}. {WRITE_AGAIN}"


@dataclass(frozen=True, slots=True)
class GroupFiles:
    """Files of all values of a group, and those of its values, which have the same reports if none is missing; both are paths.

    wholes : none if there is no file of all values      values : at least one
    """

    wholes: tuple[str, ...]
    values: tuple[str, ...]

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files."""
        return tuple(map(Path, (*self.wholes, *self.values)))

    def check(self) -> None:
        """Raise SummaryError if a file cannot be read, or the values are not complete."""
        wholes, values = ([_FileCounts.read(path) for path in paths] for paths in (self.wholes, self.values))
        reason = reason_of_incomplete_group(wholes, values)
        if reason is not None:
            raise SummaryError(reason)


@dataclass(frozen=True, slots=True, eq=False)
class _FileCounts:
    metric: Metric
    cohort_reports: NDArray[np.int64]
    bit_ones: NDArray[np.int64]
    num_reports: int

    @classmethod
    def read(cls, path: str) -> _FileCounts:
        collected = read_collected(path)
        counts = Evidence(collected).counts
        return cls(counts.metric, counts.reports, counts.ones.sum(axis=0), collected.num_reports)
