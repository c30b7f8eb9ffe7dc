"""Whether the published intervals cover the true shares of the people who reported."""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from scipy.stats import binom

from hubbub import Metric
from hubbub.metrics.kinds import MeanKind
from tests.system.year.definitions import DISCOVERED
from tests.system.year.deployment import Deployment
from tests.system.year.publication_check import published
from tests.system.year.values import UNKNOWN, Unit

ALPHA = 1e-6


@dataclass(frozen=True)
class Interval:
    """A published interval and the true share, or mean."""

    name: str
    low: float
    high: float
    truth: float

    @property
    def covers(self) -> bool:
        """Whether the truth is in the interval."""
        return self.low - 1e-12 <= self.truth <= self.high + 1e-12


def true_share(metric: Metric, values: Sequence[Hashable], candidate: str) -> float:
    """Return the share of the reports that stand for a candidate."""

    def stands_for(value: Any) -> bool:
        match str(metric.kind.word):
            case "boolean":
                return bool(value)
            case "set":
                return value is not None and candidate in value
            case "ordinal":
                buckets = metric.kind.buckets  # type: ignore[attr-defined]
                edges = list(buckets.edges)
                number = buckets.default if value is None else value
                return bool(buckets.labels[min(bisect_right(edges, number), len(buckets.labels)) - 1] == candidate)
        return bool(value == candidate)

    return sum(map(stands_for, values)) / len(values)


def true_mean(metric: Metric, values: Sequence[Any]) -> float:
    """Return the mean of the numbers."""
    default = metric.kind.buckets.default  # type: ignore[attr-defined]
    return math.fsum(default if value is None else value for value in values) / len(values)


def values_of(deployment: Deployment) -> dict[tuple[str, str, str], list[Hashable]]:
    """Return what the stored reports of each period stand for."""
    found: dict[tuple[str, str, str], list[Hashable]] = {}
    for request in deployment.service.counted():
        batch, values = request.batch, [unit.value for unit in request.units if isinstance(unit, Unit)]
        if UNKNOWN not in values:
            for group in {batch.group, ""}:
                found.setdefault((batch.digest, group, batch.period), []).extend(values)
    return found


def discoveries(deployment: Deployment) -> tuple[list[dict[str, Any]], list[Unit]]:
    """Return the estimates of the last `discover`, and the units of the reports that it read."""
    file = deployment.analyst.discoveries
    decoding = json.loads(file.read_text())["decoding"] if file.exists() else None
    if decoding is None:
        return [], []
    read = [
        request
        for request in deployment.service.counted()
        if request.batch.digest == DISCOVERED.metric.digest and request.batch.period in decoding["periods"]
    ]
    return decoding["estimates"], [unit for request in read for unit in request.units if isinstance(unit, Unit)]


def intervals(deployment: Deployment, *, all_of_them: bool = False) -> list[Interval]:
    """Return published intervals with independent errors: one of each definition, drawn before anything is known about it.

    The permanent noise of a person is in all periods of a definition, and the shares of one period add up. So other intervals of the same
    definition depend on this one, and to count them as independent would promise more than the guarantee does.
    """
    metrics = {metric.digest: metric for metric in deployment.service.definitions.versions()}
    truths, found = values_of(deployment), dict[str, list[Interval]]()
    for name, key, period in published(deployment):
        if key not in truths:  # reports of the release
            continue
        metric, own = metrics[key[0]], found.setdefault(key[0], [])
        values = truths[key]
        for estimate in period["estimates"]:
            if estimate["low"] is not None and isinstance(estimate["candidate"], str):
                truth = true_share(metric, values, estimate["candidate"])
                own.append(
                    Interval(f"{name} {key[1:]} {estimate['candidate']}", estimate["low"], estimate["high"], truth)
                )
        numbers = period["numbers"] if isinstance(metric.kind, MeanKind) else None
        if numbers:
            mean = numbers.get("mean", numbers)
            if mean is not None and mean.get("low") is not None:
                own.append(Interval(f"{name} {key[1:]} mean", mean["low"], mean["high"], true_mean(metric, values)))
    if all_of_them:
        return [interval for own in found.values() for interval in own]
    chance = Random(len(deployment.service.requests))  # noqa: S311  (a choice that does not depend on the intervals)
    return [chance.choice(own) for own in found.values() if own]


def most_misses(number: int, rate: float = 0.05) -> int:
    """Return the largest number of independent intervals that miss, unless something is wrong or a chance of 1e-6 happened."""
    return int(binom.isf(ALPHA, number, rate))


def false_detections(deployment: Deployment) -> tuple[float, int]:
    """Return the sum of the false shares of the detected candidates, and the number of definitions: one period of each."""
    metrics = {metric.digest: metric for metric in deployment.service.definitions.versions()}
    truths, shares = values_of(deployment), dict[str, float]()
    for _, key, period in published(deployment):
        if key not in truths:
            continue
        detected = [e["candidate"] for e in period["estimates"] if e["detected"] and isinstance(e["candidate"], str)]
        metric = metrics[key[0]]
        wrong = [name for name in detected if true_share(metric, truths[key], name) == 0]
        shares.setdefault(key[0], len(wrong) / max(len(detected), 1))
    return sum(shares.values()), len(shares)


def false_discoveries(deployment: Deployment) -> float:
    """Return the share of the discovered strings that nobody reported, or one person alone, who is in one of the groups of clients only."""
    strings, units = discoveries(deployment)
    detected = [string["candidate"] for string in strings if string["detected"]]
    wrong = [name for name in detected if len({id(unit) for unit in units if unit.value == name}) < 2]
    return len(wrong) / max(len(detected), 1)
