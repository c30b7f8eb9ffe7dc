"""Which periods may be published: closed ones with enough reports, each with one set of counts for good.

A period is published once. Later runs repeat its counts, which reveals nothing more. Two versions of the counts of one period, such as those of
an open period on two nights, differ by the reports that came between. They share the noise of all others, so a reader can subtract them, and
single reports are protected by their local epsilon alone.

What was published stays, whatever becomes of its inputs, until it is withdrawn by its name: METRIC, or METRIC/PERIOD.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hubbub.metrics.metric import Metric
from hubbub.privacy import epsilon
from hubbub.privacy.central import release_epsilon
from hubbub.summary import BitCounts
from hubbub_decoder.batch_decoding.tasks import folder_of
from hubbub_decoder.errors import OutputError


@dataclass(frozen=True, slots=True)
class Release:
    """Counts of one period that were published.

    folder          : of its pages and its result: METRIC@DIGEST, with the value of its group
    digest          : of the metric version
    period          : first day
    counts          : SHA-256 of the counts, in hex
    num_reports     : of all cohorts
    smallest_cohort : fewest reports of a cohort with reports, also of what the values of a group reveal beside their sum
    """

    folder: str
    digest: str
    period: str
    counts: str
    num_reports: int
    smallest_cohort: int

    @classmethod
    def of(cls, counts: BitCounts, period: str) -> Release:
        """Release of the counts of a period."""
        content = hashlib.sha256(counts.reports.astype("<i8").tobytes() + counts.ones.astype("<i8").tobytes())
        reports = counts.reports[counts.reports > 0].tolist()
        folder, digest = folder_of(counts.metric), counts.metric.digest
        return cls(folder, digest, period, content.hexdigest(), sum(reports), min(reports, default=0))

    @property
    def name(self) -> str:
        """Path of its page, without a suffix."""
        return f"{self.folder}/{self.period}"

    @property
    def whole(self) -> tuple[str, str]:
        """Metric version and period: the same for all values of a group and their sum."""
        return self.folder[: self.folder.index("@") + 9], self.period

    @property
    def result(self) -> str:
        """Path of its kept result. Other counts have another, so a run that does not end changes nothing that is shown."""
        return f"{self.name}{self.suffix}"

    @property
    def suffix(self) -> str:
        """What the path of the result has after the name."""
        return f".{self.counts[:16]}.json"


def short_names(name: str) -> tuple[str, str]:
    """METRIC and METRIC/PERIOD, by which options name METRIC@DIGEST/PERIOD: all versions of the metric, and all values of its group.

    >>> short_names("homepage@0d5b2f3c-other/2026-03-02")
    ('homepage', 'homepage/2026-03-02')
    """
    folder, _, period = name.partition("/")
    metric = folder.partition("@")[0]
    return metric, f"{metric}/{period}"


def is_named(name: str, by: Collection[str]) -> bool:
    """Whether options name a period."""
    return any(each in by for each in short_names(name))


class ReleaseLog:
    """All releases and withdrawals of a site, in a file of one JSON line for each. A line is written before the site shows what it says.

    Raises OutputError for a damaged file. The incomplete last line of a run that was killed belongs to nothing that the site shows.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._releases: dict[str, tuple[Release, ...]] = {}
        self.withdrawn: set[str] = set()
        try:
            *lines, rest = path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return
        except OSError as problem:
            raise OutputError(f"{path} cannot be read: {problem.strerror}.") from None
        try:
            for line in lines:
                self._remember(json.loads(line))
        except (KeyError, TypeError, ValueError):
            raise OutputError(
                f"{path} is damaged, so it is not known which counts were published. Restore it from a backup."
            ) from None
        if rest:
            os.truncate(path, path.stat().st_size - len(rest))

    def _remember(self, entry: dict[str, Any]) -> None:
        if "withdrawn" in entry:
            self.withdrawn.add(entry["withdrawn"])
        else:
            release = Release(**entry)
            self._releases[release.name] = (*self.of(release.name), release)

    def _add(self, entry: dict[str, Any]) -> None:
        with self._path.open("ab", buffering=0) as file:
            file.write((json.dumps(entry) + "\n").encode())
            os.fsync(file.fileno())
        self._remember(entry)

    @property
    def names(self) -> Collection[str]:
        """All periods that were ever published."""
        return self._releases.keys()

    def of(self, name: str) -> tuple[Release, ...]:
        """All releases of a period of a metric version."""
        return self._releases.get(name, ())

    def published(self) -> dict[str, tuple[Release, ...]]:
        """Periods with their releases, without those that were withdrawn."""
        return {name: found for name, found in self._releases.items() if not is_named(name, self.withdrawn)}

    def add_missing(self, releases: tuple[Release, ...]) -> None:
        """Add the last releases of a period, durably; `of` has returned those before."""
        for release in releases[len(self.of(releases[0].name)) :]:
            self._add(asdict(release))

    def withdraw(self, names: Iterable[str]) -> None:
        """Withdraw METRIC or METRIC/PERIOD for good, durably."""
        for name in sorted({*names} - self.withdrawn):
            self._add({"withdrawn": name})


def is_replaced(releases: Iterable[Release]) -> bool:
    """Whether different counts of one period were published."""
    return len({release.counts for release in releases}) > 1


def composed_epsilon(metric: Metric, releases: tuple[Release, ...], *, replaced: bool) -> float:
    """Central epsilon, with delta 1e-9, of all releases of one period together; that of a report on its client, if different counts were published.

    replaced : whether those of another value of the group, or of their sum, were: a reader computes the reports between from all of them
    """
    if replaced or is_replaced(releases):
        return epsilon(metric)
    return release_epsilon(metric, min(each.smallest_cohort for each in releases))


def reason_to_withhold(periods: tuple[str, ...]) -> str | None:
    """Why the counts of these periods are not published, whatever they are; None: they may be."""
    if len(periods) != 1:
        held = f"adds up {len(periods):,} periods" if periods else "names no period"
        return f"the file {held}: publish single periods, of which readers can take the sum"
    return None
