"""Page of one metric over its periods, or the values of its group: shares and means, changes, figures of each, privacy and definition."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hubbub.metrics.buckets import Buckets
from hubbub.metrics.group import PERIOD
from hubbub.metrics.metric import Metric
from hubbub_decoder.comparison.results import Change
from hubbub_decoder.comparison.trends import Trends, change_lines, label_of
from hubbub_decoder.data.events import Event, marked_periods
from hubbub_decoder.documents.document import format_level, group_name
from hubbub_decoder.report.about import about
from hubbub_decoder.report.rendering import Scripts, json_numbers, render
from hubbub_decoder.results.decoding import Decoding
from hubbub_decoder.results.ordinal import Mean, number_texts, representative_name

MAX_ROWS = 1_000
"""Largest number of candidates on a page: those with the largest mean shares."""


@dataclass(frozen=True, slots=True)
class PeriodRow:
    """Figures of one period, or value of the group; address : of its page, "" without one."""

    period: str
    address: str
    num_reports: int
    num_detected: int
    num_warnings: int

    @classmethod
    def from_decoding(cls, decoding: Decoding, address: str = "", label: str = "") -> PeriodRow:
        """Row of a decoding; label : "" for its periods."""
        label = label or ", ".join(decoding.periods) or "undated"
        return cls(label, address, decoding.num_reports, len(decoding.detected), len(decoding.warnings))


@dataclass(frozen=True, slots=True)
class Trend:
    """Shares of one candidate by period, with intervals; nan where it was not estimated.

    detected : None where it was not tested
    weights  : of the mean
    """

    label: str
    share: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    detected: tuple[bool | None, ...]
    weights: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean share over the periods with an estimate; over the values of a group, the share of their reports together."""
        known = [(w * share, w) for w, share in zip(self.weights, self.share, strict=True) if not math.isnan(share)]
        weight = math.fsum(w for _, w in known)
        return math.fsum(product for product, _ in known) / weight if weight else math.nan

    @property
    def change(self) -> tuple[float, float, float]:
        """Low end, estimate and high end of the change x = b - a from the first period to the last, from their intervals.

            x - sqrt((b - low_b)**2 + (high_a - a)**2) .. x + sqrt((high_b - b)**2 + (a - low_a)**2)

        The errors of both are taken for independent. Those of the same clients are correlated positively, so the interval is never too narrow.
        Source: Zou and Donner 2008, Statistics in Medicine 27, 1693; docs/explanation/mathematics.md, equation (19.8).
        """
        a, b = self.share[0], self.share[-1]
        down, up = (
            math.hypot(max(end, 0.0), max(start, 0.0))
            for end, start in ((b - self.low[-1], self.high[0] - a), (self.high[-1] - b, a - self.low[0]))
        )
        return b - a - down, b - a, b - a + up

    @property
    def num_detected(self) -> int:
        """Number of periods in which it is detected."""
        return sum(map(bool, self.detected))

    @property
    def num_tested(self) -> int:
        """Number of periods in which it was tested."""
        return sum(flag is not None for flag in self.detected)


def render_metric(
    metric: Metric,
    periods: Sequence[PeriodRow],
    decodings: Sequence[Mapping[str, Any]],
    scripts: Scripts,
    *,
    provenance: Iterable[tuple[str, str]] = (),
    path: Sequence[tuple[str, str]] = (),
    compared: Trends | None = None,
    view: Mapping[str, Any] | None = None,
    by: str = PERIOD,
    groups: Sequence[tuple[str, str]] = (),
    events: Iterable[Event] = (),
) -> str:
    """HTML page of one metric.

    periods   : in order of time
    decodings : documents of `Decoding.to_dict`; those of single periods are drawn over time
    path      : labels and addresses of the pages above this one
    compared  : the same decodings with their changes; None: without
    view      : what `view.html.j2` lets the reader choose; None: nothing
    by        : what the decodings differ in, as `Trends.by`
    groups    : labels and addresses of the pages of single values of the group; "" where there is none
    events    : that the charts over periods mark
    """
    if by == PERIOD:
        of_one = (decoding for decoding in decodings if len(decoding["periods"]) == 1)
        dated = sorted(of_one, key=lambda decoding: str(decoding["periods"][0]))
    else:
        dated = list(decodings)
    trends = read_trends(dated, [1.0 if by == PERIOD else decoding["num_reports"] for decoding in dated])
    word = str(metric.period) if by == PERIOD else by
    levels = {format_level(decoding["confidence"]) for decoding in dated}
    days = [_label(decoding, by) for decoding in dated]
    together = sorted({period for decoding in dated for period in decoding["periods"]})
    tested = any(decoding["detection_limit"] is not None for decoding in decodings)
    is_noise = tested and not any(trend.num_detected for trend in trends)
    is_one_period = by == PERIOD and len(dated) == 1
    if is_noise:
        trends.sort(key=lambda trend: trend.label)
    means = list(read_means(dated, by))
    numbers = next((decoding for decoding in dated if decoding.get("numbers") is not None), None)
    buckets = None if numbers is None else Buckets.from_dict(numbers["metric"]["buckets"])
    unit = (buckets.unit if buckets is not None else "") or metric.name
    has_buckets = numbers is not None and numbers["numbers"]["buckets"]
    changes = [] if compared is None else list(change_rows(compared))
    marked = marked_periods(events, metric.name, days, metric.period) if by == PERIOD else {}
    return render(
        "metric.html.j2",
        scripts,
        {
            "level": min(levels, default=""),
            "by": word,
            "ordered": by == PERIOD,
            "trends": _chart_data(trends[:MAX_ROWS], days),
            "means": mean_chart(means, unit),
            "events": [{"period": day, "labels": [event.label for event in found]} for day, found in marked.items()],
        },
        {
            **about(metric, provenance, path, view),
            "by": word,
            "by_period": by == PERIOD,
            "tested": tested,
            "is_noise": is_noise,
            "is_one_period": is_one_period,
            "has_chart": not (is_noise or is_one_period),
            "level": min(levels, default=""),
            "trends": trends[:MAX_ROWS],
            "num_trends": len(trends),
            "days": days,
            "together": together,
            "means": [(period, number_texts(mean)) for period, mean in means],
            "unit": unit,
            "representative": representative_name(buckets) if buckets is not None and has_buckets else "",
            "fdr": compared.comparisons[0].fdr if compared is not None and compared.comparisons else None,
            "changes": changes[:MAX_ROWS],
            "num_changes": len(changes),
            "change_lines": [] if compared is None else list(change_lines(compared)),
            "periods": periods,
            "groups": groups,
            "marked": marked,
        },
    )


def read_trends(decodings: Sequence[Mapping[str, Any]], weights: Sequence[float]) -> list[Trend]:
    """Trends of all candidates in descending order of their mean share; what is not determined comes last."""
    columns = [{estimate["candidate"]: estimate for estimate in decoding["estimates"]} for decoding in decodings]
    names = dict.fromkeys(name for column in columns for name in column)
    trends = [_trend(name, [column.get(name, {}) for column in columns], tuple(weights)) for name in names]
    return sorted(trends, key=lambda trend: (math.isnan(trend.mean), -trend.mean))


def _trend(name: str, estimates: Sequence[Mapping[str, Any]], weights: tuple[float, ...]) -> Trend:
    def column(field: str) -> Iterator[float]:
        return (math.nan if estimate.get(field) is None else estimate[field] for estimate in estimates)

    others = next((estimate["indistinguishable_from"] for estimate in estimates if estimate), ())
    label = group_name((name, *others))
    detected = tuple(estimate.get("detected") for estimate in estimates)
    return Trend(label, tuple(column("share")), tuple(column("low")), tuple(column("high")), detected, weights)


def _chart_data(trends: Sequence[Trend], periods: Sequence[str]) -> dict[str, Any]:
    return {
        "periods": list(periods),
        "labels": [trend.label for trend in trends],
        **{name: [json_numbers(getattr(trend, name)) for trend in trends] for name in ("share", "low", "high")},
    }


def change_rows(trends: Trends) -> Iterator[tuple[str, str, str, Change]]:
    """Yield name, both periods and the change of the detected changes.

    Those over all periods come first, then those from one period to the next, the latest first. Those of the same periods are in descending
    order of size.
    """
    over_all = [trends.overall] if trends.overall is not None and len(trends) > 2 else []
    for comparison in (*over_all, *reversed(trends.comparisons)):
        before, after = (label_of(decoding, trends.by) for decoding in (comparison.a, comparison.b))
        for change in comparison.detected:
            yield group_name(change.group), before, after, change


def _label(document: Mapping[str, Any], by: str) -> str:
    """First day of the period of a document, or value of its group."""
    return str(document["periods"][0] if by == PERIOD else document["metric"]["group"]["value"])


def read_means(decodings: Sequence[Mapping[str, Any]], by: str = PERIOD) -> Iterator[tuple[str, Mean]]:
    """Yield the periods with numbers in documents of single periods, and their means."""
    for decoding in decodings:
        if decoding.get("numbers") is not None:
            fields = decoding["numbers"]["mean"].items()
            yield (
                _label(decoding, by),
                Mean(**{name: math.nan if number is None else number for name, number in fields}),
            )


def mean_chart(means: Sequence[tuple[str, Mean]], unit: str) -> dict[str, Any]:
    """Numbers of the chart of the means that are determined, with the texts of the table; the bars are the intervals that always hold."""
    known = [(period, mean) for period, mean in means if not math.isnan(mean.value)]
    return {
        "unit": unit,
        "periods": [period for period, _ in known],
        "value": json_numbers([mean.value for _, mean in known]),
        "low": json_numbers([mean.lowest for _, mean in known]),
        "high": json_numbers([mean.highest for _, mean in known]),
        "texts": [number_texts(mean) for _, mean in known],
    }
