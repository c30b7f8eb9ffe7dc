"""The periods of which there are reports, with their numbers: what a program compares with the summaries that it has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from hubbub.metrics.metric import Metric
from hubbub_aggregator.store.interface import PeriodStore


@dataclass(frozen=True, slots=True)
class PeriodReports:
    """A period of a metric version, all values of its group together.

    num_reports : None: not computed yet; 0: they have been deleted, or there was none
    closed      : whether no report of it is accepted any more
    """

    metric: str
    digest: str
    period: str
    num_reports: int | None
    closed: bool


def list_periods(store: PeriodStore, versions: Sequence[Metric]) -> list[PeriodReports]:
    """Return the periods of metric versions, in the order of name, digest and period, without reading a summary.

    The number of SQL statements does not depend on the number of versions. They are not of one moment: reports that are folded meanwhile may
    be counted twice, and the next call has the right number. Open periods are read last, so that one that begins meanwhile is open.
    """
    unfolded = store.unfolded_reports()
    whole = {part.digest: version for version in versions for part in version.collections}
    reports = defaultdict[tuple[str, str], dict[str, int | None]](dict)
    for row in store.period_rows(whole):
        num_folded = row.figures.reports if row.figures else 0
        reports[whole[row.digest].digest, row.period][row.digest] = None if row.is_stale else num_folded
    for (digest, period), (_, more) in unfolded.items():
        if digest in whole:
            parts = reports[whole[digest].digest, period]
            folded = parts.get(digest, 0)
            parts[digest] = None if folded is None else folded + more
    is_open = {*store.open_periods()}
    by_digest, found = {version.digest: version for version in versions}, list[PeriodReports]()
    for (digest, period), parts in sorted(reports.items(), key=lambda item: (by_digest[item[0][0]].name, item[0])):
        version = by_digest[digest]
        known = [count for count in parts.values() if count is not None]
        closed = not any((part, period) in is_open for part in parts)
        number = sum(known) if len(known) == len(parts) else None
        found.append(PeriodReports(version.name, digest, period, number, closed))
    return found
