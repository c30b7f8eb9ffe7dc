"""Figures of summaries: stored by each fold, computed later if missing, deleted with the counts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from sqlalchemy import update

from hubbub import Definitions
from hubbub.summary import summary_to_bytes
from hubbub_aggregator.database.engine import transaction
from hubbub_aggregator.database.schema import collection
from hubbub_aggregator.errors import JobError
from hubbub_aggregator.pipeline.folding import compute_figures, fold, summarize
from hubbub_aggregator.store.period_figures import PeriodFigures, VersionTotals
from hubbub_aggregator.store.sql_store import SqlStore
from tests.aggregator.conftest import NOON
from tests.aggregator.pipeline.test_implausible_reports import all_ones, honest
from tests.support.databases import sql
from tests.support.many_metrics import fill, many_definitions

if TYPE_CHECKING:
    from tests.aggregator.conftest import MakeBatch

YESTERDAY, TODAY = "2024-06-14", "2024-06-15"


def fold_as_an_older_hubbub(store: SqlStore, definitions: Definitions) -> None:
    """Fold without figures: an older hubbub knows nothing of their columns."""
    for metric in definitions.versions():
        for holding in store.read(metric.digest):
            if holding.segments:
                assert store.fold(holding, summary_to_bytes(summarize(metric, holding)))


def test_fold_stores_the_figures_of_its_summary(
    store: SqlStore, definitions: Definitions, make_batch: MakeBatch, unseen_seed: int
) -> None:
    homepage, rng = definitions["homepage"], np.random.default_rng(unseen_seed)
    assert VersionTotals() == VersionTotals(reports=0, latest=None, implausible=0, stale=0)
    store.append([honest(make_batch, homepage, 4_000, YESTERDAY, rng), honest(make_batch, homepage, 500, TODAY, rng)])
    fold(store, homepage)
    store.append([all_ones(make_batch, homepage, 40, TODAY)])
    assert store.unfolded_reports() == {(homepage.digest, TODAY): (1, 40)}
    fold(store, homepage)
    yesterday, today = store.period_rows([homepage.digest])
    assert yesterday.figures is not None
    assert (yesterday.figures.reports, yesterday.figures.implausible) == (4_000, ())
    assert 800 < yesterday.figures.smallest_cohort <= 1_000
    assert today.figures is not None
    assert (today.figures.reports, "shape" in today.figures.implausible) == (540, True)
    assert not yesterday.is_stale
    assert not today.is_stale
    assert store.version_totals() == {homepage.digest: VersionTotals(4_540, TODAY, implausible=1, stale=0)}
    assert store.implausible_periods()[homepage.digest, "shape"] == 1
    assert store.unfolded_reports() == {}


def test_missing_figures_are_computed_in_bounded_steps(store: SqlStore) -> None:
    """Newest periods first; a step reads no more summaries than it may."""
    definitions = many_definitions(4)
    fill(store, definitions, NOON.date(), 5, computed=False)
    for done in range(0, 20, 6):
        assert len(store.stale_figures()) == 20 - done
        compute_figures(store, definitions, most=6)
        digests = [metric.digest for metric in definitions.versions()]
        computed = [row.period for row in store.period_rows(digests) if not row.is_stale]
        waiting = [row.period for row in store.period_rows(digests) if row.is_stale]
        assert min(computed) >= max(waiting, default="")
    assert store.stale_figures() == []
    assert {totals.reports for totals in store.version_totals().values()} == {5 * 20_000}


def test_folds_and_purges_without_figures_leave_no_wrong_figures(
    store: SqlStore, definitions: Definitions, make_batch: MakeBatch
) -> None:
    homepage = definitions["homepage"]
    store.append([make_batch(homepage, n=5)])
    fold(store, homepage)
    store.append([make_batch(homepage, n=7)])
    fold_as_an_older_hubbub(store, definitions)
    [row] = store.period_rows([homepage.digest])
    assert (row.is_stale, store.version_totals()[homepage.digest].stale) == (True, 1)
    compute_figures(store, definitions)
    [row] = store.period_rows([homepage.digest])
    assert row.figures is not None
    assert (row.is_stale, row.figures.reports) == (False, 12)
    with transaction(store._engine, writes=True) as connection:  # as it purges
        connection.execute(update(collection).values(summary=None, revision=collection.c.revision + 1))
    compute_figures(store, definitions)
    [row] = store.period_rows([homepage.digest])
    assert (row.is_stale, row.figures) == (False, PeriodFigures())


def test_purge_deletes_the_figures(store: SqlStore, definitions: Definitions, make_batch: MakeBatch) -> None:
    homepage = definitions["homepage"]
    store.append([all_ones(make_batch, homepage, 40, TODAY)])
    fold(store, homepage)
    assert store.implausible_periods()
    store.close_period(homepage, TODAY)
    store.purge(homepage.digest, TODAY)
    assert (store.implausible_periods(), store.stale_figures()) == ({}, [])
    assert store.version_totals() == {homepage.digest: VersionTotals(0, TODAY, 0, 0)}


def test_figures_computed_from_an_earlier_summary_are_not_stored(
    store: SqlStore, definitions: Definitions, make_batch: MakeBatch
) -> None:
    """Another process folds between the reading and the storing."""
    homepage = definitions["homepage"]
    store.append([make_batch(homepage, n=5)])
    fold_as_an_older_hubbub(store, definitions)
    [stale] = store.period_rows([homepage.digest])
    store.append([make_batch(homepage, n=7)])
    fold_as_an_older_hubbub(store, definitions)
    store.put_figures([stale])
    [row] = store.period_rows([homepage.digest])
    assert (row.is_stale, row.figures) == (True, None)


def test_damaged_summary_does_not_stop_other_figures(store: SqlStore, database: str) -> None:
    definitions = many_definitions(3)
    fill(store, definitions, NOON.date(), 2, computed=False)
    sql(database, "UPDATE collection SET summary = substr(summary, 9) WHERE metric = 'search.first_page'")
    with pytest.raises(JobError, match=r"cannot be computed \(search.first_page\)"):
        compute_figures(store, definitions, most=4)
    assert len(store.stale_figures()) == 2
    assert {row[0] for row in store.stale_figures()} == {definitions["search.first_page"].digest}


def test_running_service_computes_missing_figures(store: SqlStore) -> None:
    from hubbub_aggregator.settings import Settings
    from tests.aggregator.conftest import running

    definitions = many_definitions(2)
    fill(store, definitions, NOON.date(), 2, computed=False)
    with running(definitions, store, Settings(local_reads_without_token=True, fold_interval=0.01)):
        deadline = time.monotonic() + 60
        while store.stale_figures() and time.monotonic() < deadline:
            time.sleep(0.01)
    assert not store.stale_figures()
