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
    """Mean of one period with its interval; nan where it is not determined."""

    period: str
    value: float
    low: float
    high: float

    @property
    def texts(self) -> tuple[str, str]:
        """Mean and interval, as in the terminal."""
        if math.isnan(self.value):
            return "-", "-"
        return format_value(self.value), f"{format_value(self.low)} .. {format_value(self.high)}"


def read_means(decodings: Sequence[Mapping[str, Any]]) -> Iterator[PeriodMean]:
    """Yield the means in documents of single periods."""
    for each in decodings:
        if each.get("numbers") is not None:
            mean = each["numbers"]["mean"]
            ends = (math.nan if mean[name] is None else mean[name] for name in ("value", "low", "high"))
            yield PeriodMean(each["periods"][0], *ends)


def mean_chart(means: Sequence[PeriodMean], unit: str) -> dict[str, Any]:
    """Numbers of the chart of the means that are determined, with the texts of the table."""
    known = [mean for mean in means if not math.isnan(mean.value)]
    return {
        "unit": unit,
        "periods": [mean.period for mean in known],
        "value": json_numbers([mean.value for mean in known]),
        "low": json_numbers([mean.low for mean in known]),
        "high": json_numbers([mean.high for mean in known]),
        "texts": [mean.texts for mean in known],
    }
