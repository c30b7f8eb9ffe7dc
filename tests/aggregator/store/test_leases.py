"""Leases of periods, with two replicas on one PostgreSQL database."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text

from hubbub import Definitions, Metric
from hubbub.wire.dates import parse_period
from hubbub_aggregator.errors import StoreError
from hubbub_aggregator.pipeline.folding import fold, read_summary
from hubbub_aggregator.pipeline.retention import upkeep
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.interface import StoredPeriod
from hubbub_aggregator.store.sql_store import SqlStore
from tests.support.databases import new_postgres

if TYPE_CHECKING:
    from tests.aggregator.conftest import MakeBatch

PERIOD = "2024-06-15"


@pytest.fixture
def replicas(postgres_url: str, closed_last: ExitStack) -> tuple[SqlStore, SqlStore]:
    database = new_postgres(postgres_url)
    first, second = SqlStore.open(database), SqlStore.open(database)
    for store in (first, second):
        closed_last.callback(store.close)
    return first, second


@pytest.fixture
def metric(definitions: Definitions) -> Metric:
    return definitions["homepage"]


def test_only_one_replica_folds_a_period_at_a_time(
    replicas: tuple[SqlStore, SqlStore], definitions: Definitions, metric: Metric, make_batch: MakeBatch
) -> None:
    first, second = replicas
    carrier = definitions["carrier"]
    second.append([make_batch(metric, period=PERIOD), make_batch(carrier, period=PERIOD)])
    with first.lease(metric.digest, PERIOD) as held:
        assert held
        with second.lease(metric.digest, PERIOD) as too:
            assert not too
        fold(second, metric)
        fold(second, carrier)
        assert second.unfolded(metric.digest) == [PERIOD]
        assert second.unfolded(carrier.digest) == []  # another period's lease is free
    fold(second, metric)
    assert second.unfolded(metric.digest) == []
    assert read_summary(first, metric).num_reports == 3


def test_reports_are_accepted_while_their_period_is_leased(
    replicas: tuple[SqlStore, SqlStore], metric: Metric, make_batch: MakeBatch
) -> None:
    first, second = replicas
    second.append([make_batch(metric, period=PERIOD)])
    with first.lease(metric.digest, PERIOD):
        second.append([make_batch(metric, period=PERIOD)])
        fold(first, metric)  # its own lease refuses it, as that of another replica would
        assert read_summary(second, metric).num_reports == 6


def test_lease_ends_with_the_connection_of_its_replica(
    replicas: tuple[SqlStore, SqlStore], metric: Metric, make_batch: MakeBatch
) -> None:
    first, second = replicas
    second.append([make_batch(metric, period=PERIOD)])
    others = text(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid() AND state = 'idle in transaction'"
    )

    def lose_the_connection() -> None:
        with first.lease(metric.digest, PERIOD) as held:
            assert held
            with second._engine.connect() as connection:
                assert connection.execute(others).scalars().all() == [True]
            fold(second, metric)

    with pytest.raises(StoreError, match="terminating connection"):
        lose_the_connection()
    assert second.unfolded(metric.digest) == []


def test_period_is_closed_by_one_replica_at_a_time(
    replicas: tuple[SqlStore, SqlStore], definitions: Definitions, metric: Metric, make_batch: MakeBatch
) -> None:
    first, second = replicas
    second.append([make_batch(metric, period=PERIOD)])
    after = parse_period(metric.period, PERIOD).closes()
    with first.lease(metric.digest, PERIOD):
        upkeep(second, definitions, Settings(), after)
        assert second.open_periods() == [(metric.digest, PERIOD)]
    upkeep(second, definitions, Settings(), after)
    assert second.open_periods() == []


def test_replicas_count_segments_once_each_instead_of_twice(
    replicas: tuple[SqlStore, SqlStore], metric: Metric, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second replica starts a round while the first one counts."""
    first, second = replicas
    first.append([make_batch(metric, period=PERIOD)])
    reads = list[str]()
    read, store_fold = SqlStore.read, SqlStore.fold

    def noted(self: SqlStore, *args: Any) -> Any:
        reads.append("first" if self is first else "second")
        return read(self, *args)

    def in_the_middle(self: SqlStore, stored: StoredPeriod, *args: Any) -> bool:
        if self is first:
            fold(second, metric)
        return store_fold(self, stored, *args)

    monkeypatch.setattr(SqlStore, "read", noted)
    monkeypatch.setattr(SqlStore, "fold", in_the_middle)
    fold(first, metric)
    assert reads == ["first"]


def test_lease_of_a_period_without_reports_is_not_held(replicas: tuple[SqlStore, SqlStore], metric: Metric) -> None:
    with replicas[0].lease(metric.digest, PERIOD) as held:
        assert not held


def test_sqlite_needs_no_lease(sqlite_store: SqlStore, metric: Metric) -> None:
    with sqlite_store.lease(metric.digest, PERIOD) as first, sqlite_store.lease(metric.digest, PERIOD) as second:
        assert first
        assert second
