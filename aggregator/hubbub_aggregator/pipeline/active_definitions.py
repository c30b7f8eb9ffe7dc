"""What is collected now: the definitions, and how they are exchanged for those that the file has meanwhile.

Whoever works with the definitions takes them once, and finishes under what it took.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from threading import Lock

from hubbub.errors import DefinitionError, HubbubError
from hubbub.metrics.definitions import Definitions
from hubbub.metrics.metric import Metric
from hubbub.wire.dates import parse_period
from hubbub_aggregator.monitoring.log_output import log_always
from hubbub_aggregator.store.interface import Store

logger = logging.getLogger(__name__)

_NAMED = 3
_AROUND = 1 << 16  # bytes of JSON beside the reports: ids, names, white space, fields of later versions
_COHORT_BYTES = 5  # "255, "


class ActiveDefinitions:
    """The definitions that hold, `now`; `reload` exchanges them whole or, if they cannot be taken, not at all.

    load         : reads the definitions that are to hold from now on
    open_periods : gives the digest and period of whatever takes reports still
    max_reports  : of one batch

    `largest_batch` is the size in bytes of the largest JSON that a batch of these definitions can need.
    """

    def __init__(
        self,
        definitions: Definitions,
        load: Callable[[], Definitions],
        open_periods: Callable[[], Iterable[tuple[str, str]]],
        max_reports: int = 10_000,
    ) -> None:
        self._max_reports = max_reports
        self._take(definitions)
        self.last_reload_ok = True
        self._load = load
        self._open_periods = open_periods
        self._lock = Lock()

    def _take(self, definitions: Definitions) -> None:
        self.current = definitions
        self.largest_batch = largest_batch(definitions, self._max_reports)

    def reload(self, *, asked: bool = False) -> None:
        """Take what the file says now; if that cannot be, say why and go on with what was.

        asked : somebody sent a signal, and is told what was taken whatever the level of the log
        """
        with self._lock:
            try:
                new = self._load()
                check_no_open_metric_removed(self.current, new, self._open_periods())
            except HubbubError as problem:
                self.last_reload_ok = False
                logger.error("the definitions are not reloaded, those of before hold on: %s", problem)
                return
            changes = describe_changes(self.current, new)
            self._take(new)
            self.last_reload_ok = True
        if asked or logger.isEnabledFor(logging.INFO):
            told = "; ".join(f"{what}: {', '.join(which)}" for what, which in changes.items() if which)
            text = f"the definitions are read, of {', '.join(new)}; {told or 'nothing changed'}"
            log_always(logger, text, metrics=list(new), **changes)


def describe_changes(old: Definitions, new: Definitions) -> dict[str, list[str]]:
    """Return the versions that are added and gone, the metrics that are collected under another of them, and the versions told otherwise."""

    def named(metric: Metric) -> str:
        return f"{metric.name} {metric.digest[:12]}"

    before = {metric.digest: metric for metric in old.versions()}
    after = {metric.digest: metric for metric in new.versions()}
    return {
        "added": [named(metric) for digest, metric in after.items() if digest not in before],
        "gone": [named(metric) for digest, metric in before.items() if digest not in after],
        "current": [named(new[name]) for name in new if name in old and new[name].digest != old[name].digest],
        "changed": [named(metric) for digest, metric in after.items() if before.get(digest, metric) != metric],
    }


def check_no_open_metric_removed(old: Definitions, new: Definitions, open_periods: Iterable[tuple[str, str]]) -> None:
    """Refuse definitions without a version whose periods still take reports: what clients send would be refused.

    Editing a definition in place drops the version that it was.
    """
    periods = _by_digest(open_periods)
    for metric in old.versions():
        left = periods.get(metric.digest, [])
        if left and new.version(metric.name, metric.digest) is None:
            closes = parse_period(metric.period, left[-1]).closes()
            raise DefinitionError(
                f"{metric.name} of digest {metric.digest[:12]} is changed or gone, and still takes reports of {_some(left)}: "
                f"leave its table in the file, above the new version, until {closes:%Y-%m-%d}"
            )


def warn_of_removed_metrics(definitions: Definitions, store: Store) -> None:
    """Say at the start which open periods in the store are of versions that the definitions have not.

    Nobody holds on to the definitions of before, as after a SIGHUP; a refused start would lose the reports of all metrics for one.
    """
    known = {metric.digest for metric in definitions.versions()}
    for digest, periods in _by_digest(store.open_periods()).items():
        if digest not in known:
            logger.warning(
                "%s of digest %s is changed or gone, and has open periods, %s: what clients send of it is refused, and they are "
                "never closed or purged: put its table back into the file, above the new version, until they are closed",
                store.metric_of(digest),
                digest[:12],
                _some(periods),
            )


def _by_digest(open_periods: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the periods of each digest, in order."""
    periods: dict[str, list[str]] = {}
    for digest, period in sorted(open_periods):
        periods.setdefault(digest, []).append(period)
    return periods


def _some(names: list[str]) -> str:
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def largest_batch(definitions: Definitions, max_reports: int) -> int:
    """Return the size in bytes of the largest JSON that a batch of these definitions can need.

    n reports of ceil(k/8) bytes take 4/3 of that in base64 and at most 5 bytes a cohort; 64 KiB are for the rest.
    """
    row_bytes = max((metric.params.row_bytes for metric in definitions.versions()), default=1)
    return max_reports * (-(-row_bytes * 4 // 3) + _COHORT_BYTES) + _AROUND
