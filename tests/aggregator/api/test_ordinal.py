"""An ordinal metric at the aggregator: ingestion, summary, definitions, dashboard."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from hubbub import Buckets, Definitions, Estimand, Metric, UnaryResponse
from hubbub_aggregator.settings import Settings
from hubbub_decoder import decode
from tests.aggregator.api.test_dashboard import get
from tests.aggregator.conftest import running

if TYPE_CHECKING:
    from hubbub_aggregator.store.sql_store import SqlStore
    from tests.aggregator.conftest import MakeBatch

CLICKS = Metric.ordinal(
    "clicks", Buckets((0, 1, 5, 50), default=0), UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5)
)


USE = Metric.ordinal(
    "use", Buckets((0, 50), default=0, estimate=Estimand.MEAN), UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5)
)


def test_mean_is_collected_listed_shown_and_decoded(store: SqlStore, make_batch: MakeBatch) -> None:
    with running(Definitions([USE]), store, Settings(local_reads_without_token=True)) as aggregator:
        assert aggregator.post(make_batch(USE, 640)).status == 202
        summary = aggregator.summary("use")
        (listed,) = json.loads(aggregator.get("/v1/metrics").body)["metrics"]
        assert Metric.from_dict({name: listed[name] for name in USE.to_dict()}) == USE
        assert listed["privacy"]["epsilon_enrollment"] == pytest.approx(2 * listed["privacy"]["epsilon_unit"])
        for path in ("/", "/metric/use"):
            page = get(aggregator, path)
            assert page.status == 200
            assert b"use" in page.body
    decoding = decode(summary)
    assert decoding.numbers is not None
    assert (len(decoding), summary.num_reports, summary.metric) == (0, 640, USE)


def test_ordinal_metric_is_collected_listed_shown_and_decoded(store: SqlStore, make_batch: MakeBatch) -> None:
    with running(Definitions([CLICKS]), store, Settings(local_reads_without_token=True)) as aggregator:
        assert aggregator.post(make_batch(CLICKS, 40)).status == 202
        summary = aggregator.summary("clicks")
        assert summary.num_reports == 40
        assert summary.metric == CLICKS
        (listed,) = json.loads(aggregator.get("/v1/metrics").body)["metrics"]
        assert Metric.from_dict({name: listed[name] for name in CLICKS.to_dict()}) == CLICKS
        for path in ("/", "/metric/clicks"):
            page = get(aggregator, path)
            assert page.status == 200
            assert b"clicks" in page.body
    decoding = decode(summary)
    assert decoding.numbers is not None
    assert {estimate.candidate for estimate in decoding} == {"below 1", "1 to 5", "5 or more"}
