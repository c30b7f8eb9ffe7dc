"""Life of a period: fold its segments, delete its retained reports, close it, and purge it.

open      from one day before its start until 30 days after its end: reports are accepted, batch ids are stored
dropped   `keep_reports` periods after its end, or at once with 0: its retained reports are deleted
closed    reports are refused permanently, by the store itself, of all values of a group at once; its batch ids are deleted
purged    `keep_counts` periods after its end: its counts and reports are deleted; it stays closed

Reports and counts are deleted only for a metric that the definitions contain and a setting names. What earlier processes were told to
retain stays without a setting, and a warning names it.
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
from hubbub.text import format_count
from hubbub.wire.dates import parse_period
from hubbub_aggregator.errors import JobError, StoppedError
from hubbub_aggregator.monitoring.jobs import failure_text
from hubbub_aggregator.monitoring.log_output import log_always
from hubbub_aggregator.pipeline.credible_clock import Reading
from hubbub_aggregator.pipeline.folding import fold
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.interface import PeriodStore

logger = logging.getLogger(__name__)


def upkeep(
    store: PeriodStore,
    definitions: Definitions,
    settings: Settings,
    clock: Reading | datetime,
    elapsed: Callable[[], float] = time.monotonic,
) -> None:
    """Fold all segments; then close, drop and purge the periods that are due, if the clock is credible.

    elapsed : returns monotonic seconds

    May be interrupted at any point; the next call continues. Deletion runs in bounded steps. Between two steps all
    segments are folded again once `fold_interval` seconds have passed. Returns early when the store is stopped. Raises
    JobError, after all others are done, with the metrics that failed.
    """
    reading = clock if isinstance(clock, Reading) else Reading(clock)
    with suppress(StoppedError):
        _Round(store, definitions, settings, reading, elapsed).run()


class _Round:
    """State of one call of `upkeep`."""

    def __init__(
        self,
        store: PeriodStore,
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
            for metric in self._definitions.collections():
                due = [text for text in open_.get(metric.digest, []) if self._is_over(metric, text)]
                to_close = [*half_closed.get(metric.digest, []), *due]
                with self._guard(metric):
                    self._delete_due(metric, to_close, retained.get(metric.digest, []))
        if self._failed:
            raise JobError("; ".join(f"{text} ({', '.join(names)})" for text, names in _by_text(self._failed).items()))

    def _fold_all(self) -> None:
        unfolded = {digest for digest, _ in self._store.unfolded_reports()}
        for metric in self._definitions.collections():
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
        except Exception as problem:  # noqa: BLE001  (the other versions go on)
            self._failed[metric.name] = failure_text(problem)

    def _retains(self, metric: Metric, text: str) -> bool:
        """Return whether reports are retained beside their counts; while the clock is in doubt, all that may have to be."""
        if not self._clock.may_delete:
            return bool(self._settings.keep_reports.get(metric.name))
        return keeps_reports(metric, self._settings, text, self._clock.now)

    def _is_over(self, metric: Metric, text: str) -> bool:
        return self._clock.now >= parse_period(metric.period, text).closes()

    def _delete_due(self, metric: Metric, to_close: Iterable[str], retained: Iterable[str]) -> None:
        store = self._store
        for text in to_close:
            self._delete(
                partial(store.close_period, metric),
                metric,
                text,
                "closed",
                "new reports are refused, its batch ids are deleted",
            )
        for text in retained:
            if deletes_reports(metric, self._settings, text, self._clock.now):
                self._delete(
                    partial(store.drop_reports, metric.digest),
                    metric,
                    text,
                    "dropped",
                    "its retained reports are deleted",
                )
        keep = self._settings.keep_counts.get(metric.name)
        if keep is not None:
            for text in store.closed_periods(metric.digest):
                if self._clock.now >= counts_expire_at(metric, text, keep):
                    self._delete(partial(store.purge, metric.digest), metric, text, "purged", "its counts are deleted")

    def _delete(
        self, step: Callable[[str, Callable[[], None]], None], metric: Metric, text: str, action: str, meaning: str
    ) -> None:
        """Run one deletion of a period and log it, unless another replica has the period's lease."""
        with self._store.lease(metric.digest, text) as held:
            if held:
                step(text, self._fold_if_due)
                _log(metric, text, action, meaning)


def _by_digest(periods: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for digest, text in periods:
        grouped.setdefault(digest, []).append(text)
    return grouped


def _log(metric: Metric, text: str, action: str, meaning: str) -> None:
    """Log a deletion at every level: it cannot be undone."""
    line = f"{action} the {metric.period} {text} of {metric.name} ({metric.digest[:12]}): {meaning}"
    fields = {"action": action, "metric": metric.name, "digest": metric.digest, "period": text}
    log_always(logger, line, fields)


def _by_text(failed: Mapping[str, str]) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for name, text in failed.items():
        names.setdefault(text, []).append(name)
    return names


def counts_expire_at(metric: Metric, text: str, keep: int) -> datetime:
    """Return the time when a period's counts are purged: `keep_counts` periods after its end, and not before it closes."""
    return max(parse_period(metric.period, text).closes(), _after(metric.period, text, keep))


def keeps_reports(metric: Metric, settings: Settings, text: str, now: datetime) -> bool:
    """Return whether a period's reports are retained beside its counts: until `keep_reports` periods after its end, with 0 never."""
    return metric.name in settings.keep_reports and not deletes_reports(metric, settings, text, now)


def deletes_reports(metric: Metric, settings: Settings, text: str, now: datetime) -> bool:
    """Return whether a period's retained reports are deleted; False without a setting, whose absence asks for nothing."""
    keep = settings.keep_reports.get(metric.name)
    return keep is not None and (keep == 0 or now >= _after(metric.period, text, keep))


def warn_of_reports_without_rule(store: PeriodStore, definitions: Definitions, settings: Settings) -> None:
    """Log a warning for each metric version with retained reports that no setting keeps or deletes."""
    known = {metric.digest for metric in definitions.collections()}
    for digest in sorted({digest for digest, _ in store.periods_retained()}):
        name = store.metric_of(digest)
        if digest not in known:
            reason = "the definitions have no version with this digest"
            advice = "To change this, put its table back into the definitions, and pass"
        elif name not in settings.keep_reports:
            reason = f"--keep-reports does not name {name}, so new reports are counted only"
            advice = "Pass"
        else:
            continue
        logger.warning(
            "%s of %s (%s) stay stored without a rule: %s. %s --keep-reports %s=N to keep reports until N periods after the end of "
            "their period, or --keep-reports %s=0 to delete them",
            *(
                format_count(store.num_retained(digest), "retained report"),
                name,
                digest[:12],
                reason,
                advice,
                name,
                name,
            ),
        )


@lru_cache(maxsize=1_024)
def _after(kind: PeriodKind, text: str, periods: int) -> datetime:
    """Return the time that lies `periods` periods after the end of a period."""
    period = parse_period(kind, text)
    for _ in range(periods):
        period = period.next()
    return period.closes(timedelta(0))
