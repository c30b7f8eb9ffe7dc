"""One look of `hubbub watch` at a period: has a share left its band, has a share changed, and have reports stopped?

Each test is a confidence interval of the latest 1 or 3 periods together. It raises an alarm if the whole interval is outside the band, or
if the whole interval of the change since the baseline is beyond the smallest relevant change. With F false alarms a year:

    level of an interval = 1 - F / (L W (V + B))

    L : looks a year, `LOOKS_A_YEAR`    W : windows, `WINDOWS`    V : values of the metric    B : bands

By the union bound, a year without a change has an alarm with probability F at most, however the tests depend on each other: through
reports that two windows share, and through the permanent noise of clients that stay. For one change, the intervals of `compare` hold
whichever clients stay, because they assume the same clients within each side, and take off what both sides share only as far as the reports show it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from hubbub.errors import ParameterError
from hubbub.metrics.metric import Metric
from hubbub.metrics.periods import PeriodKind
from hubbub.number_checks import check_integer, check_number
from hubbub.text import did_you_mean
from hubbub_decoder.blas_threads import one_blas_thread
from hubbub_decoder.comparison.compare import compare_decodings
from hubbub_decoder.comparison.results import Change, Comparison, Overlap
from hubbub_decoder.kinds.operations import Candidates, operations_of
from hubbub_decoder.model.design_matrix import DesignMatrix
from hubbub_decoder.model.distributions import norm
from hubbub_decoder.model.evidence import Collected, combine
from hubbub_decoder.options import Options
from hubbub_decoder.pipeline import collect_evidence, decode_evidence
from hubbub_decoder.result import Result
from hubbub_decoder.results.decoding import Decoding

LOOKS_A_YEAR = {PeriodKind.DAY: 366, PeriodKind.WEEK: 53, PeriodKind.MONTH: 12}
"""Largest number of periods that begin in a year."""

WINDOWS = (1, 3)
"""Numbers of latest periods that are tested together: 1 finds a large change at once, 3 a smaller one."""

POWER = 0.9
"""Probability with which the change is found that a look prints."""

Rows = DesignMatrix | Sequence[str] | None
Rule = Literal["change", "band", "reports"]
Side = Literal["above", "below"]


@dataclass(frozen=True, slots=True, eq=False)
class Alarm(Result):
    """What a look found.

    rule        : "change" since the baseline, "band" that a share left, or number of "reports"
    period      : the latest one of the window      num_periods : of the window
    value       : the value; "" for reports
    side        : "above" or "below" the baseline or the band
    estimate    : change, share, or number of reports      low, high : its interval; nan for reports
    reference   : share in the baseline, nearest end of the band, or median number of reports of the baseline's periods
    baseline    : first and last period of the baseline; () for a band
    confidence  : level of the interval; nan for reports
    since       : first period of the looks in a row that found it; it is new if this is `period`
    """

    rule: Rule
    period: str
    num_periods: int
    value: str
    side: Side
    estimate: float
    low: float
    high: float
    reference: float
    baseline: tuple[str, ...]
    confidence: float
    since: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What makes an alarm of the next period the same one."""
        return self.rule, self.value, self.side

    @property
    def is_new(self) -> bool:
        """Whether the look before did not find it."""
        return self.since == self.period


@dataclass(frozen=True, slots=True)
class Rules:
    """What is looked for.

    false_alarms    : largest probability of a false alarm of `change` and `band` in a year, in (0, 1)
    baseline        : largest number of periods before the window with which it is compared
    bands           : lowest and highest share of some values
    smallest_change : of a share that matters, in [0, 1)
    fewest_reports  : an alarm below this part of the median number of reports of the baseline's periods, in [0, 1)
    same_clients    : whether clients may report in several periods

    Raises ParameterError if one is out of range.
    """

    false_alarms: float = 0.05
    baseline: int = 26
    bands: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    smallest_change: float = 0.0
    fewest_reports: float = 0.5
    same_clients: bool = True

    def __post_init__(self) -> None:
        check_number("false_alarms", self.false_alarms, "(0, 1)", hint="pass 0.05 for one in twenty years")
        check_integer("baseline", self.baseline, 1, hint="pass 26 for half a year of weeks")
        check_number("smallest_change", self.smallest_change, "[0, 1)", hint="pass 0.01 for one percentage point")
        check_number("fewest_reports", self.fewest_reports, "[0, 1)", hint="pass 0.5 for half")
        for value, (low, high) in self.bands.items():
            if not 0 <= low < high <= 1:
                raise ParameterError(
                    f"the band of {value!r} must be 0 <= low < high <= 1",
                    f"{low} and {high}: pass 0.1 and 0.3, for example",
                )

    def confidence(self, metric: Metric, num_values: int) -> float:
        """Level of each interval of a metric with so many values.

        >>> from hubbub import UnaryResponse
        >>> weekly = Metric.boolean("dark", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5), period="week")
        >>> round((1 - Rules().confidence(weekly, 1)) * 53 * 2, 9)
        0.05
        """
        tests = len(WINDOWS) * (num_values + len(self.bands))
        return 1 - self.false_alarms / (LOOKS_A_YEAR[metric.period] * tests)


@dataclass(frozen=True, slots=True)
class SharesLook:
    """What a look found about shares.

    detectable : change of any value that lasts, and that three looks find with probability `POWER`; nan with fewer than 4 periods
    """

    alarms: tuple[Alarm, ...]
    detectable: float


def rows_to_watch(metric: Metric, candidates: Candidates, rules: Rules) -> Rows:
    """Rows of the decodings of a metric, prepared once for all looks.

    Raises SummaryError for a metric without shares, CandidateError, and ParameterError for a band of a value that is not watched.
    """
    operations = operations_of(metric)
    operations.check_comparable()
    rows = operations.rows(candidates)
    known = [name for group in _groups(metric, rows) for name in group]
    for value in rules.bands:
        if value not in known:
            raise ParameterError(f"{metric.name} has no value {value!r} for a band.{did_you_mean(value, known)}")
    return rows


@one_blas_thread()
def look_at_shares(samples: Sequence[Collected], candidates: Candidates, rules: Rules) -> SharesLook:
    """What there is to say of the last of several samples, which are of one period each, in order of time, and have reports.

    Raises as `rows_to_watch`.
    """
    metric = samples[-1].metric
    rows = rows_to_watch(metric, candidates, rules)
    confidence = rules.confidence(metric, len(_groups(metric, rows)))
    options = Options(confidence=confidence, target="population", same_clients=rules.same_clients)
    known = None if rules.same_clients else Overlap.known(0.0)
    alarms: dict[tuple[str, str, str], Alarm] = {}
    detectable = math.nan
    for size in WINDOWS[: bisect_right(WINDOWS, len(samples))]:
        before, window = samples[:-size][-rules.baseline :], samples[-size:]
        evidence = [collect_evidence(combine(part), options) for part in (before, window) if part]
        decodings = [decode_evidence(side, rows, options) for side in evidence]
        found = [*_outside_bands(decodings[-1], rules)]
        if before:
            a, b = evidence
            comparison = compare_decodings((a, b), (decodings[0], decodings[1]), rows, known)
            found += _changes(comparison, rules)
            detectable = _detectable(comparison.changes, rules) if size == WINDOWS[-1] else math.nan
        for alarm in found:
            alarms.setdefault(alarm.key, alarm)
    return SharesLook(tuple(alarms.values()), detectable)


def look_at_reports(period: str, num_reports: int, before: Sequence[Collected], rules: Rules) -> tuple[Alarm, ...]:
    """Alarm if a period has far fewer reports than the periods before it. A number of reports has no noise, so it is not tested."""
    if not (baseline := before[-rules.baseline :]):
        return ()
    usual = float(median(sample.num_reports for sample in baseline))
    if num_reports >= rules.fewest_reports * usual:
        return ()
    ends, nothing = (baseline[0].periods[0], baseline[-1].periods[0]), math.nan
    return (
        Alarm("reports", period, 1, "", "below", float(num_reports), nothing, nothing, usual, ends, nothing, period),
    )


def _groups(metric: Metric, rows: Rows) -> Sequence[Sequence[str]]:
    """Names of each value; several where no report can distinguish them."""
    if isinstance(rows, DesignMatrix):
        return rows.groups
    return [(name,) for name in (rows if rows is not None else metric.kind.estimated_values)]


def _outside_bands(window: Decoding, rules: Rules) -> Iterator[Alarm]:
    """Yield an alarm for each share whose whole interval is outside its band."""
    last, size = window.periods[-1], len(window.periods)
    for value, (lowest, highest) in rules.bands.items():
        found = window[value]
        is_above = found.low > highest
        if is_above or found.high < lowest:
            side: Side = "above" if is_above else "below"
            limit = highest if is_above else lowest
            interval = found.share, found.low, found.high
            yield Alarm("band", last, size, value, side, *interval, limit, (), window.confidence, last)


def _changes(comparison: Comparison, rules: Rules) -> Iterator[Alarm]:
    """Yield an alarm for each change whose whole interval is beyond the smallest relevant change."""
    before, window = comparison.a.periods, comparison.b.periods
    ends, last, size = (before[0], before[-1]), window[-1], len(window)
    for found in comparison.changes:
        if found.low > rules.smallest_change or found.high < -rules.smallest_change:
            side: Side = "above" if found.change > 0 else "below"
            interval = found.change, found.low, found.high
            yield Alarm(
                "change",
                last,
                size,
                found.candidate,
                side,
                *interval,
                found.share_a,
                ends,
                comparison.confidence,
                last,
            )


def _detectable(changes: Sequence[Change], rules: Rules) -> float:
    """Largest of the values' changes that the window finds with probability `POWER`; nan if none is determined."""
    reaches = [max(change.high - change.change, change.change - change.low) for change in changes]
    found = [
        rules.smallest_change + reach + float(norm.ppf(POWER)) * change.std_error
        for reach, change in zip(reaches, changes, strict=True)
        if math.isfinite(reach + change.std_error)
    ]
    return max(found, default=math.nan)
