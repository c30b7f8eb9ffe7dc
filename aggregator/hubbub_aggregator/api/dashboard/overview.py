"""Data of the page `/`: the state of the service, and the table of metrics, those with problems first, without markup.

The number of SQL statements does not depend on the number of metrics or periods, and no summary is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from enum import IntEnum

from hubbub.metrics.metric import Metric, has_expired
from hubbub.metrics.periods import Period
from hubbub.text import format_count, format_size
from hubbub_aggregator.api.dashboard.privacy_figures import epsilon_of_report
from hubbub_aggregator.api.dependencies import Service
from hubbub_aggregator.api.health import readiness_error
from hubbub_aggregator.pipeline.group_commit import GroupCommit
from hubbub_aggregator.store.period_figures import VersionTotals


class Severity(IntEnum):
    """Kinds of problems of a metric, in the order of the table."""

    IMPLAUSIBLE = 1
    REFUSED = 2
    NO_REPORTS = 3
    NO_REPORTS_YET = 4
    EXPIRED = 5


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a metric. size : number of periods or batches that have it"""

    severity: Severity
    text: str
    size: int = 0


@dataclass(frozen=True, slots=True)
class MetricLine:
    """One row of the table of metrics.

    reports : of all versions and periods, folded or not      latest : latest period with reports, or None
    """

    name: str
    description: str
    owner: str
    epsilon: str
    reports: int
    latest: str | None
    expires: str
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class RefusalRow:
    """Refused batches by metric and reason. metric : empty if it is not known here"""

    metric: str
    reason: str
    batches: int


@dataclass(frozen=True, slots=True)
class ServiceState:
    """Figures of the service itself.

    stale : number of periods without current figures
    """

    not_ready: str | None
    failing_jobs: tuple[str, ...]
    reports: int
    refused: int
    segments_waiting: int
    queue: str
    disk_free: str | None
    stale: int


@dataclass(frozen=True, slots=True)
class Overview:
    """All data of the page. `lines` holds the rows that match the search."""

    service: ServiceState
    lines: tuple[MetricLine, ...]
    num_metrics: int
    num_with_problems: int
    refusals: tuple[RefusalRow, ...]


def build_overview(service: Service, writer: GroupCommit, query: str = "", *, problems_only: bool = False) -> Overview:
    """Return the current data of the page.

    query : words; a row matches if each occurs in its name, owner or description, in upper or lower case
    """
    service.outcomes.flush(service.periods)
    store, now = service.periods, service.clock()
    totals, unfolded, refusals = store.version_totals(), store.unfolded_reports(), store.refusals()
    definitions = service.definitions
    versions = versions_by_name(definitions.versions())
    refused = Counter[str]()
    for (name, _), batches in refusals.items():
        refused[name] += batches
    reports = Counter({digest: each.reports for digest, each in totals.items()})
    latest = {digest: each.latest for digest, each in totals.items() if each.latest}
    for (digest, period), (_, more) in unfolded.items():
        reports[digest] += more
        latest[digest] = max(period, latest.get(digest, ""))
    lines = [
        _line(metric, versions[name], totals, reports, latest, refused[name], now.date())
        for name, metric in definitions.items()
    ]
    lines.sort(key=_sort_key)
    free = service.disk.free
    defined = {metric.digest for metric in definitions.versions()}
    return Overview(
        service=ServiceState(
            not_ready=readiness_error(service.readiness, writer),
            failing_jobs=tuple(job for job, failing in service.job_health.failing().items() if failing),
            reports=sum(line.reports for line in lines),
            refused=refused.total(),
            segments_waiting=sum(segments for segments, _ in unfolded.values()),
            queue=format_size(writer.queued_bytes),
            disk_free=None if free is None else format_size(free),
            stale=sum(each.stale for digest, each in totals.items() if digest in defined),
        ),
        lines=tuple(line for line in lines if (line.problems or not problems_only) and _matches(line, query)),
        num_metrics=len(lines),
        num_with_problems=sum(bool(line.problems) for line in lines),
        refusals=refusal_rows(refusals),
    )


def versions_by_name(versions: Iterable[Metric]) -> dict[str, list[Metric]]:
    """Group versions by the name of their metric, in the order of the file."""
    named: dict[str, list[Metric]] = {}
    for metric in versions:
        named.setdefault(metric.name, []).append(metric)
    return named


def refusal_rows(refusals: Mapping[tuple[str, str], int]) -> tuple[RefusalRow, ...]:
    """Return the counters of refused batches, largest first."""
    by_size = sorted(refusals.items(), key=lambda item: (-item[1], item[0]))
    return tuple(RefusalRow(metric, reason, count) for (metric, reason), count in by_size)


def find_problems(
    metric: Metric, latest: str | None, implausible: int, refused: int, today: date
) -> tuple[Problem, ...]:
    """Return the problems of a metric, the most severe first.

    latest : latest period with reports      implausible, refused : number of periods, of batches
    """
    problems = []
    if implausible:
        problems.append(Problem(Severity.IMPLAUSIBLE, format_count(implausible, "implausible period"), implausible))
    if refused:
        problems.append(Problem(Severity.REFUSED, f"{format_count(refused, 'batch')} refused", refused))
    if has_expired(metric, today):
        problems.append(Problem(Severity.EXPIRED, f"expired on {metric.expires}"))
    elif latest is None:
        problems.append(Problem(Severity.NO_REPORTS_YET, "no reports yet"))
    elif latest < last_complete_period(metric, today):
        problems.append(Problem(Severity.NO_REPORTS, f"no reports since {latest}"))
    return tuple(problems)


def last_complete_period(metric: Metric, today: date) -> str:
    """Return the last period that should have all its reports; clients send them during the period after it.

    >>> last_complete_period(Metric.boolean("b", prob_p=0, prob_q=1, prob_f=0.5), date(2024, 6, 15))
    '2024-06-13'
    """
    period = Period.containing(metric.period, today)
    for _ in range(2):
        period = Period.containing(metric.period, period.start - timedelta(days=1))
    return str(period)


def _line(
    metric: Metric,
    versions: Sequence[Metric],
    totals: Mapping[str, VersionTotals],
    reports: Mapping[str, int],
    latest: Mapping[str, str],
    refused: int,
    today: date,
) -> MetricLine:
    digests = [version.digest for version in versions]
    last = max((latest[digest] for digest in digests if digest in latest), default=None)
    implausible = sum(totals[digest].implausible for digest in digests if digest in totals)
    return MetricLine(
        name=metric.name,
        description=metric.description,
        owner=metric.owner,
        epsilon=epsilon_of_report(metric),
        reports=sum(reports[digest] for digest in digests),
        latest=last,
        expires=str(metric.expires),
        problems=find_problems(metric, last, implausible, refused, today),
    )


def _sort_key(line: MetricLine) -> tuple[int, int, str]:
    """Sort by the most severe problem, then by its size, then by name; metrics without problems last."""
    first = line.problems[0] if line.problems else None
    return (len(Severity) + 1, 0, line.name) if first is None else (first.severity, -first.size, line.name)


def _matches(line: MetricLine, query: str) -> bool:
    text = f"{line.name} {line.owner} {line.description}".casefold()
    return all(word in text for word in query.casefold().split())
