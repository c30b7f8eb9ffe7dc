"""Which periods may be published: closed ones with enough reports, each with one set of counts for good.

A period is published once. Later runs repeat its counts, which reveals nothing more. Two versions of the counts of one period, such as those of
an open period on two nights, differ by the reports that came between. They share the noise of all others, so a reader can subtract them, and
single reports are protected by their local epsilon alone.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from hubbub.errors import DefinitionError
from hubbub.metrics.metric import Metric
from hubbub.metrics.periods import Period
from hubbub.privacy import epsilon
from hubbub.privacy.central import release_epsilon
from hubbub.summary import BitCounts
from hubbub_decoder.errors import OutputError


@dataclass(frozen=True, slots=True)
class Release:
    """Counts of one period that were published.

    digest          : of the metric version
    period          : first day
    counts          : SHA-256 of the counts, in hex
    num_reports     : of all cohorts
    smallest_cohort : fewest reports of a cohort with reports, also of what the values of a group reveal beside their sum
    """

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
        return cls(counts.metric.digest, period, content.hexdigest(), sum(reports), min(reports, default=0))


class ReleaseLog:
    """All releases of a site, in a file of one JSON line for each. A line is written before its release is published.

    Raises OutputError for a damaged file. The incomplete last line of a run that was killed belongs to nothing that was published.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._releases: dict[tuple[str, str], list[Release]] = {}
        try:
            *lines, rest = path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return
        except OSError as problem:
            raise OutputError(f"{path} cannot be read: {problem.strerror}.") from None
        try:
            for line in lines:
                self._remember(Release(**json.loads(line)))
        except (TypeError, ValueError):
            raise OutputError(
                f"{path} is damaged, so it is not known which counts were published. Restore it from a backup."
            ) from None
        if rest:
            os.truncate(path, path.stat().st_size - len(rest))

    def _remember(self, release: Release) -> None:
        self._releases.setdefault((release.digest, release.period), []).append(release)

    def of(self, release: Release) -> tuple[Release, ...]:
        """All releases of the same period and metric version."""
        return tuple(self._releases.get((release.digest, release.period), ()))

    def add_missing(self, releases: tuple[Release, ...]) -> None:
        """Add the last releases of a period, durably; `of` has returned those before."""
        for release in releases[len(self.of(releases[0])) :]:
            with self._path.open("ab", buffering=0) as file:
                file.write((json.dumps(asdict(release)) + "\n").encode())
                os.fsync(file.fileno())
            self._remember(release)


def composed_epsilon(metric: Metric, releases: tuple[Release, ...]) -> float:
    """Central epsilon, with delta 1e-9, of all releases of one period together; that of a report on its client, if different counts were published."""
    if len({each.counts for each in releases}) > 1:
        return epsilon(metric)
    return release_epsilon(metric, min(each.smallest_cohort for each in releases))


def reason_to_withhold(metric: Metric, periods: tuple[str, ...], now: datetime) -> str | None:
    """Why the counts of these periods are not published, whatever they are; None: they may be.

    Raises DefinitionError for a date that begins no period of the metric.
    """
    if len(periods) != 1:
        held = f"adds up {len(periods):,} periods" if periods else "names no period"
        return f"the file {held}: publish single periods, of which readers can take the sum"
    closes = _period(metric, periods[0]).closes()
    if now < closes:
        return f"the period is open until {closes:%Y-%m-%d}: who reads an open period twice learns the reports between"
    return None


def _period(metric: Metric, start: str) -> Period:
    try:
        return Period(datetime.fromisoformat(start).date(), metric.period)
    except ValueError:
        raise DefinitionError(f"{metric.name}: period {start} is not a date YYYY-MM-DD") from None
