"""Problem responses: each problem type has its slug, status and page, and stores nothing."""

from __future__ import annotations

import base64
import gzip
import json
import logging
import re
import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hubbub import Batch, Definitions, ProblemType
from hubbub.wire.answers import read_answer
from hubbub_aggregator.errors import StoreError
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.interface import StoredPeriod
from hubbub_aggregator.store.sql_store import SqlStore
from tests.aggregator.conftest import running

if TYPE_CHECKING:
    from tests.aggregator.conftest import Aggregator, HttpResponse, MakeBatch, StartAggregator


def assert_refused(answer: HttpResponse, refusal: ProblemType) -> None:
    """Assert the form of a problem response (RFC 9457) and its problem type."""
    assert answer.headers["content-type"] == "application/problem+json"
    assert read_answer(answer.status, answer.headers["content-type"], answer.body) is refusal, "clients recognize it"
    problem = answer.json
    assert (answer.status, problem["type"]) == (refusal.status, f"/problems/{refusal.slug}"), problem
    assert problem["status"] == answer.status
    assert problem["title"] == refusal.meaning
    assert len(problem["detail"]) > 10
    assert set(problem) == {"type", "title", "status", "detail"}


def altered(batch: Batch, **fields: Any) -> bytes:
    return json.dumps(json.loads(batch.to_json()) | fields).encode()


def without(batch: Batch, field: str) -> bytes:
    fields = json.loads(batch.to_json())
    del fields[field]
    return json.dumps(fields).encode()


@pytest.fixture
def good(aggregator: Aggregator, make_batch: MakeBatch) -> Batch:
    return make_batch(aggregator.definitions["homepage"])


@pytest.fixture
def nothing_stored(aggregator: Aggregator) -> Iterator[None]:
    before = aggregator.stored()
    yield
    assert aggregator.stored() == before
    assert not any(aggregator.store.unfolded(metric.digest) for metric in aggregator.definitions.versions())


pytestmark = pytest.mark.usefixtures("nothing_stored")


@pytest.mark.parametrize("field", ["batch_id", "metric", "digest", "period", "cohorts", "bits"])
@pytest.mark.parametrize("value", [None, 7, ["a"], {"a": 1}, True, "no such thing?"])
def test_rejects_fields_of_wrong_type_or_unknown_name(
    aggregator: Aggregator, good: Batch, field: str, value: object
) -> None:
    expected = ProblemType.MALFORMED
    if value == "no such thing?" and field in ("metric", "digest"):
        expected = ProblemType.UNKNOWN_METRIC if field == "metric" else ProblemType.DIGEST_MISMATCH
    assert_refused(aggregator.post(altered(good, **{field: value})), expected)


@pytest.mark.parametrize("field", ["batch_id", "metric", "digest", "period", "cohorts", "bits"])
def test_rejects_missing_fields(aggregator: Aggregator, good: Batch, field: str) -> None:
    assert_refused(aggregator.post(without(good, field)), ProblemType.MALFORMED)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"null", b'"', b"\xff\xfe", b"[" * 20_000, b'{"period": ' + b"9" * 9_000 + b"}"]
)
def test_rejects_bodies_other_than_json_objects(aggregator: Aggregator, body: bytes) -> None:
    assert_refused(aggregator.post(body), ProblemType.MALFORMED)


@pytest.mark.parametrize(
    "text",
    [
        "6C84FB90-12C4-11E1-840D-7B25C5EE775A",
        "6c84fb90-12c4-11e1-840d-7b25c5ee775a",
        "{6c84fb90-12c4-41e1-840d-7b25c5ee775a}",
    ],
)
def test_rejects_batch_ids_other_than_canonical_uuid4(aggregator: Aggregator, good: Batch, text: str) -> None:
    assert_refused(aggregator.post(altered(good, batch_id=text)), ProblemType.MALFORMED)


def test_rejects_undefined_metric(aggregator: Aggregator, good: Batch) -> None:
    assert_refused(aggregator.post(altered(good, metric="homepages")), ProblemType.UNKNOWN_METRIC)
    assert_refused(aggregator.post(altered(good, metric="\ud800")), ProblemType.MALFORMED)
    assert_refused(aggregator.get("/v1/metrics/homepages/summary"), ProblemType.UNKNOWN_METRIC)


def test_rejects_unknown_digest(aggregator: Aggregator, good: Batch) -> None:
    answer = aggregator.post(altered(good, digest="0" * 64))
    assert_refused(answer, ProblemType.DIGEST_MISMATCH)
    assert aggregator.definitions["homepage"].digest in answer.json["detail"]
    assert "Ship the app with the aggregator's definition, or add this version" in answer.json["detail"]


def test_rejects_expired_metric(aggregator: Aggregator, make_batch: MakeBatch) -> None:
    metric = aggregator.definitions["gone"]
    assert_refused(aggregator.post(make_batch(metric)), ProblemType.METRIC_EXPIRED)


@pytest.mark.parametrize(
    ("period", "refusal"),
    [
        ("2024-06-17", ProblemType.PERIOD_NOT_STARTED),
        ("9999-12-31", ProblemType.PERIOD_NOT_STARTED),
        ("2024-05-15", ProblemType.PERIOD_CLOSED),
        ("0001-01-01", ProblemType.PERIOD_CLOSED),
        ("2024-02-30", ProblemType.MALFORMED),
        ("20240615", ProblemType.MALFORMED),
        ("2024-W24-6", ProblemType.MALFORMED),
    ],
)
def test_day_is_open_from_one_day_before_until_30_days_after(
    aggregator: Aggregator, make_batch: MakeBatch, period: str, refusal: ProblemType
) -> None:
    metric = aggregator.definitions["homepage"]
    assert_refused(aggregator.post(make_batch(metric, period=period)), refusal)


def test_week_closes_30_days_after_its_sunday(aggregator: Aggregator, make_batch: MakeBatch) -> None:
    batch = make_batch(aggregator.definitions["from_jfk"], period="2024-06-10")
    try:
        aggregator.clock.now = datetime(2024, 7, 17, tzinfo=UTC)
        assert_refused(aggregator.post(batch), ProblemType.PERIOD_CLOSED)
        aggregator.clock.now = datetime(2024, 6, 9, tzinfo=UTC) - timedelta(microseconds=1)
        assert_refused(aggregator.post(batch), ProblemType.PERIOD_NOT_STARTED)
    finally:
        aggregator.clock.now = datetime(2024, 6, 15, 12, tzinfo=UTC)


def test_rejects_date_that_does_not_start_a_period(aggregator: Aggregator, make_batch: MakeBatch) -> None:
    metric = aggregator.definitions["from_jfk"]
    assert_refused(aggregator.post(make_batch(metric, period="2024-06-11")), ProblemType.PERIOD_MISALIGNED)


def test_rejects_cohort_out_of_range(aggregator: Aggregator, good: Batch) -> None:
    for cohort in (4, 255, 256, -1, 1 << 80):
        body = altered(good, cohorts=[0, 3, cohort])
        assert_refused(aggregator.post(body), ProblemType.COHORT_OUT_OF_RANGE)


def test_rejects_a_group_of_a_metric_without_one(aggregator: Aggregator, good: Batch) -> None:
    assert_refused(aggregator.post(altered(good, group="1.x")), ProblemType.WRONG_GROUP)
    assert_refused(aggregator.post(altered(good, group=1)), ProblemType.MALFORMED)


def test_rejects_wrong_number_of_rows(aggregator: Aggregator, good: Batch) -> None:
    for rows in (good.rows[:-1], good.rows + b"\0", b""):
        body = altered(good, bits=base64.b64encode(rows).decode())
        assert_refused(aggregator.post(body), ProblemType.WRONG_SIZE)


@pytest.mark.parametrize("bit", [20, 21, 22, 23])
@pytest.mark.parametrize("report", [0, 1, 2])
def test_rejects_padding_bits(aggregator: Aggregator, good: Batch, bit: int, report: int) -> None:
    rows = bytearray(good.rows)
    rows[3 * report + bit // 8] |= 1 << bit % 8
    body = altered(good, bits=base64.b64encode(rows).decode())
    assert_refused(aggregator.post(body), ProblemType.PADDING_SET)


def test_rejects_empty_and_too_large_batches(aggregator: Aggregator, make_batch: MakeBatch) -> None:
    metric = aggregator.definitions["homepage"]
    assert_refused(aggregator.post(make_batch(metric, n=0)), ProblemType.NO_REPORTS)
    assert_refused(aggregator.post(make_batch(metric, n=501)), ProblemType.TOO_MANY_REPORTS)


@pytest.mark.parametrize("content_type", ["text/plain", "application/jsonp", "", "multipart/form-data; boundary=x"])
def test_rejects_other_media_types(aggregator: Aggregator, good: Batch, content_type: str) -> None:
    answer = aggregator.post(good, content_type=content_type)
    assert_refused(answer, ProblemType.UNSUPPORTED_MEDIA_TYPE)
    assert answer.headers["accept"] == "application/json"
    # this header would mean that the encoding is the problem (RFC 9110, 12.5.3)
    assert "accept-encoding" not in answer.headers


def test_rejects_other_content_encodings(aggregator: Aggregator, good: Batch) -> None:
    answer = aggregator.post(good, content_encoding="br")
    assert_refused(answer, ProblemType.UNSUPPORTED_MEDIA_TYPE)
    assert answer.headers["accept-encoding"] == "gzip"


def test_rejects_declared_size_before_reading_the_body(aggregator: Aggregator) -> None:
    assert_refused(aggregator.post(b" " * 30_001), ProblemType.TOO_LARGE)


def test_rejects_chunked_body_beyond_the_limit(aggregator: Aggregator) -> None:
    endless = (b" " * 1_000 for _ in range(1_000))
    answer = aggregator.request("POST", "/v1/reports", endless, content_type="application/json")
    assert_refused(answer, ProblemType.TOO_LARGE)


def test_rejects_gzip_bomb(aggregator: Aggregator) -> None:
    bomb = gzip.compress(bytes(20_000_000))
    assert len(bomb) < 30_000
    assert_refused(aggregator.post(bomb, content_encoding="gzip"), ProblemType.TOO_LARGE)


def test_rejects_bodies_other_than_one_gzip_member(aggregator: Aggregator, good: Batch) -> None:
    packed = gzip.compress(good.to_json())
    for body in (good.to_json(), packed + b"x", packed * 2, packed[:-1], b""):
        assert_refused(aggregator.post(body, content_encoding="gzip"), ProblemType.MALFORMED)


def test_rejects_slow_body_and_closes_the_connection(
    start: StartAggregator, store: SqlStore, make_batch: MakeBatch
) -> None:
    aggregator = start(store, max_body_seconds=0.2)
    body = make_batch(aggregator.definitions["homepage"]).to_json()

    def slowly() -> Iterator[bytes]:
        yield body[:5]
        time.sleep(0.8)
        yield body[5:]

    answer = aggregator.request("POST", "/v1/reports", slowly(), content_type="application/json")
    assert_refused(answer, ProblemType.TOO_SLOW)
    assert aggregator.post(body).status == 202


def test_rate_limit_returns_retry_after_and_serves_other_networks(
    start: StartAggregator, store: SqlStore, make_batch: MakeBatch
) -> None:
    """Behind a proxy on this machine, the network is that of the last entry of X-Forwarded-For."""
    aggregator = start(store, client_rate=0.001, client_burst_seconds=2_000)
    batches = [make_batch(aggregator.definitions["homepage"]) for _ in range(4)]
    began = time.monotonic()
    responses = [aggregator.post(batch, x_forwarded_for="198.51.100.1, 192.0.2.7") for batch in batches[:3]]
    elapsed = time.monotonic() - began
    assert [answer.status for answer in responses] == [202, 202, 429]
    assert_refused(responses[2], ProblemType.TOO_MANY)
    assert 1000 - elapsed - 1 <= int(responses[2].headers["retry-after"]) <= 1000
    assert aggregator.post(batches[2], x_forwarded_for="192.0.2.7, 198.51.100.1").status == 202
    assert aggregator.post(batches[3]).status == 202, "this machine is another network, with a higher limit"


def test_rate_limit_counts_the_nearest_untrusted_address(
    start: StartAggregator, sqlite_store: SqlStore, make_batch: MakeBatch
) -> None:
    aggregator = start(
        sqlite_store, client_rate=0.001, client_burst_seconds=1_000, trusted_proxy=("10.0.0.0/8", "2001:db8::/32")
    )
    for through, status in (
        ("192.0.2.7, 10.0.0.9", 202),
        ("203.0.113.1, 192.0.2.8:55012, [2001:db8::7]:443, 10.1.1.1", 429),  # entries before its own are ignored
        ("198.51.100.1", 202),
        ("198.51.100.2, ::ffff:10.9.9.9", 429),
        ("10.0.0.1, 10.0.0.2", 202),  # only proxies
        ("10.0.0.1, 10.0.0.2", 202),
        ("", 202),
    ):
        batch = make_batch(aggregator.definitions["homepage"])
        assert aggregator.post(batch, x_forwarded_for=through).status == status, through


@pytest.mark.slow
def test_full_disk_refuses_batches_and_serves_reads(
    start: StartAggregator, store: SqlStore, make_batch: MakeBatch
) -> None:
    free = [10]
    aggregator = start(store, min_free_disk=10, free=lambda: free[0])
    batch = make_batch(aggregator.definitions["homepage"])
    assert aggregator.post(batch).status == 202
    free[0] = 9
    while (answer := aggregator.post(batch)).status == 200:
        time.sleep(0.05)
    assert_refused(answer, ProblemType.DISK_FULL)
    assert int(answer.headers["retry-after"]) > 0
    assert aggregator.summary("homepage").num_reports == 3
    free[0] = 10
    while aggregator.post(batch).status == 507:
        time.sleep(0.05)
    assert aggregator.post(batch).status == 200


def test_refusal_counters_survive_a_restart(definitions: Definitions, tmp_path: Path, make_batch: MakeBatch) -> None:
    """Undefined names are not stored: a client could send any text, and any number of them."""
    homepage = definitions["homepage"]
    for round_ in (1, 2):
        store = SqlStore.open(tmp_path / "counted.db")
        with running(definitions, store, Settings()) as aggregator:
            aggregator.post(make_batch(homepage, n=0))
            aggregator.post(make_batch(homepage, period="2024-01-01"))
            aggregator.post(replace(make_batch(homepage), metric="canary"))
            aggregator.post(b"canary")
        expected = {"no-reports": "homepage", "period-closed": "homepage", "unknown-metric": "", "malformed": ""}
        assert store.refusals() == {(metric, reason): round_ for reason, metric in expected.items()}
        store.close()


@pytest.mark.parametrize(
    "path", ["/v1", "/v1/reports/", "/v2/reports", "/problems/no-such", "/docs", "/%00", "/problems/"]
)
def test_unknown_paths_are_not_found_without_redirect(aggregator: Aggregator, path: str) -> None:
    assert_refused(aggregator.get(path), ProblemType.NOT_FOUND)


def test_method_not_allowed_lists_allowed_methods(aggregator: Aggregator) -> None:
    answer = aggregator.request("PUT", "/v1/reports", b"{}")
    assert_refused(answer, ProblemType.METHOD_NOT_ALLOWED)
    assert answer.headers["allow"] == "POST"
    assert_refused(aggregator.request("DELETE", "/v1/metrics"), ProblemType.METHOD_NOT_ALLOWED)
    assert aggregator.request("PUT", "/sign-in", b"").headers["allow"] == "GET, HEAD, POST"


@pytest.mark.parametrize(
    "query", ["period=yesterday", "period=2024-06-15&period=", "kind=ones", "kind=patterns", "digest=%ED%A0%80"]
)
def test_rejects_invalid_query_parameters(aggregator: Aggregator, query: str) -> None:
    assert_refused(aggregator.get(f"/v1/metrics/homepage/summary?{query}"), ProblemType.INVALID_QUERY)


def test_invalid_parameter_shows_value_and_allowed_ones(aggregator: Aggregator) -> None:
    detail = aggregator.get("/v1/metrics/homepage/summary?kind=ones").json["detail"]
    assert detail == "kind: Input should be 'bits' or 'patterns', got 'ones'"


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        ("/v1/metrics?a=1", "unknown parameter 'a'; this address has no parameters"),
        (
            "/v1/metrics/homepage/summary?perod=2024-06-15",
            "unknown parameter 'perod'; parameters are digest, group, kind, period",
        ),
        (
            "/v1/metrics/homepage/summary?counts=bits",
            "unknown parameter 'counts'; parameters are digest, group, kind, period",
        ),
        ("/v1/metrics/homepage/reports?kind=bits", "unknown parameter 'kind'; parameters are digest, group, period"),
    ],
)
def test_rejects_unknown_query_parameters(aggregator: Aggregator, path: str, detail: str) -> None:
    answer = aggregator.get(path)
    assert_refused(answer, ProblemType.INVALID_QUERY)
    assert answer.json["detail"] == detail


@pytest.mark.parametrize(
    ("failure", "cause"),
    [
        (RuntimeError("a private value"), "RuntimeError in broken"),
        (OSError(24, "Too many open files", "a private name"), "OSError (Too many open files) in broken"),
    ],
)
def test_unexpected_error_returns_500_without_values_in_log(
    start: StartAggregator,
    store: SqlStore,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    failure: Exception,
    cause: str,
) -> None:
    def broken(
        digest: str, periods: Collection[str] | None = None, max_reports: int | None = None
    ) -> list[StoredPeriod]:
        raise failure

    monkeypatch.setattr(store, "read", broken)
    with caplog.at_level(logging.DEBUG):
        answer = start(store).get("/v1/metrics/homepage/summary")
    assert_refused(answer, ProblemType.INTERNAL_ERROR)
    assert "private" not in answer.body.decode() + caplog.text
    assert cause in caplog.text


def test_store_error_returns_503_with_retry_after(
    start: StartAggregator, store: SqlStore, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    aggregator = start(store)

    def broken(*_: object) -> Any:
        raise StoreError("the disk is gone")

    for method in ("append", "contains", "probe", "read"):
        monkeypatch.setattr(store, method, broken)
    homepage = aggregator.definitions["homepage"]
    for answer in (
        aggregator.post(make_batch(homepage)),
        aggregator.post(make_batch(homepage, period="2024-01-01")),  # closed, so the store is asked for a duplicate
        aggregator.get("/readyz"),
        aggregator.get("/v1/metrics/homepage/summary"),
    ):
        assert_refused(answer, ProblemType.UNAVAILABLE)
        assert int(answer.headers["retry-after"]) > 0
    monkeypatch.undo()
    assert aggregator.stored() == 0


@pytest.mark.parametrize("refusal", ProblemType)
def test_every_problem_type_has_a_page(aggregator: Aggregator, refusal: ProblemType) -> None:
    answer = aggregator.get(f"/problems/{refusal.slug}")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert f"<h1>{refusal.slug}</h1>" in answer.body.decode()
    assert '<a href="/">All metrics</a>' in answer.body.decode()
    of_batches = refusal not in {
        ProblemType.NOT_HTTP,
        ProblemType.HEADERS_TOO_LARGE,
        ProblemType.CROSS_SITE,
        ProblemType.NOT_FOUND,
        ProblemType.METHOD_NOT_ALLOWED,
        ProblemType.INVALID_QUERY,
    }
    assert ("No part of a refused batch is stored." in answer.body.decode()) == of_batches


def test_every_problem_type_is_tested() -> None:
    """Searches the names in these files, so that a new problem type without a test fails."""
    here = Path(__file__)
    parts = ("test_tokens", "test_dashboard", "../server/test_uvicorn_protocol", "../pipeline/test_implausible_reports")
    files = [here, *(here.parent / f"{part}.py" for part in parts)]
    texts = [file.read_text(encoding="utf-8") for file in files]
    named = set(re.findall(r"ProblemType\.([A-Z_]+)", "".join(texts)))
    assert {refusal.name for refusal in ProblemType} <= named


@pytest.mark.parametrize("digest", ["\0", "\u00e9", "0" * 63, "A" * 64])
def test_rejects_malformed_digest(start: StartAggregator, store: SqlStore, make_batch: MakeBatch, digest: str) -> None:
    aggregator = start(store)
    body = altered(make_batch(aggregator.definitions["homepage"]), digest=digest)
    assert_refused(aggregator.post(body), ProblemType.DIGEST_MISMATCH)
