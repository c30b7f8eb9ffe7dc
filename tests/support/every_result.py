"""A result of every kind of metric, and of every way in which a candidate is tested or not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np

from hubbub import Metric, Params
from hubbub.metrics.kinds import JointKind, MeanKind, StringKind
from hubbub.summary import BitCounts, Reports
from hubbub_decoder import Discoveries, associate, compare, decode, decode_each, simulate
from hubbub_decoder.results.table_result import TableResult
from tests.support.every_kind import METRICS

STRINGS = ("start", "mail", "news", "absent")
NUM_CLIENTS = 20_000
DAYS = ("2026-03-02", "2026-03-03")


def population_of(metric: Metric) -> Mapping[Any, int]:
    """Clients by value, of all values of the metric but the last; of strings, of all but the last candidate."""
    if isinstance(metric.kind, JointKind):
        parts = [list(population_of(part)) for part in metric.components]
        values: list[Any] = list(zip(*(part[:2] for part in parts), strict=True))
    elif metric.kind.needs_candidates:
        values = list(STRINGS[:-1])
    elif isinstance(metric.kind, MeanKind):
        values = ["100", "400"]
    else:
        values = list(metric.kind.estimated_values)
    return {value: NUM_CLIENTS // (number + 1) for number, value in enumerate(values[: max(1, len(values) - 1)])}


def candidates_of(metric: Metric) -> tuple[str, ...] | None:
    """Candidates, if the metric needs any."""
    return STRINGS if metric.kind.needs_candidates else None


def summary_of(metric: Metric, day: str = DAYS[0]) -> Any:
    """Summary of a day, the same for the same day."""
    form = Reports if isinstance(metric.kind, JointKind) else BitCounts
    rng = np.random.default_rng(DAYS.index(day))
    return simulate(metric, population_of(metric), rng, form=form, periods=[day])


def _results() -> Iterator[tuple[str, TableResult[Any]]]:
    for metric in METRICS:
        summary = summary_of(metric)
        if isinstance(metric.kind, JointKind):
            names = {part.name: STRINGS for part in metric.components if isinstance(part.kind, StringKind)}
            yield metric.name, associate(summary, names)
            for part in metric.components:
                yield f"{metric.name}.{part.name}", decode(summary.part(part.name), candidates_of(part))
            continue
        decoding = decode(summary, candidates_of(metric))
        yield metric.name, decoding
        if isinstance(metric.kind, StringKind) and metric.kind.discover is not None:
            yield f"{metric.name}, discovered", Discoveries(decoding)
        if not decoding.estimates:  # a mean
            continue
        if decoding.numbers is None:
            yield f"{metric.name}, forged", decode(summary, candidates_of(metric), fabricated=0.01)
        days = [summary_of(metric, day) for day in DAYS]
        yield f"{metric.name}, changes", compare(days[0], days[1], candidates_of(metric))
        yield f"{metric.name}, trends", decode_each(days, candidates_of(metric))
    sixteen = Params(num_bits=16, num_hashes=2, num_cohorts=8, prob_p=0.25, prob_q=0.75, prob_f=0.5)
    counts = simulate(Metric.string("screened", sixteen), {"start": NUM_CLIENTS}, np.random.default_rng(2))
    yield "screened", decode(counts, [*STRINGS, *(f"v{number}" for number in range(60))], method="lasso")


@cache
def results() -> Mapping[str, TableResult[Any]]:
    """Result of every kind of metric, by the name of the metric and what it is."""
    return MappingProxyType(dict(_results()))
