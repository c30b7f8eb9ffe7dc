"""Figures of summaries and counters of refusals in the database, one statement per query for any number of metrics and periods.

SQLite answers all of them from the index `ix_collection_figures`: no statement here may name `collection.summary`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import Engine, case, func, or_, select, update

from hubbub_aggregator.database.engine import fetch_all, insert_new, transaction
from hubbub_aggregator.database.schema import collection, refusal, schema, segment
from hubbub_aggregator.store.period_figures import PeriodFigures, StoredFigures, VersionTotals

_REVISION, _REPORTS = collection.c.revision, collection.c.num_reports
_IS_STALE = (_REVISION > 0) & or_(collection.c.figures_revision.is_(None), collection.c.figures_revision != _REVISION)


class SqlFigures:
    """`FigureStore` on SQLite and PostgreSQL."""

    _engine: Engine

    def version_totals(self) -> dict[str, VersionTotals]:
        latest = func.max(case((_REVISION > 0, collection.c.period)))
        implausible = func.sum(case((collection.c.implausible != "", 1), else_=0))
        stale = func.sum(case((_IS_STALE, 1), else_=0))
        query = select(collection.c.digest, func.coalesce(func.sum(_REPORTS), 0), latest, implausible, stale)
        return {
            digest: VersionTotals(int(reports), latest, int(implausible), int(stale))
            for digest, reports, latest, implausible, stale in fetch_all(
                self._engine, query.group_by(collection.c.digest)
            )
        }

    def recent_reports(self, digests: Collection[str], since: str) -> dict[tuple[str, str], int]:
        query = select(collection.c.digest, collection.c.period, _REPORTS)
        query = query.where(collection.c.digest.in_(digests), collection.c.period >= since, _REPORTS > 0)
        return {(digest, period): reports for digest, period, reports in fetch_all(self._engine, query)}

    def period_rows(self, digests: Collection[str]) -> list[StoredFigures]:
        query = select(
            *(collection.c.digest, collection.c.period, _REVISION, _REPORTS),
            *(collection.c.smallest_cohort, collection.c.implausible, _IS_STALE),
        )
        query = query.where(collection.c.digest.in_(digests)).order_by(collection.c.period)
        return [
            StoredFigures(
                digest,
                period,
                revision,
                None if reports is None else PeriodFigures(reports, smallest, tuple(implausible.split())),
                bool(is_stale),
            )
            for digest, period, revision, reports, smallest, implausible, is_stale in fetch_all(self._engine, query)
        ]

    def unfolded_reports(self) -> dict[tuple[str, str], tuple[int, int]]:
        counted = func.count(), func.sum(func.length(segment.c.cohorts))
        query = select(collection.c.digest, collection.c.period, *counted).join_from(segment, collection)
        rows = fetch_all(self._engine, query.group_by(collection.c.digest, collection.c.period))
        return {(digest, period): (segments, int(reports)) for digest, period, segments, reports in rows}

    def implausible_periods(self) -> dict[tuple[str, str], int]:
        query = select(collection.c.digest, collection.c.implausible, func.count()).where(
            collection.c.implausible != ""
        )
        counts: dict[tuple[str, str], int] = {}
        for digest, kinds, periods in fetch_all(
            self._engine, query.group_by(collection.c.digest, collection.c.implausible)
        ):
            for kind in kinds.split():
                counts[digest, kind] = counts.get((digest, kind), 0) + periods
        return counts

    def stale_figures(self) -> list[tuple[str, str, int]]:
        query = select(collection.c.digest, collection.c.period, _REVISION).where(_IS_STALE)
        rows = fetch_all(self._engine, query.order_by(collection.c.period.desc()))
        return [(digest, period, revision) for digest, period, revision in rows]

    def put_figures(self, rows: Sequence[StoredFigures]) -> None:
        with transaction(self._engine, writes=True) as connection:
            for row in rows:
                is_this = (collection.c.digest == row.digest) & (collection.c.period == row.period)
                put = update(collection).where(is_this, collection.c.revision == row.revision)
                connection.execute(put.values(**figure_columns(row.figures or PeriodFigures(), row.revision)))

    def segment_ids(self) -> tuple[int, int] | None:
        ((oldest, newest),) = fetch_all(self._engine, select(func.min(segment.c.id), func.max(segment.c.id)))
        return None if oldest is None else (oldest, newest)

    def segments_waiting(self) -> int:
        ((waiting,),) = fetch_all(self._engine, select(func.count()).select_from(segment))
        return int(waiting)

    def last_backup(self) -> int | None:
        return next((last for (last,) in fetch_all(self._engine, select(schema.c.last_backup))), None)

    def add_refusals(self, counts: Mapping[tuple[str, str], int]) -> None:
        with transaction(self._engine, writes=True) as connection:
            for (metric, reason), count in sorted(counts.items()):
                is_this = (refusal.c.metric == metric) & (refusal.c.reason == reason)
                connection.execute(insert_new(connection, refusal), {"metric": metric, "reason": reason, "count": 0})
                connection.execute(update(refusal).where(is_this).values(count=refusal.c.count + count))

    def refusals(self) -> dict[tuple[str, str], int]:
        return {(row.metric, row.reason): row[2] for row in fetch_all(self._engine, select(refusal))}


def figure_columns(figures: PeriodFigures, revision: object) -> dict[str, object]:
    """Return the columns of `collection` for the figures of a summary at a revision."""
    return {
        "figures_revision": revision,
        "num_reports": figures.reports,
        "smallest_cohort": figures.smallest_cohort,
        "implausible": " ".join(figures.implausible),
    }
