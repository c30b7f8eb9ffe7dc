"""Rate limit: requests, reports and bytes per network."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub_aggregator.api.dependencies import warn_of_local_limit
from hubbub_aggregator.api.ingest import decode_batch
from hubbub_aggregator.server.client_address import LOCAL
from hubbub_aggregator.server.limits import RateLimit

if TYPE_CHECKING:
    from hubbub import Batch, Definitions
    from hubbub_aggregator.store.sql_store import SqlStore
    from tests.aggregator.conftest import MakeBatch, StartAggregator

BURST = 40.0


@given(st.lists(st.tuples(st.floats(0, 30), st.floats(0.001, 100)), min_size=1, max_size=60))
def test_rate_limit_matches_a_model(sent: list[tuple[float, float]]) -> None:
    """In any window the accepted costs are at most its length, plus the burst, plus one request above the burst.

    A refused request is accepted after exactly the time in the refusal.
    """
    now = 0.0
    limit = RateLimit(BURST, clock=lambda: now)
    accepted: list[tuple[float, float]] = []
    for pause, cost in sent:
        now += pause
        wait = limit.spend("192.0.2.1", cost)
        if wait:
            before = now
            now += wait * 0.999
            assert limit.spend("192.0.2.1", cost) > 0
            now = before + wait + 1e-6
            assert limit.spend("192.0.2.1", cost) == 0
        accepted.append((now, cost))
    for begin, (start, _) in enumerate(accepted):
        total = 0.0
        for end, cost in accepted[begin:]:
            allowance = end - start + BURST
            assert total + min(cost, BURST) <= allowance + 1e-3
            total += cost


def test_rate_limit_counts_by_network_prefix() -> None:
    limit = RateLimit(1.0, clock=lambda: 0.0)
    assert limit.spend("2001:db8:1::1", 1.0) == 0
    assert limit.spend("2001:db8:1:ffff::9", 1.0) == 1.0
    assert [limit.spend(host, 1.0) for host in ("2001:db8:2::1", "192.0.2.1", LOCAL)] == [0, 0, 0]


ATTACKER, HONEST = "198.51.100.1", "203.0.113.1"


def send(start: StartAggregator, store: SqlStore, bodies: list[bytes], coding: str, **limits: float) -> list[int]:
    """Return the responses to bodies of one network, in order, with a burst of one second."""
    settings = {"client_rate": 1e6, "client_report_rate": 1e6, "client_byte_rate": 10**9} | limits
    aggregator = start(store, client_burst_seconds=1e-3, **settings)
    answers = [aggregator.post(body, x_forwarded_for=ATTACKER, content_encoding=coding).status for body in bodies]
    assert aggregator.post(bodies[0], x_forwarded_for=HONEST, content_encoding=coding).status in (200, 202)
    return answers


@pytest.mark.parametrize("coding", ["identity", "gzip"])
@pytest.mark.parametrize(
    ("limits", "accepted"),
    [({}, 4), ({"client_rate": 1e-3}, 1), ({"client_report_rate": 1e-3}, 1), ({"client_byte_rate": 1}, 1)],
    ids=str,
)
def test_each_rate_is_limited_separately(
    start: StartAggregator,
    sqlite_store: SqlStore,
    make_batch: MakeBatch,
    definitions: Definitions,
    limits: dict[str, float],
    accepted: int,
    coding: str,
) -> None:
    batches = [make_batch(definitions["homepage"], n=100).to_json() for _ in range(4)]
    bodies = [gzip.compress(body) if coding == "gzip" else body for body in batches]
    answers = send(start, sqlite_store, bodies, coding, **limits)
    assert answers == [202] * accepted + [429] * (4 - accepted)


def test_inflated_bytes_are_charged_before_decoding(
    start: StartAggregator, sqlite_store: SqlStore, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[int] = []

    def decode(body: bytes) -> Batch:
        decoded.append(len(body))
        return decode_batch(body)

    monkeypatch.setattr("hubbub_aggregator.api.ingest.decode_batch", decode)
    aggregator = start(sqlite_store, client_rate=1e6, client_byte_rate=1, client_burst_seconds=1.0)
    bomb = gzip.compress(b'{"x":[' + b"[]," * 20_000 + b"[]]}")
    answers = [aggregator.post(bomb, x_forwarded_for=ATTACKER, content_encoding="gzip") for _ in range(3)]
    assert [answer.status for answer in answers] == [400, 429, 429]
    assert len(decoded) == 1
    wait = int(answers[1].headers["retry-after"])
    assert 60_000 <= wait <= 60_020


@pytest.mark.parametrize("path", ["/readyz", "/v1/metrics", "/nothing", "/", "/v1/metrics/homepage/summary"])
def test_other_requests_are_rate_limited(start: StartAggregator, sqlite_store: SqlStore, path: str) -> None:
    aggregator = start(sqlite_store, client_rate=1e-3, client_burst_seconds=3_000)
    answers = [aggregator.get(path, x_forwarded_for=ATTACKER).status for _ in range(5)]
    assert answers[3:] == [429, 429]
    assert 429 not in answers[:3]
    assert aggregator.get(path, x_forwarded_for=HONEST).status == answers[0]
    assert [aggregator.get("/livez", x_forwarded_for=ATTACKER).status for _ in range(5)] == [200] * 5


def test_requests_with_wrong_tokens_are_rate_limited(start: StartAggregator, sqlite_store: SqlStore) -> None:
    aggregator = start(sqlite_store, client_rate=1e-3, client_burst_seconds=3_000, local_reads_without_token=False)
    guesses = [
        aggregator.get("/metrics", x_forwarded_for=ATTACKER, authorization=f"Bearer hubbub_{n}").status
        for n in range(5)
    ]
    assert guesses == [401, 401, 401, 429, 429]


def test_local_requests_without_client_have_a_higher_limit(
    start: StartAggregator, sqlite_store: SqlStore, caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_local_limit.cache_clear()
    aggregator = start(sqlite_store, client_rate=1e-3, client_burst_seconds=1_000, local_rate_factor=4)
    # the fixture requested only /livez, which is not charged
    answers = [aggregator.get("/v1/metrics").status for _ in range(6)]
    assert answers == [200] * 4 + [429] * 2
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert sum("set X-Forwarded-For" in text for text in warnings) == 1
