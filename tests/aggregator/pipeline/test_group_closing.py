"""Histories of periods of a metric with a group: counts that were read as closed are never added to, whenever the first report of a value comes."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from click.testing import CliRunner

from hubbub import Definitions, Metric
from hubbub.cli import main
from hubbub.summary import read_collected
from hubbub_aggregator.pipeline.folding import fold, read_summary
from hubbub_aggregator.pipeline.retention import upkeep
from hubbub_aggregator.segments.object_store import ObjectStore
from hubbub_aggregator.segments.segment_store import open_segment_store
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.interface import AppendResult, StoredPeriod
from hubbub_aggregator.store.sql_store import SqlStore
from tests.aggregator.pipeline.test_groups import PAGE, toml

if TYPE_CHECKING:
    from tests.aggregator.conftest import MakeBatch

VALUES = ("a", "b", "other")
DAYS = ("2024-06-15", "2024-06-16")
CLOSES = {day: datetime.fromisoformat(day).replace(tzinfo=UTC) + timedelta(days=31) for day in DAYS}
NUM_HISTORIES = 10
Parts = Counter[tuple[str, str]]
"""Number of reports by day and value."""


class History:
    """Random steps of services on one database. A report may be stored late: it was admitted just before its period closed."""

    def __init__(self, metric: Metric, stores: list[SqlStore], make_batch: MakeBatch, rng: np.random.Generator) -> None:
        self.metric, self.stores, self._make_batch, self.rng = metric, stores, make_batch, rng
        self.stored: Parts = Counter()
        self.read_as_closed: list[tuple[str, str | None, int]] = []
        """Day, value (None: all) and number of reports of each summary that said its period is closed."""

    def store(self) -> SqlStore:
        return self.stores[self.rng.integers(len(self.stores))]

    def append(self) -> None:
        """Store reports of some values, days, or both, in one commit."""
        parts = [(day, value) for day in DAYS for value in VALUES]
        chosen = [parts[number] for number in self.rng.integers(len(parts), size=self.rng.integers(1, 3))]
        batches = [self._make_batch(self.metric, n=int(self.rng.integers(1, 6)), period=d, group=v) for d, v in chosen]
        for part, batch, result in zip(chosen, batches, self.store().append(batches), strict=True):
            if result is AppendResult.STORED:
                self.stored[part] += len(batch)

    def close(self) -> None:
        """Close the first day, or both, as the service does."""
        self.close_all(CLOSES[DAYS[self.rng.integers(len(DAYS))]])

    def close_all(self, now: datetime) -> None:
        """Close the periods that are over."""
        upkeep(self.store(), Definitions([self.metric]), Settings(), now)

    def change(self) -> None:
        """Append, rarely close."""
        (self.append if self.rng.random() < 0.7 else self.close)()

    def saw(self, day: str, value: str | None, num_reports: int) -> None:
        """Remember a summary that says its period is closed."""
        self.read_as_closed.append((day, value, num_reports))

    def check(self) -> None:
        """Check that no report came to counts that had been read as closed."""
        for day, value, num_reports in self.read_as_closed:
            of = sum(n for (d, v), n in self.stored.items() if d == day and value in (None, v))
            assert num_reports == of, f"{day} {value or 'all values'}"


class InterruptedStore(SqlStore):
    """A store whose other users do something before each period that is read."""

    before_read: Callable[[], None]

    def read(
        self, digest: str, periods: Collection[str] | None = None, max_reports: int | None = None
    ) -> Iterator[StoredPeriod]:
        self.before_read()
        yield from super().read(digest, periods, max_reports)


def histories(stores: list[SqlStore], make_batch: MakeBatch, seed: int) -> Iterator[History]:
    """Yield histories without steps, each of a metric of its own."""
    for number in range(NUM_HISTORIES):
        yield History(replace(PAGE, name=f"page{number}"), stores, make_batch, np.random.default_rng([seed, number]))


def test_closed_counts_in_the_database_stay(database: str, make_batch: MakeBatch, unseen_seed: int) -> None:
    """The sum said that it was closed, and then the first report of a value was stored, because only the other values were closed."""
    sums_closed = 0
    with ExitStack() as stack:
        stores = [stack.enter_context(closing(SqlStore.open(database))) for _ in range(2)]
        reader = stack.enter_context(closing(InterruptedStore.open(database)))
        reader.before_read = _do_nothing
        for history in histories(stores, make_batch, unseen_seed):
            metric, rng = history.metric, history.rng
            for _ in range(12):
                history.change()
                day, value = DAYS[rng.integers(2)], (None, *VALUES)[rng.integers(4)]
                reader.before_read = history.change
                summary = read_summary(reader, metric.in_group(value), [day])
                reader.before_read = _do_nothing
                if summary.closed:
                    history.saw(day, value, summary.num_reports)
                    sums_closed += value is None
                if rng.random() < 0.3:
                    for collection in metric.collections:
                        fold(stores[0], collection)
            history.close_all(max(CLOSES.values()))
            for day in DAYS:
                summary = read_summary(reader, metric, [day])
                assert summary.closed == bool(summary.num_reports)
                history.saw(day, None, summary.num_reports)
            history.append()
            history.check()
    assert sums_closed, "sums were read as closed also before the end"


def _do_nothing() -> None:
    pass


def test_closed_counts_in_the_object_store_stay(
    make_batch: MakeBatch, unseen_seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`hubbub fold` wrote a sum that said it was closed, and a value came whose first segment is later."""
    list_names, before_listing = ObjectStore.names, list[Callable[[], None]]()

    def names(objects: ObjectStore, prefix: str = "") -> Iterator[str]:
        """List the objects after the services did something."""
        for change in before_listing:
            change()
        return list_names(objects, prefix)

    monkeypatch.setattr(ObjectStore, "names", names)
    sums_closed, objects = 0, ObjectStore.open(str(tmp_path / "segments"))
    with ExitStack() as stack:
        stores = [
            stack.enter_context(closing(open_segment_store(tmp_path / "reports.db", objects, uuid.uuid4)))
            for _ in range(2)
        ]
        for history in histories(stores, make_batch, unseen_seed):
            (tmp_path / "metrics.toml").write_text(toml([history.metric]))

            def change(history: History = history) -> None:
                if history.rng.random() < 0.3:
                    history.change()

            for _ in range(6):
                history.change()
                before_listing[:] = [change]
                fold_segments(tmp_path, history)
                before_listing.clear()
            sums_closed += sum(value is None for _, value, _ in history.read_as_closed)
            history.close_all(max(CLOSES.values()))
            fold_segments(tmp_path, history)
            assert {d for d, value, _ in history.read_as_closed if value is None} == {d for d, _ in history.stored}
            history.append()
            fold_segments(tmp_path, history)
            history.check()
            objects.delete(objects.names())
    assert sums_closed, "sums were read as closed also before the end"


def fold_segments(place: Path, history: History) -> None:
    """Run `hubbub fold`, and remember the summaries that say they are closed."""
    out = place / "out" / history.metric.name
    command = ["fold", str(place / "metrics.toml"), str(place / "segments"), "--out-dir", str(out), "--jobs", "1"]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0 or "has no segments" in done.stderr, done.output
    for path in out.glob("*.parquet"):
        summary = read_collected(path)
        if summary.closed:
            assert summary.metric.group is not None
            history.saw(summary.periods[0], summary.metric.group.value, summary.num_reports)


def test_values_closed_by_several_services_during_appends(
    database: str, make_batch: MakeBatch, unseen_seed: int
) -> None:
    """An append of several values and days locks them in the same order as closings, so that no two wait for each other."""
    days = [f"2024-06-{day}" for day in range(10, 15)]
    stored = Counter[str]()

    def append(seed: int) -> None:
        rng = np.random.default_rng([unseen_seed, seed])
        with closing(SqlStore.open(database)) as store:
            for _ in range(40):
                parts = [(days[rng.integers(5)], VALUES[rng.integers(3)]) for _ in range(4)]
                batches = [make_batch(PAGE, 1, period=day, group=value) for day, value in parts]
                for (day, _), result in zip(parts, store.append(batches), strict=True):
                    stored[day] += result is AppendResult.STORED

    def close(value: str) -> None:
        with closing(SqlStore.open(database)) as store:
            for day in days:
                store.close_period(PAGE.in_group(value), day)

    SqlStore.open(database).close()
    with ThreadPoolExecutor(6) as pool:
        for done in [
            *(pool.submit(append, seed) for seed in range(3)),
            *(pool.submit(close, value) for value in VALUES),
        ]:
            done.result()
    with closing(SqlStore.open(database)) as store:
        for day in days:
            summary = read_summary(store, PAGE, [day])
            assert summary.num_reports == stored[day]
            assert summary.closed == bool(stored[day])
