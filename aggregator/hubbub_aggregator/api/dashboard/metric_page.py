"""Data of the page `/metric/{name}`: reports per period and their bar chart, privacy figures, problems and refused batches, without markup.

The number of SQL statements does not depend on the number of periods, and no summary is read.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from hubbub.metrics.metric import Metric
from hubbub.metrics.params import Params
from hubbub.metrics.periods import Period
from hubbub.summary.plausibility import plausible_ones
from hubbub.text import format_count
from hubbub.wire.dates import parse_period
from hubbub_aggregator.api.dashboard.overview import Problem, RefusalRow, find_problems, refusal_rows, results_address
from hubbub_aggregator.api.dashboard.privacy_figures import CentralEpsilon, Figure, last_central_epsilon, privacy_rows
from hubbub_aggregator.api.dependencies import Service
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.period_figures import StoredFigures

_MAX_ITEMS = 20


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a metric, with its privacy figures; groups : its values and their reports, of a metric with a group; results : their address, or empty."""

    digest: str
    is_current: bool
    facts: tuple[tuple[str, str], ...]
    reports: int
    privacy: tuple[Figure, ...]
    central: CentralEpsilon | None
    groups: tuple[tuple[str, int], ...]
    results: str


@dataclass(frozen=True, slots=True)
class MetricPage:
    """All data of the page.

    implausible : each failed plausibility test once, with its periods
    stale : number of periods without current figures
    """

    name: str
    description: str
    owner: str
    purpose: str
    review: str
    kind: str
    period_kind: str
    expires: str
    retention: str
    has_retained_reports: bool
    problems: tuple[Problem, ...]
    implausible: tuple[str, ...]
    stale: int
    reports: int
    periods: tuple[PeriodLine, ...]
    chart: Chart | None
    versions: tuple[Version, ...]
    refusals: tuple[RefusalRow, ...]


def build_metric_page(service: Service, name: str) -> MetricPage | None:
    """Return the current data of a metric's page, None if no metric has this name."""
    definitions, settings, now = service.definitions, service.settings, service.clock()
    current = definitions.get(name)
    if current is None:
        return None
    service.outcomes.flush(service.periods)
    named = [metric for metric in definitions.versions() if metric.name == name]
    versions = {version.digest: version for metric in named for version in metric.collections}
    rows = service.periods.period_rows(versions)
    reports = {(row.digest, row.period): row.figures.reports for row in rows if row.figures}
    for (digest, period), (_, unfolded) in service.periods.unfolded_reports().items():
        if digest in versions:
            reports[digest, period] = reports.get((digest, period), 0) + unfolded
    reports = {key: count for key, count in reports.items() if count}
    implausible = {
        (row.digest, row.period): row.figures.implausible for row in rows if row.figures and row.figures.implausible
    }
    lines = period_lines(versions.values(), reports, {period for _, period in implausible}, now)
    refusals = refusal_rows({key: count for key, count in service.periods.refusals().items() if key[0] == name})
    return MetricPage(
        name=name,
        description=current.description,
        owner=current.owner,
        purpose=current.purpose,
        review=current.review,
        kind=str(current.kind),
        period_kind=str(current.period),
        expires=str(current.expires),
        retention=_retention(current, settings, sum(service.periods.num_retained(digest) for digest in versions)),
        has_retained_reports=bool(settings.keep_reports.get(name)),
        problems=find_problems(
            current,
            max((line.period for line in lines), default=None),
            len(implausible),
            sum(row.batches for row in refusals),
            now.date(),
        ),
        implausible=describe_implausible(
            (period, kind, versions[digest].blocks) for (digest, period), kinds in implausible.items() for kind in kinds
        ),
        stale=sum(row.is_stale for row in rows),
        reports=sum(line.reports for line in lines),
        periods=lines,
        chart=build_chart(current, lines) if lines else None,
        versions=tuple(_version(service, metric, metric is current, rows, reports, now) for metric in reversed(named)),
        refusals=refusals,
    )


def period_lines(
    versions: Iterable[Metric], reports: Mapping[tuple[str, str], int], implausible: Collection[str], now: datetime
) -> tuple[PeriodLine, ...]:
    """Return the reports per period, summed over the versions of a metric.

    reports : by digest and period      implausible : periods with a failed plausibility test
    """
    kinds = {metric.digest: metric.period for metric in versions}
    total: defaultdict[str, int] = defaultdict(int)
    is_open: defaultdict[str, bool] = defaultdict(bool)
    for (digest, text), count in reports.items():
        total[text] += count
        is_open[text] |= now < parse_period(kinds[digest], text).closes()
    return tuple(PeriodLine(text, total[text], is_open[text], text in implausible) for text in sorted(total))


def describe_implausible(failures: Iterable[tuple[str, str, tuple[Params, ...]]]) -> tuple[str, ...]:
    """Describe each kind of failed plausibility test once, with the number and the last of its periods.

    failures : period, kind of test, blocks of the metric
    """
    by_kind: defaultdict[str, dict[str, tuple[Params, ...]]] = defaultdict(dict)
    for period, kind, blocks in failures:
        by_kind[kind][period] = blocks
    descriptions = []
    for kind, periods in by_kind.items():
        last = max(periods)
        more = f" and {format_count(len(periods) - 1, 'earlier period')}" if len(periods) > 1 else ""
        descriptions.append(f"{last}{more}: {_describe(kind, periods[last])}")
    return tuple(descriptions)


def _describe(kind: str, blocks: tuple[Params, ...]) -> str:
    match kind:
        case "extreme":
            low, high = plausible_ones(blocks)
            return (
                f"some reports have fewer than {low} or more than {high} ones. A genuine client sends such a report with "
                "probability below 1e-9. The reports are fabricated, or were made with other parameters"
            )
        case "shape":
            return (
                "the distribution of the number of ones fits no mix of values. Some reports are fabricated, or were made with "
                "other parameters"
            )
        case _:
            return (
                "the cohort sizes differ by more than chance. A few installations send most of the reports, or "
                "reports are missing or fabricated"
            )


def _version(
    service: Service,
    metric: Metric,
    is_current: bool,
    rows: Sequence[StoredFigures],
    reports: Mapping[tuple[str, str], int],
    now: datetime,
) -> Version:
    counted = {part.digest: part for part in metric.collections}
    smallest: dict[str, int] = {}
    for row in rows:
        if row.digest in counted and row.figures and row.figures.reports:
            fewest = row.figures.smallest_cohort
            smallest[row.period] = min(fewest, smallest.get(row.period, fewest))
    by_digest = {digest: sum(count for (of, _), count in reports.items() if of == digest) for digest in counted}
    return Version(
        digest=metric.digest,
        is_current=is_current,
        facts=tuple((fact.label.capitalize(), fact.line(_MAX_ITEMS)) for fact in metric.facts()),
        reports=sum(by_digest.values()),
        privacy=privacy_rows(metric),
        central=last_central_epsilon(service.periods, service.settings, metric, smallest, now),
        groups=tuple((part.group.value or "", by_digest[part.digest]) for part in counted.values() if part.group),
        results=results_address(service.settings, metric),
    )


def _retention(metric: Metric, settings: Settings, num_retained: int) -> str:
    counts, reports = settings.keep_counts.get(metric.name), settings.keep_reports.get(metric.name)
    text = "Counts are kept without a limit." if counts is None else f"Counts are dropped {_after(metric, counts)}."
    if reports is None and num_retained:
        return (
            f"{text} Single reports of new batches are not kept; {format_count(num_retained, 'retained report')} of earlier batches "
            "stay stored until --keep-reports names the metric."
        )
    if not reports:
        return f"{text} Single reports are not kept."
    return f"{text} Single reports are dropped {_after(metric, reports)}."


def _after(metric: Metric, periods: int) -> str:
    return f"{periods} {metric.period}{'' if periods == 1 else 's'} after the end of their {metric.period}"


MAX_BARS = 90
_MIN_SLOTS = 8


@dataclass(frozen=True, slots=True)
class PeriodLine:
    """Reports of one period of a metric, over all its versions."""

    period: str
    reports: int
    is_open: bool
    is_implausible: bool = False


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar. height : percent of the axis, in [0, 100]"""

    line: PeriodLine
    height: float


@dataclass(frozen=True, slots=True)
class Tick:
    """Label of an axis at a position in percent. anchor : the part of the label that is there: start, middle or end"""

    position: float
    anchor: str
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Bars of the last periods, including those without reports.

    slots : width of the chart in bars      top : number of reports at the upper end of the axis
    """

    bars: tuple[Bar, ...]
    slots: int
    top: int
    first: str
    last: str

    @property
    def values(self) -> tuple[Tick, ...]:
        """Labels of the axis of reports, from the upper end."""
        shown = (self.top, self.top // 2, 0) if self.top % 2 == 0 else (self.top, 0)
        return tuple(Tick(100 - 100 * value / self.top, "end", f"{value:,}") for value in shown)

    @property
    def dates(self) -> tuple[Tick, ...]:
        """Labels of the axis of periods: as many as have room in the narrowest window."""
        bars, end = len(self.bars), 100 * len(self.bars) / self.slots
        first, last = Tick(0, "start", self.first), Tick(end, "end", self.last)
        if bars < _MIN_SLOTS:
            return (first,) if bars == 1 else (Tick(0, "start", f"{self.first} to {self.last}"),)
        middle = Tick(100 * (bars // 2 + 0.5) / self.slots, "middle", self.bars[bars // 2].line.period)
        return (first, middle, last)

    @property
    def has_open(self) -> bool:
        return any(bar.line.is_open for bar in self.bars)

    @property
    def has_implausible(self) -> bool:
        return any(bar.line.is_implausible for bar in self.bars)


def build_chart(metric: Metric, lines: Sequence[PeriodLine]) -> Chart:
    """Return the chart of the last 90 periods or fewer, with empty periods between those with reports."""
    reports: Counter[Period] = Counter()
    open_, implausible = set(), set()
    for line in lines:  # an older version may have periods of another kind
        period = Period.containing(metric.period, date.fromisoformat(line.period))
        reports[period] += line.reports
        open_ |= {period} if line.is_open else set()
        implausible |= {period} if line.is_implausible else set()
    period, first = max(reports), min(reports)
    shown: list[PeriodLine] = []
    while len(shown) < MAX_BARS and period >= first:
        shown.append(PeriodLine(str(period), reports[period], period in open_, period in implausible))
        period = Period.containing(metric.period, period.start - timedelta(days=1))
    shown.reverse()
    top = axis_end(max(line.reports for line in shown))
    return Chart(
        bars=tuple(Bar(line, round(100 * line.reports / top, 2)) for line in shown),
        slots=max(len(shown), _MIN_SLOTS),
        top=top,
        first=shown[0].period,
        last=shown[-1].period,
    )


def axis_end(highest: int) -> int:
    """Return the smallest of 1, 2, 4, 5, 6, 8, 10, 20, ... that is not below a number.

    >>> [axis_end(number) for number in (0, 3, 366, 1000, 20_001)]
    [1, 4, 400, 1000, 40000]
    """
    unit = int(10 ** max(0, len(str(highest)) - 1))
    return next(step * unit for step in (1, 2, 4, 5, 6, 8, 10) if step * unit >= highest)
