"""Means of an ordinal metric by period, for its table and chart."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hubbub_decoder.report.rendering import json_numbers
from hubbub_decoder.results.ordinal import format_value


@dataclass(frozen=True, slots=True)
class PeriodMean:
    """Mean of one period with its intervals; nan where it is not determined.

    lowest, highest  : interval that holds wherever the numbers are in their buckets
    value, low, high : estimate and interval with one number for each bucket (`Mean`)
    """

    period: str
    lowest: float
    highest: float
    value: float
    low: float
    high: float

    @property
    def texts(self) -> tuple[str, str, str]:
        """Interval that always holds, estimate and its interval, as in the terminal."""
        if math.isnan(self.value):
            return "-", "-", "-"
        intervals = ((self.lowest, self.highest), (self.low, self.high))
        first, second = (f"{format_value(low)} .. {format_value(high)}" for low, high in intervals)
        return first, format_value(self.value), second


def read_means(decodings: Sequence[Mapping[str, Any]]) -> Iterator[PeriodMean]:
    """Yield the means in documents of single periods."""
    for each in decodings:
        if each.get("numbers") is not None:
            mean = each["numbers"]["mean"]
            fields = ("lowest", "highest", "value", "low", "high")
            ends = (math.nan if mean[name] is None else mean[name] for name in fields)
            yield PeriodMean(each["periods"][0], *ends)


def mean_chart(means: Sequence[PeriodMean], unit: str) -> dict[str, Any]:
    """Numbers of the chart of the means that are determined, with the texts of the table; the bars are the intervals that always hold."""
    known = [mean for mean in means if not math.isnan(mean.value)]
    return {
        "unit": unit,
        "periods": [mean.period for mean in known],
        "value": json_numbers([mean.value for mean in known]),
        "low": json_numbers([mean.lowest for mean in known]),
        "high": json_numbers([mean.highest for mean in known]),
        "texts": [mean.texts for mean in known],
    }
