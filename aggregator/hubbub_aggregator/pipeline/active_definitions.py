"""The definitions in force, and their reload on SIGHUP.

A request or job reads `current` once and uses that value until it ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from threading import Lock

from hubbub.errors import DefinitionError, HubbubError
from hubbub.metrics.definitions import Definitions
from hubbub.metrics.metric import Metric
from hubbub.text import format_names
from hubbub.wire.dates import parse_period
from hubbub_aggregator.monitoring.log_output import log_always
from hubbub_aggregator.store.interface import PeriodStore

logger = logging.getLogger(__name__)

_OVERHEAD_BYTES = 1 << 16
"""JSON of a batch without its reports: ids, names, white space, fields of later versions."""
_COHORT_BYTES = 5
"""JSON of one cohort: `255, `."""


class ActiveDefinitions:
    """Definitions in force, `current`; `reload` replaces all of them, or none if the new ones are not acceptable.

    load         : reads the definitions file
    open_periods : returns the digest and period of each open period with reports
    max_reports  : most reports in one batch

    `largest_batch` is the size in bytes of the largest JSON of a batch under the current definitions.
    """

    def __init__(
        self,
        definitions: Definitions,
        load: Callable[[], Definitions],
        open_periods: Callable[[], Iterable[tuple[str, str]]],
        max_reports: int = 10_000,
    ) -> None:
        self._max_reports = max_reports
        self._replace(definitions)
        self.last_reload_ok = True
        self._load = load
        self._open_periods = open_periods
        self._lock = Lock()

    def _replace(self, definitions: Definitions) -> None:
        self.current = definitions
        self.largest_batch = largest_batch(definitions, self._max_reports)

    def reload(self, *, always_log: bool = False) -> None:
        """Read the definitions file and replace the current definitions; keep them and log an error if that fails.

        always_log : log the changes at every log level
        """
        with self._lock:
            try:
                new = self._load()
                check_no_open_metric_removed(self.current, new, self._open_periods())
            except HubbubError as problem:
                self.last_reload_ok = False
                logger.error("the definitions were not reloaded, the previous ones stay in force: %s", problem)
                return
            changes = describe_changes(self.current, new)
            self._replace(new)
            self.last_reload_ok = True
        if always_log or logger.isEnabledFor(logging.INFO):
            text = "; ".join(f"{change}: {', '.join(versions)}" for change, versions in changes.items() if versions)
            text = f"reloaded the definitions of {', '.join(new)}; {text or 'nothing changed'}"
            log_always(logger, text, {"metrics": list(new), **changes})


def describe_changes(old: Definitions, new: Definitions) -> dict[str, list[str]]:
    """Return the metric versions that differ between two definitions, by kind of change.

    added, removed : versions in one of the two only
    current        : new current version of a metric in both
    changed        : versions with the same digest and other documentation (description, owner, purpose, review) or expiry
    """

    def label(metric: Metric) -> str:
        return f"{metric.name} {metric.digest[:12]}"

    before = {metric.digest: metric for metric in old.versions()}
    after = {metric.digest: metric for metric in new.versions()}
    return {
        "added": [label(metric) for digest, metric in after.items() if digest not in before],
        "removed": [label(metric) for digest, metric in before.items() if digest not in after],
        "current": [label(new[name]) for name in new if name in old and new[name].digest != old[name].digest],
        "changed": [label(metric) for digest, metric in after.items() if before.get(digest, metric) != metric],
    }


def check_no_open_metric_removed(old: Definitions, new: Definitions, open_periods: Iterable[tuple[str, str]]) -> None:
    """Raise DefinitionError if the new definitions lack a version with open periods.

    The aggregator would refuse the reports of that version. Editing a definition in place removes its version.
    """
    periods = _by_digest(open_periods)
    for metric in old.collections():
        still_open = periods.get(metric.digest, [])
        if still_open and new.version(metric.name, metric.in_group(None).digest) is None:
            closes = parse_period(metric.period, still_open[-1]).closes()
            raise DefinitionError(
                f"{metric.title} with digest {metric.in_group(None).digest[:12]} is changed or removed, but has open periods "
                f"({format_names(still_open)}), whose reports would be refused: keep its table in the file, above the "
                f"new version, until {closes:%Y-%m-%d}"
            )


def warn_of_removed_metrics(definitions: Definitions, store: PeriodStore) -> None:
    """Log a warning at the start for each version with open periods that the definitions lack.

    The start is not refused: that would lose the reports of all metrics because of one.
    """
    known = {metric.digest for metric in definitions.collections()}
    for digest, periods in _by_digest(store.open_periods()).items():
        if digest not in known:
            logger.warning(
                "%s with digest %s is changed or removed, but has open periods (%s): its reports are refused, and its periods "
                "are never closed or purged. Put its table back into the file, above the new version, until they are closed",
                store.metric_of(digest),
                digest[:12],
                format_names(periods),
            )


def _by_digest(open_periods: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the periods of each digest, in order."""
    periods: dict[str, list[str]] = {}
    for digest, period in sorted(open_periods):
        periods.setdefault(digest, []).append(period)
    return periods


def largest_batch(definitions: Definitions, max_reports: int) -> int:
    """Return the size in bytes of the largest JSON of a batch under these definitions.

        max_reports * (4/3 * ceil(k/8) + 5) + 64 KiB

    The three terms are the bits in base64, the cohorts, and everything else in the JSON.
    """
    row_bytes = max((metric.row_bytes for metric in definitions.versions()), default=1)
    return max_reports * (-(-row_bytes * 4 // 3) + _COHORT_BYTES) + _OVERHEAD_BYTES
