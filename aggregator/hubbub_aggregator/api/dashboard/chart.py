"""Data of the bar chart of a metric's reports per period; the template draws it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from hubbub.metrics.metric import Metric
from hubbub.metrics.periods import Period

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
    """One bar. height : percent of the highest bar, in [0, 100]"""

    line: PeriodLine
    height: float


@dataclass(frozen=True, slots=True)
class Chart:
    """Bars of the last periods, including those without reports.

    slots : width of the chart in bars
    """

    bars: tuple[Bar, ...]
    slots: int
    highest: int
    first: str
    last: str

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
    highest = max(line.reports for line in shown)
    return Chart(
        bars=tuple(Bar(line, round(100 * line.reports / max(highest, 1), 2)) for line in shown),
        slots=max(len(shown), _MIN_SLOTS),
        highest=highest,
        first=shown[0].period,
        last=shown[-1].period,
    )
