"""A period's end: closed when it takes no more reports, purged when its counts have been kept long enough.

open      one day before it starts until 30 days after it ends: reports are taken, ids are kept
dropped   `keep_reports` periods after its end, if its metric retains reports at all: what is kept beside the counts goes
closed    reports are refused, for ever, in the store itself; the ids go
purged    `keep_counts` periods after its end: its counts and reports go, that it was closed stays
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import lru_cache, partial

from hubbub.metrics.definitions import Definitions
from hubbub.metrics.metric import Metric
from hubbub.metrics.periods import PeriodKind
from hubbub.wire.dates import parse_period
from hubbub_aggregator.errors import JobError, StoppedError
from hubbub_aggregator.monitoring.job_health import failure_text
from hubbub_aggregator.monitoring.log_output import log_always
from hubbub_aggregator.pipeline.credible_clock import Reading
from hubbub_aggregator.pipeline.folding import fold
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.interface import Store

logger = logging.getLogger(__name__)


def upkeep(
    store: Store,
    definitions: Definitions,
    settings: Settings,
    clock: Reading | datetime,
    elapsed: Callable[[], float] = time.monotonic,
) -> None:
    """Fold all segments; close, drop and purge what is due, unless the clock is in doubt; end when the store is stopped.

    Each of these may be interrupted at any point, and the next call continues. Closing, dropping and purging take bounded
    steps, and between two of them all is folded again once `fold_interval` seconds have passed. A failure with one version
    of a metric does not keep the others; a JobError names the versions that failed.
    """
    reading = clock if isinstance(clock, Reading) else Reading(clock)
    with suppress(StoppedError):
        _Round(store, definitions, settings, reading, elapsed).run()


class _Round:
    """One round of upkeep."""

    def __init__(
        self,
        store: Store,
        definitions: Definitions,
        settings: Settings,
        clock: Reading,
        elapsed: Callable[[], float],
    ) -> None:
        self._store = store
        self._definitions = definitions
        self._settings = settings
        self._clock = clock
        self._elapsed = elapsed
        self._folded_at = 0.0
        self._failed: dict[str, str] = {}

    def run(self) -> None:
        self._fold_all()
        if self._clock.may_delete:
            open_, half_closed, retained = map(
                _by_digest,
                (self._store.open_periods(), self._store.half_closed_periods(), self._store.periods_retained()),
            )
            for metric in self._definitions.versions():
                due = [text for text in open_.get(metric.digest, []) if self._is_over(metric, text)]
                to_close = [*half_closed.get(metric.digest, []), *due]
                with self._guard(metric):
                    self._delete_due(metric, to_close, retained.get(metric.digest, []))
        if self._failed:
            told = "; ".join(f"{why} ({', '.join(names)})" for why, names in _by_cause(self._failed).items())
            raise JobError(told)

    def _fold_all(self) -> None:
        unfolded = {digest for digest, _ in self._store.unfolded_reports()}
        for metric in self._definitions.versions():
            if metric.digest in unfolded:
                with self._guard(metric):
                    fold(self._store, metric, keeps_reports=partial(self._retains, metric))
        self._folded_at = self._elapsed()

    def _fold_if_due(self) -> None:
        if self._elapsed() - self._folded_at >= self._settings.fold_interval:
            self._fold_all()

    @contextmanager
    def _guard(self, metric: Metric) -> Iterator[None]:
        try:
            yield
        except StoppedError:
            raise
        except Exception as problem:  # noqa: BLE001  (it keeps none of the others)
            self._failed[metric.name] = failure_text(problem)

    def _retains(self, metric: Metric, text: str) -> bool:
        """Say whether reports are retained by any of the times that may be the true one."""
        return any(keeps_reports(metric, self._settings, text, now) for now in self._clock.candidates)

    def _is_over(self, metric: Metric, text: str) -> bool:
        return self._clock.now >= parse_period(metric.period, text).closes()

    def _delete_due(self, metric: Metric, to_close: Iterable[str], retained: Iterable[str]) -> None:
        store, between = self._store, self._fold_if_due
        for text in to_close:
            store.close_period(metric.digest, text, between)
            _log(metric, text, "closed", "it takes no more reports, its batch ids are deleted")
        for text in retained:
            if not self._retains(metric, text):
                store.drop_reports(metric.digest, text, between)
                _log(metric, text, "dropped", "its retained reports are deleted")
        keep = self._settings.keep_counts.get(metric.name)
        if keep is not None:
            for text in store.closed_periods(metric.digest):
                if self._clock.now >= counts_expire_at(metric, text, keep):
                    store.purge(metric.digest, text, between)
                    _log(metric, text, "purged", "its counts are deleted")


def _by_digest(periods: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for digest, text in periods:
        grouped.setdefault(digest, []).append(text)
    return grouped


def _log(metric: Metric, text: str, action: str, meaning: str) -> None:
    """Log what is deleted, at every level: it cannot be brought back."""
    line = f"{action} the {metric.period} {text} of {metric.name} ({metric.digest[:12]}): {meaning}"
    log_always(logger, line, action=action, metric=metric.name, digest=metric.digest, period=text)


def _by_cause(failed: Mapping[str, str]) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for name, why in failed.items():
        names.setdefault(why, []).append(name)
    return names


def counts_expire_at(metric: Metric, text: str, keep: int) -> datetime:
    """Return when a period's counts go: `keep_counts` periods after its end, not before it is closed."""
    return max(parse_period(metric.period, text).closes(), _after(metric.period, text, keep))


def keeps_reports(metric: Metric, settings: Settings, text: str, now: datetime) -> bool:
    """Say whether a period's reports are kept beside their counts: until `keep_reports` periods after its end."""
    retain = settings.keep_reports.get(metric.name)
    return retain is not None and now < _after(metric.period, text, retain)


@lru_cache(maxsize=1_024)
def _after(kind: PeriodKind, text: str, periods: int) -> datetime:
    """Return when so many periods have passed after the end of one."""
    period = parse_period(kind, text)
    for _ in range(periods):
        period = period.next()
    return period.closes(timedelta(0))
