"""CORS: requests from pages of other origins, allowed only for configured origins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from hubbub import Definitions
from hubbub.errors import ParameterError
from hubbub_aggregator.app import create_app
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.sql_store import SqlStore
from tests.aggregator.conftest import FakeClock
from tests.support.asgi import ADDRESS, AppResponse, Caller, started

if TYPE_CHECKING:
    from tests.aggregator.conftest import MakeBatch, StartAggregator

OURS, ALSO, OTHER = "https://app.example.org", "http://localhost:8080", "https://elsewhere.example"
JSON = (b"content-type", b"application/json")


@pytest.fixture
def caller(definitions: Definitions, sqlite_store: SqlStore) -> Iterator[Caller]:
    settings = Settings(
        cors_origin=(OURS, ALSO),
        client_rate=0.001,
        client_burst_seconds=1_000,
        local_rate_factor=1,
        local_reads_without_token=True,
    )
    with started(create_app(definitions, sqlite_store, settings, FakeClock(), local_address=ADDRESS)) as caller:
        yield caller


def preflight(
    caller: Caller, path: str, method: str, origin: str = OURS, headers: str = "content-type,content-encoding"
) -> AppResponse:
    """Send a browser's preflight request."""
    names = {"origin": origin, "access-control-request-method": method, "access-control-request-headers": headers}
    return caller.call("OPTIONS", path, [(name.encode(), value.encode()) for name, value in names.items()])


def origin(name: str) -> tuple[bytes, bytes]:
    return (b"origin", name.encode())


@pytest.mark.parametrize("named", [OURS, ALSO])
@pytest.mark.parametrize(("path", "method"), [("/v1/reports", "POST"), ("/v1/metrics", "GET")])
def test_preflight_allows_configured_origins(caller: Caller, path: str, method: str, named: str) -> None:
    response = preflight(caller, path, method, named)
    assert (response.status, response.body) == (204, b"")
    assert response.headers["access-control-allow-origin"] == named
    assert response.headers["access-control-allow-methods"] == method
    allowed = response.headers["access-control-allow-headers"].lower().split(", ")
    assert {"content-type", "content-encoding", "authorization"} <= set(allowed)
    assert "access-control-allow-credentials" not in response.headers
    assert response.headers["x-content-type-options"] == "nosniff"


def test_preflight_refuses_other_origins(caller: Caller) -> None:
    for response in (
        preflight(caller, "/v1/reports", "POST", OTHER),
        caller.post([JSON, origin(OTHER)], [b"{}"]),
        caller.post([JSON, origin("null")], [b"{}"]),
        caller.call("GET", "/v1/metrics", [origin(OTHER)]),
    ):
        assert "access-control-allow-origin" not in response.headers
        assert response.headers["vary"].startswith("Origin")


def test_cross_origin_page_reads_problems_and_retry_after(
    caller: Caller, definitions: Definitions, make_batch: MakeBatch
) -> None:
    body = make_batch(definitions["homepage"]).to_json()
    network = (b"x-forwarded-for", b"192.0.2.7")
    response = [caller.post([JSON, origin(OURS), network], [body]) for _ in range(2)]
    assert [answer.status for answer in response] == [202, 429]
    assert int(response[1].headers["retry-after"]) > 0
    for answer in [*response, caller.call("GET", "/v1/metrics", [origin(OURS)])]:
        assert answer.headers["access-control-allow-origin"] == OURS
        assert answer.headers["access-control-expose-headers"] == "Date, Retry-After"
        assert "access-control-allow-credentials" not in answer.headers


def test_cross_origin_page_reads_responses_on_kept_connections(
    start: StartAggregator, sqlite_store: SqlStore, make_batch: MakeBatch
) -> None:
    aggregator = start(sqlite_store, cors_origin=(OURS,))
    response = aggregator.post(make_batch(aggregator.definitions["homepage"]), origin=OURS)
    assert (response.status, response.headers["access-control-allow-origin"]) == (202, OURS)


@pytest.mark.parametrize("path", ["/v1/metrics/homepage/summary", "/metrics", "/readyz", "/nowhere"])
def test_other_paths_have_no_cors_headers(caller: Caller, path: str) -> None:
    assert "access-control-allow-origin" not in caller.call("GET", path, [origin(OURS)]).headers
    refused = preflight(caller, path, "GET")
    assert refused.headers["content-type"] == "application/problem+json"
    assert "access-control-allow-origin" not in refused.headers


def test_cors_is_off_by_default(definitions: Definitions, sqlite_store: SqlStore) -> None:
    with started(create_app(definitions, sqlite_store, clock=FakeClock())) as caller:
        refused = preflight(caller, "/v1/reports", "POST")
        assert (refused.status, refused.json["type"]) == (405, "/problems/method-not-allowed")
        assert "access-control-allow-origin" not in caller.post([JSON, origin(OURS)], [b"{}"]).headers


@pytest.mark.parametrize(
    "wrong", ["*", "null", "app.example.org", "https://app.example.org/", "https://App.example.org"]
)
def test_rejects_invalid_origins(wrong: str) -> None:
    with pytest.raises(ParameterError, match="cors_origin must be https://host"):
        Settings(cors_origin=(wrong,))
