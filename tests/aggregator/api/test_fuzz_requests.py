"""Thousands of random requests (hypothesis): each gets a documented response, and exactly the acknowledged batches are counted.

HUBBUB_TEST_REQUESTS=100000 pytest -s tests/aggregator/api/test_fuzz_requests.py     # as `make soak` does
"""

from __future__ import annotations

import json
import logging
import os
import zlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed
from hypothesis import settings as hypothesis_settings

from hubbub import Definitions
from hubbub_aggregator.app import create_app
from hubbub_aggregator.pipeline.folding import read_summary
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.sql_store import SqlStore
from tests.aggregator.conftest import FakeClock
from tests.support.asgi import ADDRESS, AppResponse, Caller, started
from tests.support.crafted_requests import MAX_BODY, MAX_REPORTS, Request, RequestStrategies, fits

NUM_REQUESTS = int(os.environ.get("HUBBUB_TEST_REQUESTS", "1500"))
AT_ONCE = 2_500  # hypothesis keeps every example of a run in memory
OFTEN = {
    "malformed",
    "digest-mismatch",
    "cohort-out-of-range",
    "padding-set",
    "unsupported-media-type",
}
# each is rare; together 29 to 47 times in 8 runs
OF_PERIODS = {"period-closed", "period-misaligned", "period-not-started"}
LIMITS = Settings(max_body=MAX_BODY, max_reports=MAX_REPORTS, local_reads_without_token=True)


@pytest.fixture
def caller(definitions: Definitions, sqlite_store: SqlStore) -> Iterator[Caller]:
    with started(create_app(definitions, sqlite_store, LIMITS, FakeClock(), local_address=ADDRESS)) as caller:
        yield caller


def check_documented(response: AppResponse, responses: dict[str, Any]) -> str:
    """Assert a documented status and media type, no 5xx, and RFC 9457; return the status of the batch or the problem slug."""
    assert response.status < 500
    documented = responses[str(response.status)]
    assert response.headers["content-type"].partition(";")[0] in documented["content"]
    if response.status < 300:
        assert set(response.json) == {"batch_id", "status"}
        return str(response.json["status"])
    problem = response.json
    slug = str(problem["type"]).removeprefix("/problems/")
    assert set(problem) == {"type", "title", "status", "detail"}
    assert problem["status"] == response.status
    assert f"`{slug}`" in documented["description"]
    assert len(response.body) < 2_000, "a refusal repeats a part of the request"
    return slug


def inflated(request: Request) -> bytes:
    body = b"".join(request.chunks)
    return zlib.decompress(body, 31) if body.startswith(b"\x1f\x8b") else body


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_random_requests_are_refused_as_documented_or_counted_once(
    caller: Caller,
    definitions: Definitions,
    sqlite_store: SqlStore,
    unseen_seed: int,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    responses = caller.call("GET", "/openapi.json").json["paths"]["/v1/reports"]["post"]["responses"]
    acknowledged: dict[tuple[str, ...], int] = {}
    verdicts: dict[str, Counter[str]] = {}

    def send(request: Request) -> None:
        response = caller.post(request.headers, request.chunks, hangs_up=request.hangs_up)
        if request.hangs_up and not response.status:
            verdicts.setdefault(request.family, Counter())["hung up"] += 1
            return
        verdict = check_documented(response, responses)
        verdicts.setdefault(request.family, Counter())[verdict] += 1
        if request.family == "right":
            assert verdict in ("stored", "duplicate")
            assert caller.post(request.headers, request.chunks).json["status"] == "duplicate"
        if verdict == "stored":
            body = inflated(request)
            assert fits(body, definitions)
            fields = json.loads(body)
            key = tuple(fields[name] for name in ("batch_id", "digest", "period"))
            assert key not in acknowledged
            acknowledged[key] = len(fields["cohorts"])

    with caplog.at_level(logging.DEBUG):
        caplog.clear()
        for start in range(0, NUM_REQUESTS, AT_ONCE):
            run = given(RequestStrategies(definitions).requests())(send)
            run = hypothesis_settings(
                max_examples=min(AT_ONCE, NUM_REQUESTS - start),
                database=None,
                suppress_health_check=list(HealthCheck),
            )(seed(unseen_seed + start)(run))
            run()
        ours = [record for record in caplog.records if record.name.startswith(("hubbub", "uvicorn", "fastapi"))]
    assert not ours, "a request was logged"
    stored = sum(read_summary(sqlite_store, metric).num_reports for metric in definitions.versions())
    assert stored == sum(acknowledged.values())
    assert set(verdicts) == {"right", "nearly right", "damaged", "hostile", "gzipped", "lengths", "headed"}
    met = set(sum(verdicts.values(), Counter()))
    assert {*OFTEN, "stored", "duplicate"} <= met
    assert OF_PERIODS & met
    with capsys.disabled():
        if "HUBBUB_TEST_REQUESTS" in os.environ:
            for family, of in sorted(verdicts.items()):
                print(f"{family:13} {of.total():7,}  ", ", ".join(f"{name} {n:,}" for name, n in of.most_common()))  # noqa: T201


@pytest.mark.parametrize("length", [b"", b"-1", b"7.0", b"\xb2", b"9" * 5_000])
def test_rejects_invalid_content_length(caller: Caller, length: bytes) -> None:
    """The HTTP server of `hubbub serve` rejects these itself; another server may pass them on."""
    response = caller.post([(b"content-type", b"application/json"), (b"content-length", length)], [b"{}"])
    assert (response.status, response.json["type"]) == (400, "/problems/malformed")
