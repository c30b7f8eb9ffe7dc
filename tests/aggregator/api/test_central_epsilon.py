"""Central epsilon: of the smallest cohort for counts, of the smallest commit for retained reports."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hubbub import Metric
from hubbub.privacy import central_epsilon, epsilon
from hubbub.privacy.central import RELEASE_DELTA
from hubbub_aggregator.api.dashboard.privacy_figures import CentralEpsilon, last_central_epsilon
from hubbub_aggregator.pipeline.retention import upkeep
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.sql_store import SqlStore
from tests.aggregator.api.test_dashboard import get

if TYPE_CHECKING:
    from tests.aggregator.conftest import MakeBatch, StartAggregator

BEFORE, YESTERDAY, TODAY = "2024-06-13", "2024-06-14", "2024-06-15"


def smallest_cohorts(store: SqlStore, metric: Metric) -> dict[str, int]:
    return {row.period: row.figures.smallest_cohort for row in store.period_rows([metric.digest]) if row.figures}


def test_central_epsilon_of_counts_uses_smallest_cohort_of_last_complete_period(
    start: StartAggregator, store: SqlStore, make_batch: MakeBatch
) -> None:
    aggregator = start(store, fold_interval=1000.0)
    homepage, now = aggregator.definitions["homepage"], aggregator.clock()
    few = replace(make_batch(homepage, n=900, period=BEFORE), cohorts=bytes([0] * 500 + [1] * 400))
    for batch in (few, make_batch(homepage, n=9, period=YESTERDAY), make_batch(homepage, n=9, period=TODAY)):
        assert aggregator.post(batch).status == 202
    assert last_central_epsilon(store, Settings(), homepage, smallest_cohorts(store, homepage), now) is None, (
        "nothing is folded"
    )
    upkeep(store, aggregator.definitions, Settings(), now)
    crowd = last_central_epsilon(store, Settings(), homepage, smallest_cohorts(store, homepage), now)
    assert crowd == CentralEpsilon(BEFORE, 400, central_epsilon(homepage, 400, RELEASE_DELTA))
    assert crowd.epsilon < epsilon(homepage)
    assert f"of {BEFORE}, among 400 or more reports" in get(aggregator, "/metric/homepage").page


@pytest.mark.parametrize(("name", "expected"), [("homepage", 1), ("carrier", 60)])
def test_central_epsilon_of_retained_reports_uses_the_smallest_commit(
    start: StartAggregator, store: SqlStore, make_batch: MakeBatch, name: str, expected: int
) -> None:
    settings = Settings(keep_reports={name: 5})
    aggregator = start(store, fold_interval=1000.0, keep_reports={name: 5})
    metric, now = aggregator.definitions[name], aggregator.clock()
    for n in (60, 200):
        assert aggregator.post(make_batch(metric, n=n, period=BEFORE)).status == 202
    upkeep(store, aggregator.definitions, settings, now)
    crowd = last_central_epsilon(store, settings, metric, smallest_cohorts(store, metric), now)
    assert crowd == CentralEpsilon(BEFORE, expected, central_epsilon(metric, expected, RELEASE_DELTA))
    page = get(aggregator, f"/metric/{name}").body.decode()
    assert "Single reports are dropped 5 days after the end of their day." in page
