"""A period's end: closed when it takes no more reports, purged when its counts have been kept long enough.

open      one day before it starts until 30 days after it ends: reports are taken, ids are kept
closed    reports are refused, for ever, in the store itself; the ids go
purged    `keep` periods after its end: its counts and reports go, that it was closed stays
"""

from __future__ import annotations

from datetime import datetime, timedelta

from hubbub.definitions import Definitions
from hubbub.metric import Metric
from hubbub.periods import Period
from hubbub_aggregator.folding import fold
from hubbub_aggregator.periodic import survived
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store import Store


def upkeep(store: Store, definitions: Definitions, settings: Settings, now: datetime) -> None:
    """Close what has ended, fold what waits, purge what was kept long enough; any of it may die half-way and come again.

    What fails for one version of a metric keeps none of the others.
    """
    open_periods = store.open_periods()
    for metric in definitions.versions():
        with survived(f"upkeep of {metric.name}"):
            for digest, text in open_periods:
                if digest == metric.digest and now >= Period.parse(metric.period, text).closes():
                    store.close_period(digest, text)
            fold(store, metric)
            _purge(store, metric, settings.keep.get(metric.name), now)


def _purge(store: Store, metric: Metric, keep: int | None, now: datetime) -> None:
    if keep is not None:
        for text in store.closed_periods(metric.digest):
            if now >= kept_until(metric, text, keep):
                store.purge(metric.digest, text)


def kept_until(metric: Metric, text: str, keep: int) -> datetime:
    """Return when a period's counts go: `keep` periods after its end, not before it is closed."""
    period = Period.parse(metric.period, text)
    after = period
    for _ in range(keep):
        after = after.next()
    return max(period.closes(), after.closes(timedelta(0)))
