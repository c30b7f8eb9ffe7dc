"""Fixtures: a real aggregator in a thread, databases, and batches to send."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import urllib3
import uvicorn

from hubbub import Batch, Definitions, Metric, parse_definitions
from hubbub.summary import Summary, summary_from_bytes
from hubbub_aggregator.app import create_app
from hubbub_aggregator.pipeline.credible_clock import Reading, ServiceClock
from hubbub_aggregator.pipeline.folding import read_summary
from hubbub_aggregator.server.listener import bound_address, bound_url, listen, uvicorn_config
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.sql_store import SqlStore
from tests.support.databases import make_version_6, new_postgres
from tests.support.html import without_word_spans
from tests.support.postgres import postgres

DEFINITIONS = """
[[metric]]                  # k > 16: folded into bit counts; padding bits
name = "homepage"
kind = "string"
description = "The page they start from."
owner = "owner@example.org"
num_bits = 20
num_hashes = 2
num_cohorts = 4
prob_p = 0.25
prob_q = 0.75
prob_f = 0.5
expires = 2030-01-01

[[metric]]                  # k <= 16: folded into pattern counts
name = "carrier"
kind = "categorical"
description = "Who flew."
owner = "owner@example.org"
categories = ["AA", "UA", "DL"]
prob_p = 0.25
prob_q = 0.75
prob_f = 0.5
expires = 2030-01-01

[[metric]]                  # two versions of one metric, of weeks
name = "from_jfk"
kind = "boolean"
description = "Whether it left from JFK."
owner = "owner@example.org"
period = "week"
prob_p = 0.25
prob_q = 0.75
prob_f = 0
expires = 2030-01-01

[[metric]]
name = "from_jfk"
kind = "boolean"
description = "Whether it left from JFK."
owner = "owner@example.org"
period = "week"
prob_p = 0
prob_q = 1
prob_f = 0.5
expires = 2030-01-01

[[metric]]
name = "gone"
kind = "boolean"
description = "What nobody asks any more."
owner = "owner@example.org"
prob_p = 0
prob_q = 1
prob_f = 0.5
expires = 2024-06-15
"""

NOON = datetime(2024, 6, 15, 12, tzinfo=UTC)  # a Saturday
TODAY = "2024-06-15"


@dataclass
class FakeClock:
    """A clock that tests set."""

    now: datetime = NOON

    def __call__(self) -> datetime:
        return self.now

    def reading(self) -> Reading:
        return Reading(self.now)

    observe = reading


@dataclass(frozen=True)
class HttpResponse:
    status: int
    headers: urllib3.HTTPHeaderDict
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def page(self) -> str:
        """HTML, without the elements that keep numbers whole."""
        return without_word_spans(self.body.decode())


@dataclass
class Aggregator:
    """A running aggregator: its URL, and the store and clock behind it."""

    url: str
    definitions: Definitions
    store: SqlStore
    clock: Any  # a FakeClock, except in tests of the clock
    http: urllib3.PoolManager = field(default_factory=lambda: urllib3.PoolManager(maxsize=16, retries=False))

    def request(
        self, method: str, path: str, body: bytes | Iterator[bytes] | None = None, **headers: str
    ) -> HttpResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = self.http.request(method, self.url + path, body=body, headers=named)
        return HttpResponse(answer.status, answer.headers, answer.data)

    def post(self, body: bytes | Batch, **headers: str) -> HttpResponse:
        data = body.to_json() if isinstance(body, Batch) else body
        return self.request("POST", "/v1/reports", data, **({"content_type": "application/json"} | headers))

    def get(self, path: str, **headers: str) -> HttpResponse:
        return self.request("GET", path, None, **headers)

    def summary(self, name: str, query: str = "") -> Summary:
        answer = self.get(f"/v1/metrics/{name}/summary{query}")
        assert answer.status == 200, answer.body
        return summary_from_bytes(answer.body)

    def stored(self) -> int:
        """Count the reports of all metrics."""
        return sum(read_summary(self.store, metric).num_reports for metric in self.definitions.versions())


@contextmanager
def running(
    definitions: Definitions,
    store: SqlStore,
    settings: Settings,
    clock: ServiceClock | None = None,
    free: Callable[[], int] | None = None,
) -> Iterator[Aggregator]:
    clock = clock or FakeClock()
    listener = listen("127.0.0.1", 0)
    url = bound_url(listener)
    local_address = bound_address(listener) if settings.local_reads_without_token else None
    app = create_app(definitions, store, settings, clock, free, local_address=local_address)
    server = uvicorn.Server(uvicorn_config(app, settings.connection_limits()))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    aggregator = Aggregator(url, definitions, store, clock)
    try:
        aggregator.get("/livez")  # waits in the socket's backlog until the server accepts
        yield aggregator
    finally:
        aggregator.http.clear()
        server.should_exit = True
        thread.join()


StartAggregator = Callable[..., Aggregator]
MakeBatch = Callable[..., Batch]


class FasterAsyncio:
    """The module asyncio for uvicorn's server, which looks ten times a second whether it was told to end: here 200 times."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 20)


@pytest.fixture(autouse=True, scope="session")
def short_waits() -> Iterator[None]:
    """Remove the delay of 429 responses and shorten that of a server's end, because many tests wait for them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("hubbub_aggregator.api.ingest.REFUSAL_DELAY_SECONDS", 0.0)
        patched.setattr("uvicorn.server.asyncio", FasterAsyncio())
        yield


@pytest.fixture(scope="module")
def definitions() -> Definitions:
    return parse_definitions(DEFINITIONS)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """URL of a PostgreSQL server for the whole run."""
    with postgres() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Name of an empty database for one test, on each engine in turn."""
    if request.param == "sqlite":
        return str(tmp_path / "reports.db")
    server: str = request.getfixturevalue("postgres_url")
    return new_postgres(server)


@pytest.fixture
def version_6(database: str) -> str:
    """A database that the first release, of schema version 6, created and used."""
    make_version_6(database)
    return database


@pytest.fixture
def closed_last() -> Iterator[ExitStack]:
    """Stack that closes stores after the aggregators that use them."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def store(database: str, closed_last: ExitStack) -> SqlStore:
    """An empty store, on each engine in turn."""
    opened = SqlStore.open(database)
    closed_last.callback(opened.close)
    return opened


@pytest.fixture
def sqlite_store(tmp_path: Path, closed_last: ExitStack) -> SqlStore:
    """An empty store on SQLite, for tests that read its file."""
    opened = SqlStore.open(tmp_path / "reports.db")
    closed_last.callback(opened.close)
    return opened


@pytest.fixture
def start(definitions: Definitions, closed_last: ExitStack) -> Iterator[StartAggregator]:
    """Function that starts an aggregator on a store; it is stopped after the test."""
    with ExitStack() as stack:

        def start_one(
            store: SqlStore,
            free: Callable[[], int] | None = None,
            local_reads_without_token: bool = True,
            **limits: Any,
        ) -> Aggregator:
            return stack.enter_context(
                running(
                    definitions,
                    store,
                    Settings(local_reads_without_token=local_reads_without_token, **limits),
                    free=free,
                )
            )

        yield start_one


@pytest.fixture(scope="module")
def aggregator(definitions: Definitions, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aggregator]:
    """An aggregator that the tests of a module share; a test that changes its clock sets it back to noon."""
    store = SqlStore.open(tmp_path_factory.mktemp("aggregator") / "reports.db")
    with running(
        definitions, store, Settings(max_body=30_000, max_reports=500, local_reads_without_token=True)
    ) as shared:
        yield shared
    store.close()


@pytest.fixture(scope="module")
def make_batch() -> MakeBatch:
    """Function that creates a batch of valid reports with random bits."""
    rng = random.Random(0)  # noqa: S311  (any bits will do)

    def make(metric: Metric, n: int = 3, period: str = TODAY, **fields: Any) -> Batch:
        rows = (rng.getrandbits(metric.num_bits).to_bytes(metric.row_bytes, "little") for _ in range(n))
        formed: dict[str, Any] = {
            "batch_id": uuid.UUID(int=rng.getrandbits(128), version=4),
            "metric": metric.name,
            "digest": metric.digest,
            "period": period,
            "cohorts": bytes(rng.randrange(metric.num_cohorts) for _ in range(n)),
            "rows": b"".join(rows),
        }
        return Batch(**(formed | fields))

    return make
