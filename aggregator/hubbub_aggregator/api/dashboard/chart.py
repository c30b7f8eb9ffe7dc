"""The bar chart of a metric's reports a period: numbers only, the template draws them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from hubbub.metrics.metric import Metric
from hubbub.metrics.periods import Period

MAX_BARS = 90
_SLOTS = 8


@dataclass(frozen=True, slots=True)
class PeriodLine:
    """One period of a metric, all its versions together."""

    period: str
    reports: int
    is_open: bool
    is_implausible: bool = False


@dataclass(frozen=True, slots=True)
class Bar:
    """height : in [0, 100], of the highest bar"""

    line: PeriodLine
    height: float


@dataclass(frozen=True, slots=True)
class Chart:
    """The last periods side by side, including those without reports.

    slots : how many bars there is room for
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


def chart_of(metric: Metric, lines: Sequence[PeriodLine]) -> Chart:
    """Return the chart of the last periods, up to 90, with the empty ones between them."""
    reports: Counter[Period] = Counter()
    open_, implausible = set(), set()
    for line in lines:  # an older version's periods may be of another kind
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
        slots=max(len(shown), _SLOTS),
        highest=highest,
        first=shown[0].period,
        last=shown[-1].period,
    )
