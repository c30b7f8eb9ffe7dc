"""A period's end: closed when it takes no more reports, purged when its counts have been kept long enough.

open      one day before it starts until 30 days after it ends: reports are taken, ids are kept
dropped   `retain` periods after its end, if its metric retains reports at all: what is kept beside the counts goes
closed    reports are refused, for ever, in the store itself; the ids go
purged    `keep` periods after its end: its counts and reports go, that it was closed stays
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import lru_cache, partial

from hubbub.definitions import Definitions
from hubbub.metric import Metric
from hubbub.periods import Period, PeriodKind
from hubbub_aggregator.folding import fold
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store import Store
from hubbub_aggregator.troubles import JobError, cause


def upkeep(store: Store, definitions: Definitions, settings: Settings, now: datetime) -> None:
    """Close what has ended, fold what waits, purge what was kept long enough; any of it may die half-way and come again.

    What fails for one version of a metric keeps none of the others; a JobError says of which it did.
    """
    open_periods, failed = store.open_periods(), {}
    for metric in definitions.versions():
        try:
            _look_after(
                metric, [text for digest, text in open_periods if digest == metric.digest], store, settings, now
            )
        except Exception as problem:  # noqa: BLE001  (it keeps none of the others)
            failed[metric.name] = cause(problem)
    if failed:
        raise JobError("; ".join(f"{why} ({', '.join(names)})" for why, names in _by_cause(failed).items()))


def _by_cause(failed: Mapping[str, str]) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for name, why in failed.items():
        names.setdefault(why, []).append(name)
    return names


def _look_after(metric: Metric, open_periods: list[str], store: Store, settings: Settings, now: datetime) -> None:
    for text in open_periods:
        if now >= Period.parse(metric.period, text).closes():
            store.close_period(metric.digest, text)
    retained = partial(retains, metric, settings, now=now)
    fold(store, metric, retains=retained)
    for text in store.periods_retained(metric.digest):
        if not retained(text):
            store.drop_reports(metric.digest, text)
    _purge(store, metric, settings.keep.get(metric.name), now)


def _purge(store: Store, metric: Metric, keep: int | None, now: datetime) -> None:
    if keep is not None:
        for text in store.closed_periods(metric.digest):
            if now >= kept_until(metric, text, keep):
                store.purge(metric.digest, text)


def kept_until(metric: Metric, text: str, keep: int) -> datetime:
    """Return when a period's counts go: `keep` periods after its end, not before it is closed."""
    return max(Period.parse(metric.period, text).closes(), _after(metric.period, text, keep))


def retains(metric: Metric, settings: Settings, text: str, now: datetime) -> bool:
    """Say whether a period's reports are kept beside their counts: until `retain` periods after its end."""
    retain = settings.retain.get(metric.name)
    return retain is not None and now < _after(metric.period, text, retain)


@lru_cache(maxsize=1_024)
def _after(kind: PeriodKind, text: str, periods: int) -> datetime:
    """Return when so many periods have passed after the end of one."""
    period = Period.parse(kind, text)
    for _ in range(periods):
        period = period.next()
    return period.closes(timedelta(0))
