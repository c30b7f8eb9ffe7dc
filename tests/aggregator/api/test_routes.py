"""Routes of the HTTP API on a real server: successful responses."""

from __future__ import annotations

import gzip
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from hubbub import Encoder, Metric, Policy, ProblemType, Secret
from hubbub.privacy import PrivacyFigures, privacy_figures
from hubbub.summary import BitCounts
from hubbub.summary.pattern_counts import PatternCounts
from hubbub.summary.summary_file import CONTENT_TYPE as SUMMARY_TYPE
from hubbub.wire.dates import parse_period
from hubbub_aggregator.api import openapi
from hubbub_aggregator.store.sql_store import SqlStore

if TYPE_CHECKING:
    from tests.aggregator.conftest import Aggregator, MakeBatch, StartAggregator


def test_batch_returns_202_and_its_retry_200(aggregator: Aggregator, make_batch: MakeBatch) -> None:
    batch, before = make_batch(aggregator.definitions["homepage"]), aggregator.stored()
    first, repeated = aggregator.post(batch), aggregator.post(batch)
    assert (first.status, first.json) == (202, {"batch_id": str(batch.batch_id), "status": "stored"})
    assert (repeated.status, repeated.json) == (200, {"batch_id": str(batch.batch_id), "status": "duplicate"})
    assert aggregator.stored() == before + 3


@pytest.mark.parametrize("coding", ["gzip", "GZIP", "x-gzip"])
def test_accepts_gzip(aggregator: Aggregator, make_batch: MakeBatch, coding: str) -> None:
    batch = make_batch(aggregator.definitions["homepage"])
    assert aggregator.post(gzip.compress(batch.to_json()), content_encoding=coding).status == 202
    assert aggregator.post(batch).status == 200


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "Application/JSON"])
def test_accepts_media_type_with_parameters_and_capitals(
    aggregator: Aggregator, make_batch: MakeBatch, content_type: str
) -> None:
    assert aggregator.post(make_batch(aggregator.definitions["homepage"]), content_type=content_type).status == 202


def test_ignores_unknown_fields(aggregator: Aggregator, make_batch: MakeBatch) -> None:
    fields = json.loads(make_batch(aggregator.definitions["homepage"]).to_json())
    assert aggregator.post(json.dumps(fields | {"new": [1]}).encode()).status == 202


def test_accepts_batch_of_the_largest_size(aggregator: Aggregator, make_batch: MakeBatch) -> None:
    assert aggregator.post(make_batch(aggregator.definitions["homepage"], n=500)).status == 202
    body = make_batch(aggregator.definitions["homepage"]).to_json()
    assert aggregator.post(body.ljust(30_000)).status == 202


def test_collects_every_version_of_a_metric(aggregator: Aggregator, make_batch: MakeBatch) -> None:
    old, current = (m for m in aggregator.definitions.versions() if m.name == "from_jfk")
    for metric, n in ((old, 2), (current, 5)):
        assert aggregator.post(make_batch(metric, n, period="2024-06-10")).status == 202
    assert aggregator.summary("from_jfk").num_reports == 5
    assert aggregator.summary("from_jfk", f"?digest={old.digest}").num_reports == 2


def test_concurrent_duplicates_are_stored_once(aggregator: Aggregator, make_batch: MakeBatch) -> None:
    before = aggregator.stored()
    batches = [make_batch(aggregator.definitions["homepage"]) for _ in range(10)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(aggregator.post, batches * 5))
    for number in range(10):
        assert sorted(answer.status for answer in answers[number::10]) == [200, 200, 200, 200, 202]
    assert aggregator.stored() == before + 30


def test_stored_batch_is_a_duplicate_even_if_refused_now(
    start: StartAggregator, store: SqlStore, make_batch: MakeBatch
) -> None:
    """The client may have missed the 202; after a refusal it would believe that its reports do not count."""
    aggregator = start(store, max_reports=3)
    metric = aggregator.definitions["homepage"]
    stored, other = make_batch(metric), make_batch(metric)
    too_many, of_another_file = make_batch(metric, 4), replace(make_batch(metric), metric="forgotten", digest="0" * 64)
    assert aggregator.post(stored).status == 202
    store.append([too_many, of_another_file])  # accepted under other limits and definitions
    assert aggregator.post(too_many).status == 200
    assert aggregator.post(of_another_file).status == 200
    for later, refusal in (
        (datetime(2024, 9, 1, tzinfo=UTC), "period-closed"),
        (datetime(2031, 1, 1, tzinfo=UTC), "metric-expired"),
    ):
        aggregator.clock.now = later
        assert (aggregator.post(stored).status, aggregator.post(other).json["type"]) == (200, f"/problems/{refusal}")
    assert aggregator.summary("homepage").num_reports == 7


@pytest.mark.parametrize(
    ("now", "period"),
    [
        (datetime(2024, 6, 14, tzinfo=UTC), "2024-06-15"),
        (datetime(2024, 7, 15, 23, 59, 59, tzinfo=UTC), "2024-06-15"),
        (datetime(2029, 12, 31, 23, 59, 59, tzinfo=UTC), "2029-12-31"),
    ],
)
def test_accepts_batches_at_both_ends_of_the_window(
    aggregator: Aggregator, make_batch: MakeBatch, now: datetime, period: str
) -> None:
    noon, aggregator.clock.now = aggregator.clock.now, now
    try:
        assert aggregator.post(make_batch(aggregator.definitions["homepage"], period=period)).status == 202
    finally:
        aggregator.clock.now = noon


def test_reports_of_clients_are_counted_as_sent(start: StartAggregator, store: SqlStore) -> None:
    from hubbub import Batch

    aggregator = start(store, fold_interval=0.05)
    for metric, value in (
        (aggregator.definitions["homepage"], "https://example.org"),
        (aggregator.definitions["carrier"], "UA"),
    ):
        reports = [Encoder(metric, Secret.generate()).encode(value) for _ in range(40)]
        period = parse_period(metric.period, "2024-06-15")
        for start_at in range(0, 40, 8):
            batch = Batch.from_reports(metric, period, reports[start_at : start_at + 8])
            assert aggregator.post(batch).status == 202
        expected = BitCounts.from_reports(metric, reports)
        got = aggregator.summary(metric.name)
        assert isinstance(got, BitCounts)
        assert got == expected + BitCounts.from_rows(metric, b"", b"", ["2024-06-15"])


def test_summary_covers_the_requested_periods(start: StartAggregator, store: SqlStore, make_batch: MakeBatch) -> None:
    aggregator = start(store)
    for day, n in (("2024-06-13", 1), ("2024-06-14", 2), ("2024-06-15", 4)):
        assert aggregator.post(make_batch(aggregator.definitions["homepage"], n, period=day)).status == 202
    for query, n in (
        ("", 7),
        ("?period=2024-06-14", 2),
        ("?period=2024-06-13&period=2024-06-15", 5),
        ("?period=2024-06-12", 0),
    ):
        assert aggregator.summary("homepage", query).num_reports == n
    assert aggregator.summary("homepage").periods == ("2024-06-13", "2024-06-14", "2024-06-15")


def test_summary_is_served_as_pattern_counts(aggregator: Aggregator, make_batch: MakeBatch) -> None:
    carrier = aggregator.definitions["carrier"]
    batch = make_batch(carrier, 100)
    assert aggregator.post(batch).status == 202
    patterns, bits = aggregator.summary("carrier", "?kind=patterns"), aggregator.summary("carrier")
    assert isinstance(patterns, PatternCounts)
    assert patterns == PatternCounts.from_rows(carrier, batch.cohorts, batch.rows, [batch.period])
    assert patterns.bit_counts() == bits


def test_summary_has_media_type_and_file_name(aggregator: Aggregator) -> None:
    answer = aggregator.get("/v1/metrics/homepage/summary")
    assert answer.headers["content-type"] == SUMMARY_TYPE
    assert aggregator.summary("homepage").metric == aggregator.definitions["homepage"]


def test_definitions_and_privacy_figures_are_public(aggregator: Aggregator) -> None:
    response = aggregator.get("/v1/metrics").json["metrics"]
    assert [Metric.from_dict(definition) for definition in response] == list(aggregator.definitions.versions())
    shown = {definition["digest"]: definition["privacy"] for definition in response}
    for metric in aggregator.definitions.versions():
        figures = shown[metric.digest]
        assert figures == privacy_figures(metric, Policy()).to_dict()
        assert (figures["epsilon_permanent"] == "inf") is (metric.params.mechanism.prob_f == 0)
    assert set(openapi.PrivacyFigures.model_fields) == set(PrivacyFigures.__slots__)
    openapi.Metrics.model_validate_json(aggregator.get("/v1/metrics").body, strict=True)


def test_livez_and_readyz_return_200(aggregator: Aggregator) -> None:
    assert aggregator.get("/livez").json == {"status": "alive", "client_named": False}
    assert aggregator.get("/readyz").json == {"status": "ready", "clock": "credible"}


def test_readyz_fails_if_the_probe_fails(
    start: StartAggregator, store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    probes: list[Any] = []
    monkeypatch.setattr(store, "probe", lambda: probes.append(1))
    assert start(store).get("/readyz").status == 200
    assert probes == [1]


def test_disconnect_within_a_body_stores_nothing(aggregator: Aggregator, make_batch: MakeBatch) -> None:
    before, body = aggregator.stored(), make_batch(aggregator.definitions["homepage"]).to_json()
    host, port = aggregator.url.removeprefix("http://").split(":")
    for end in (0, 1, len(body) - 1):
        with socket.create_connection((host, int(port))) as client:
            client.sendall(b"POST /v1/reports HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
            client.sendall(f"Content-Length: {len(body)}\r\n\r\n".encode() + body[:end])
    assert aggregator.get("/livez").status == 200
    assert aggregator.stored() == before


def test_openapi_document_lists_routes_bodies_and_problems(aggregator: Aggregator, make_batch: MakeBatch) -> None:
    document = aggregator.get("/openapi.json").json
    assert set(document["paths"]) == {
        *("/v1/reports", "/v1/metrics", "/v1/metrics/{name}/summary", "/v1/metrics/{name}/reports", "/v1/periods"),
        *("/metrics", "/livez", "/readyz", "/problems/{slug}"),
        *("/", "/metric/{name}", "/session", "/sign-in", "/sign-out"),
    }
    post = document["paths"]["/v1/reports"]["post"]
    body = post["requestBody"]["content"]["application/json"]["schema"]
    body = document["components"]["schemas"][body["$ref"].rpartition("/")[2]]
    sent = json.loads(make_batch(aggregator.definitions["homepage"]).to_json())
    assert set(body["required"]) == set(sent) == set(body["properties"]) - {"group"}
    assert set(post["responses"]) == {
        "202",
        "200",
        *["400", "401", "403", "404", "408", "409", "410", "413", "415", "422", "429", "500", "503", "507"],
    }
    descriptions = " ".join(answer["description"] for answer in post["responses"].values())
    of_reading = {
        ProblemType.NOT_FOUND,
        ProblemType.METHOD_NOT_ALLOWED,
        ProblemType.INVALID_QUERY,
        ProblemType.CROSS_SITE,
    }
    of_no_route = {ProblemType.NOT_HTTP, ProblemType.HEADERS_TOO_LARGE}
    assert {refusal for refusal in ProblemType if f"`{refusal.slug}`" in descriptions} == set(
        ProblemType
    ) - of_reading - of_no_route
    for path in ("/v1/metrics/{name}/summary", "/v1/metrics/{name}/reports", "/v1/periods", "/metrics"):
        assert document["paths"][path]["get"]["security"] == [{"HTTPBearer": []}]
    for name, path in document["paths"].items():
        assert ("get" in path) == ("head" in path)
        for method, operation in path.items():
            for status, answer in operation["responses"].items():
                if method == "head":
                    assert set(answer) == {"description"}
                elif int(status) >= 400:
                    is_page = name == "/sign-in" if int(status) != 404 else name == "/metric/{name}"
                    page = {"text/html"} if is_page and int(status) < 500 else set()
                    assert set(answer["content"]) == {"application/problem+json"} | page
    assert "HTTPValidationError" not in json.dumps(document)


def test_head_returns_the_headers_of_get(start: StartAggregator, store: SqlStore, make_batch: MakeBatch) -> None:
    aggregator = start(store, keep_reports={"homepage": 10_000})
    aggregator.post(make_batch(aggregator.definitions["homepage"]))
    paths = aggregator.get("/openapi.json").json["paths"]
    reads = [path.format(name="homepage", slug="malformed") for path in paths if "get" in paths[path]]
    # The local listener redirects from the form, and a session has no body.
    reads = [path for path in reads if path not in ("/sign-in", "/session")]
    assert {aggregator.get(path).status for path in reads} == {200}
    for path in (*reads, "/openapi.json", "/nowhere", "/problems/no-such", "/v1/metrics/homepage/summary?kind=ones"):
        response, alone = aggregator.get(path), aggregator.request("HEAD", path)
        assert (alone.status, bool(response.body), alone.body) == (response.status, True, b"")
        changing = {"date": "", "content-length": response.headers["content-length"]}  # of /metrics: seconds
        assert {**alone.headers} | changing == {**response.headers} | changing
        assert path == "/metrics" or alone.headers["content-length"] == str(len(response.body))
