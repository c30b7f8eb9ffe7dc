"""Data of the page `/`: the state of the service, and the table of metrics, those with problems first, without markup.

The number of SQL statements does not depend on the number of metrics or periods, and no summary is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from enum import IntEnum, StrEnum
from typing import Any

from hubbub.metrics.metric import Metric, folder_of, has_expired
from hubbub.metrics.periods import Period, PeriodKind
from hubbub.text import format_count, format_size
from hubbub_aggregator.api.dashboard.privacy_figures import epsilon_of_report
from hubbub_aggregator.api.dependencies import Service
from hubbub_aggregator.api.health import readiness_error
from hubbub_aggregator.pipeline.group_commit import GroupCommit
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.interface import FigureStore
from hubbub_aggregator.store.period_figures import VersionTotals

SPARKLINE_PERIODS = 14


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


class Sort(StrEnum):
    """Orders of the table; a minus sign means descending. Metrics with equal keys are in the order of their names."""

    PROBLEMS = "problems"
    NAME = "name"
    NAME_DOWN = "-name"
    OWNER = "owner"
    OWNER_DOWN = "-owner"
    LATEST = "latest"
    LATEST_DOWN = "-latest"
    REPORTS = "reports"
    REPORTS_DOWN = "-reports"

    @property
    def column(self) -> str:
        return self.value.removeprefix("-")

    @property
    def is_descending(self) -> bool:
        return self.value.startswith("-")


@dataclass(frozen=True, slots=True)
class Sparkline:
    """Reports of the last periods of a metric, the current one last. text : the same in words"""

    reports: tuple[int, ...]
    text: str

    @property
    def heights(self) -> tuple[float, ...]:
        """Heights of the bars in percent of the highest."""
        highest = max(self.reports) or 1
        return tuple(round(100 * reports / highest, 1) for reports in self.reports)


@dataclass(frozen=True, slots=True)
class MetricLine:
    """One row of the table of metrics.

    reports : of all versions and periods, folded or not      latest : latest period with reports, or None
    age     : of the latest period, in words
    results : address of the results of the version with the latest reports; empty: none
    """

    name: str
    description: str
    owner: str
    epsilon: str
    results: str
    reports: int
    latest: str | None
    age: str
    trend: Sparkline
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
    has_results: bool


def build_overview(
    service: Service, writer: GroupCommit, query: str = "", *, problems_only: bool = False, sort: Sort = Sort.PROBLEMS
) -> Overview:
    """Return the current data of the page.

    query : words; a row matches if each occurs in its name, owner or description, in upper or lower case
    """
    service.outcomes.flush(service.periods)
    store, now = service.periods, service.clock()
    totals, unfolded, refusals = store.version_totals(), store.unfolded_reports(), store.refusals()
    definitions = service.definitions
    versions = versions_by_name(definitions.collections())
    refused = Counter[str]()
    for (name, _), batches in refusals.items():
        refused[name] += batches
    reports = Counter({digest: total.reports for digest, total in totals.items()})
    latest = {digest: total.latest for digest, total in totals.items() if total.latest}
    for (digest, period), (_, more) in unfolded.items():
        reports[digest] += more
        latest[digest] = max(period, latest.get(digest, ""))
    recent = _recent_reports(store, versions, unfolded, now.date())
    lines = [
        _line(service.settings, metric, versions[name], totals, reports, latest, recent, refused[name], now.date())
        for name, metric in definitions.items()
    ]
    lines.sort(key=lambda line: line.name)
    lines.sort(key=_SORT_KEYS[sort.column], reverse=sort.is_descending)
    free = service.disk.free
    defined = {metric.digest for metric in definitions.collections()}
    return Overview(
        service=ServiceState(
            not_ready=readiness_error(service.readiness, writer),
            failing_jobs=tuple(job for job, failing in service.job_health.failing().items() if failing),
            reports=sum(line.reports for line in lines),
            refused=refused.total(),
            segments_waiting=sum(segments for segments, _ in unfolded.values()),
            queue=format_size(writer.queued_bytes),
            disk_free=None if free is None else format_size(free),
            stale=sum(total.stale for digest, total in totals.items() if digest in defined),
        ),
        lines=tuple(line for line in lines if (line.problems or not problems_only) and _matches(line, query)),
        num_metrics=len(lines),
        num_with_problems=sum(bool(line.problems) for line in lines),
        refusals=refusal_rows(refusals),
        has_results=bool(service.settings.results_url),
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

    >>> from hubbub import UnaryResponse
    >>> last_complete_period(Metric.boolean("b", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5)), date(2024, 6, 15))
    '2024-06-13'
    """
    return _last_periods(metric, today)[-3]


def results_address(settings: Settings, version: Metric) -> str:
    """Return the address of the results of a metric version; empty: the service has no address of results."""
    return f"{settings.results_url}{folder_of(version.in_group(None))}/" if settings.results_url else ""


def _line(
    settings: Settings,
    metric: Metric,
    versions: Sequence[Metric],
    totals: Mapping[str, VersionTotals],
    reports: Mapping[str, int],
    latest: Mapping[str, str],
    recent: Mapping[tuple[str, str], int],
    refused: int,
    today: date,
) -> MetricLine:
    digests = [version.digest for version in versions]
    last = max((latest[digest] for digest in digests if digest in latest), default=None)
    newest = max(versions, key=lambda part: (latest.get(part.digest, ""), part in metric.collections))
    implausible = sum(totals[digest].implausible for digest in digests if digest in totals)
    return MetricLine(
        name=metric.name,
        description=metric.description,
        owner=metric.owner,
        epsilon=epsilon_of_report(metric),
        results=results_address(settings, newest),
        reports=sum(reports[digest] for digest in digests),
        latest=last,
        age=_age(last, today),
        trend=_trend(metric, digests, recent, today),
        expires=str(metric.expires),
        problems=find_problems(metric, last, implausible, refused, today),
    )


def _last_periods(metric: Metric, today: date) -> list[str]:
    """Return the first days of the last periods, the current one last."""
    period = Period.containing(metric.period, today)
    periods = [period]
    while len(periods) < SPARKLINE_PERIODS:
        period = Period.containing(metric.period, period.start - timedelta(days=1))
        periods.append(period)
    return [str(period) for period in reversed(periods)]


def _recent_reports(
    store: FigureStore,
    versions: Mapping[str, Sequence[Metric]],
    unfolded: Mapping[tuple[str, str], tuple[int, int]],
    today: date,
) -> Counter[tuple[str, str]]:
    """Return the reports of the last periods by digest and period, folded or not, with one query for each kind of period."""
    recent = Counter({key: reports for key, (_, reports) in unfolded.items()})
    by_kind: dict[PeriodKind, list[Metric]] = {}
    for metric in (version for group in versions.values() for version in group):
        by_kind.setdefault(metric.period, []).append(metric)
    for metrics in by_kind.values():
        recent.update(store.recent_reports([metric.digest for metric in metrics], _last_periods(metrics[0], today)[0]))
    return recent


def _trend(metric: Metric, digests: Sequence[str], recent: Mapping[tuple[str, str], int], today: date) -> Sparkline:
    periods = _last_periods(metric, today)
    reports = tuple(sum(recent[digest, period] for digest in digests) for period in periods)
    text = f"{len(periods)} {metric.period}s to {periods[-1]}: "
    if not any(reports):
        return Sparkline(reports, f"{text}no reports")
    return Sparkline(reports, f"{text}{min(reports):,} to {max(reports):,} reports, last {reports[-1]:,}")


def _age(latest: str | None, today: date) -> str:
    if latest is None:
        return ""
    days = (today - date.fromisoformat(latest)).days
    return "today" if days <= 0 else "yesterday" if days == 1 else f"{days:,} days ago"


def _severity(line: MetricLine) -> tuple[int, int]:
    """Sort by the most severe problem, then by its size; metrics without problems last."""
    first = line.problems[0] if line.problems else None
    return (len(Severity) + 1, 0) if first is None else (first.severity, -first.size)


_SORT_KEYS: dict[str, Callable[[MetricLine], Any]] = {
    "problems": _severity,
    "name": lambda line: line.name,
    "owner": lambda line: line.owner.casefold(),
    "latest": lambda line: line.latest or "",
    "reports": lambda line: line.reports,
}


def _matches(line: MetricLine, query: str) -> bool:
    text = f"{line.name} {line.owner} {line.description}".casefold()
    return all(word in text for word in query.casefold().split())
