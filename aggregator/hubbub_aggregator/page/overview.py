"""What the page shows, gathered from the store: numbers and words, no markup."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from hubbub.metric import Metric, has_expired
from hubbub.params import Params
from hubbub.periods import Period
from hubbub.policy import Policy
from hubbub.privacy import privacy_figures
from hubbub.privacy.lifetime import shown_epsilon
from hubbub.summary.oddities import Oddity
from hubbub.summary.parquet import num_reports_of
from hubbub_aggregator.crowd import Crowd, last_crowd
from hubbub_aggregator.readiness import trouble
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.sizes import about
from hubbub_aggregator.store import Store
from hubbub_aggregator.taking import Service
from hubbub_aggregator.watch import Odd
from hubbub_aggregator.writer import GroupWriter

_BARS = 60
_SLOTS = 8


@dataclass(frozen=True, slots=True)
class PeriodRow:
    """One period of a metric, all its versions together."""

    period: str
    reports: int
    is_open: bool


@dataclass(frozen=True, slots=True)
class Bar:
    """height : in [0, 100], of the highest bar"""

    period: str
    reports: int
    is_open: bool
    height: float


@dataclass(frozen=True, slots=True)
class Chart:
    """The last periods side by side, those without reports among them.

    slots : how many bars there is room for
    """

    bars: tuple[Bar, ...]
    slots: int
    highest: int
    has_open: bool
    first: str
    last: str


@dataclass(frozen=True, slots=True)
class EpsilonEntry:
    """One epsilon of a metric in words; see `hubbub.privacy.PrivacyFigures.rows`."""

    label: str
    epsilon: str
    note: str


@dataclass(frozen=True, slots=True)
class Version:
    """One definition of a metric, with what it can reveal in words."""

    digest: str
    is_current: bool
    sizes: str
    probabilities: str
    reports: int
    epsilons: tuple[EpsilonEntry, ...]
    crowd: Crowd | None


@dataclass(frozen=True, slots=True)
class MetricCard:
    """One metric, its current version's words and all versions' reports."""

    name: str
    description: str
    owner: str
    kind: str
    period_kind: str
    expires: str
    has_expired: bool
    retention: str
    reports: int
    periods: tuple[PeriodRow, ...]
    chart: Chart | None
    odd: tuple[str, ...]
    versions: tuple[Version, ...]


@dataclass(frozen=True, slots=True)
class RefusalRow:
    """metric : empty if it was none that is defined here"""

    metric: str
    reason: str
    batches: int


@dataclass(frozen=True, slots=True)
class Overview:
    """All of the page."""

    trouble: str | None
    failing: tuple[str, ...]
    reports: int
    refused: int
    segments_waiting: int
    queue: str
    disk_free: str | None
    metrics: tuple[MetricCard, ...]
    refusals: tuple[RefusalRow, ...]


def overview(service: Service, writer: GroupWriter) -> Overview:
    """Gather the page's numbers, fresh as of now."""
    service.tally.flush(service.store)
    odd = service.watch.look(service.definitions)
    metrics = tuple(_card(service, name, odd) for name in service.definitions)
    refusals = sorted(service.store.refusals().items(), key=lambda item: (-item[1], item[0]))
    free = service.disk.free
    return Overview(
        trouble=trouble(service, writer),
        failing=tuple(job for job, failing in service.troubles.failing().items() if failing),
        reports=sum(metric.reports for metric in metrics),
        refused=sum(count for _, count in refusals),
        segments_waiting=service.store.segments_waiting(),
        queue=about(writer.waiting),
        disk_free=None if free is None else about(free),
        metrics=metrics,
        refusals=tuple(RefusalRow(metric, reason, count) for (metric, reason), count in refusals),
    )


def _card(service: Service, name: str, odd: Odd) -> MetricCard:
    now, current = service.clock(), service.definitions[name]
    versions = [metric for metric in service.definitions.versions() if metric.name == name]
    held = {metric.digest: dict(reports_by_period(service.store, metric)) for metric in versions}
    rows = period_rows(versions, held.values(), now)
    return MetricCard(
        name=name,
        description=current.description,
        owner=current.owner,
        kind=str(current.kind),
        period_kind=str(current.period),
        expires=str(current.expires),
        has_expired=has_expired(current, now.date()),
        retention=_retention(current, service.settings),
        reports=sum(row.reports for row in rows),
        periods=rows,
        chart=chart_of(current, rows) if rows else None,
        odd=odd_in_words(
            (period, oddity) for (digest, period), found in odd.items() if digest in held for oddity in found
        ),
        versions=tuple(
            Version(
                digest=metric.digest,
                is_current=metric is current,
                sizes=_together(k=metric.params.num_bits, h=metric.params.num_hashes, m=metric.params.num_cohorts),
                probabilities=f"{_probabilities(metric.params)}, hold = {metric.hold or 'none'}",
                reports=sum(held[metric.digest].values()),
                epsilons=_epsilons(metric),
                crowd=last_crowd(service.store, service.settings, metric, held[metric.digest], now),
            )
            for metric in versions
        ),
    )


def reports_by_period(store: Store, metric: Metric) -> Iterator[tuple[str, int]]:
    """Yield how many reports each period has, folded or not."""
    for holding in store.read(metric.digest):
        folded = 0 if holding.summary is None else num_reports_of(holding.summary)
        yield holding.period, folded + len(holding.cohorts)


def period_rows(versions: Sequence[Metric], held: Iterable[dict[str, int]], now: datetime) -> tuple[PeriodRow, ...]:
    """Add up the versions of a metric, period by period."""
    reports: defaultdict[str, int] = defaultdict(int)
    is_open: defaultdict[str, bool] = defaultdict(bool)
    for metric, counts in zip(versions, held, strict=True):
        for text, count in counts.items():
            reports[text] += count
            is_open[text] |= now < Period.parse(metric.period, text).closes()
    return tuple(PeriodRow(text, reports[text], is_open[text]) for text in sorted(reports))


def chart_of(metric: Metric, rows: Sequence[PeriodRow]) -> Chart:
    """Draw the last periods, up to 60, and the empty ones between them."""
    reports: Counter[Period] = Counter()
    still_open = set()
    for row in rows:  # an older version's periods may be of another kind
        period = Period.containing(metric.period, date.fromisoformat(row.period))
        reports[period] += row.reports
        still_open |= {period} if row.is_open else set()
    period = max(reports)
    shown: list[PeriodRow] = []
    while len(shown) < _BARS and period >= min(reports):
        shown.append(PeriodRow(str(period), reports[period], period in still_open))
        period = Period.containing(metric.period, period.start - timedelta(days=1))
    shown.reverse()
    highest = max(row.reports for row in shown)
    bars = tuple(
        Bar(row.period, row.reports, row.is_open, round(100 * row.reports / max(highest, 1), 2)) for row in shown
    )
    return Chart(
        bars=bars,
        slots=max(len(bars), _SLOTS),
        highest=highest,
        has_open=any(bar.is_open for bar in bars),
        first=bars[0].period,
        last=bars[-1].period,
    )


def odd_in_words(found: Iterable[tuple[str, Oddity]]) -> tuple[str, ...]:
    """Say each kind of oddity once, in the words of its last period."""
    by_kind: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for period, oddity in found:
        by_kind[oddity.kind].append((period, oddity.about))
    words = []
    for periods in by_kind.values():
        last, about = max(periods)
        more = f" and {len(periods) - 1} earlier" if len(periods) > 1 else ""
        words.append(f"{last}{more}: {about}")
    return tuple(words)


def _probabilities(params: Params) -> str:
    return _together(p=params.prob_p, q=params.prob_q, f=params.prob_f)


def _together(**numbers: float) -> str:
    """Write names and numbers that no line break may part."""
    return ", ".join(f"{name}\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{number:.4g}" for name, number in numbers.items())


def _epsilons(metric: Metric) -> tuple[EpsilonEntry, ...]:
    rows = privacy_figures(metric, Policy()).rows()
    titles = {"lifetime": "Lifetime epsilon"}
    return tuple(
        EpsilonEntry(titles.get(row.label, f"Epsilon {row.label}"), shown_epsilon(row.epsilon), row.note)
        for row in rows
    )


def _retention(metric: Metric, settings: Settings) -> str:
    keep, retain = settings.keep.get(metric.name), settings.retain.get(metric.name)
    counts = "counts are kept" if keep is None else f"counts go {_after(metric, keep)}, once it is closed"
    return counts if retain is None else f"{counts}; the reports themselves go {_after(metric, retain)}"


def _after(metric: Metric, periods: int) -> str:
    return f"{periods} {metric.period}{'' if periods == 1 else 's'} after their {metric.period}"
