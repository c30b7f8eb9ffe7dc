"""Failover of PostgreSQL: the aggregator finds the new primary, keeps no connection to a standby, and counts each batch once."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest

from hubbub import Batch, Definitions
from hubbub_aggregator.database.engine import open_postgres, transaction
from hubbub_aggregator.errors import StoreError
from hubbub_aggregator.store.interface import AppendResult
from hubbub_aggregator.store.sql_store import SqlStore
from tests.support.postgres import Postgres

if TYPE_CHECKING:
    from tests.aggregator.conftest import MakeBatch, StartAggregator

pytestmark = [
    pytest.mark.slow,
    # psycopg cannot close a cursor of a connection that a failover ended; Python may find it in a later test
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <function ServerCursorMixin:pytest.PytestUnraisableExceptionWarning"
    ),
]
GIVE_UP_SECONDS = 60


@pytest.fixture
def pair() -> Iterator[tuple[Postgres, Postgres]]:
    """A primary and its standby; a commit waits for the standby."""
    with TemporaryDirectory(prefix="hubbub-pg-") as first, TemporaryDirectory(prefix="hubbub-pg-") as second:
        primary = Postgres(Path(first))
        standby = Postgres(Path(second), primary)
        primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        primary.execute("SELECT pg_reload_conf()")
        try:
            yield primary, standby
        finally:
            standby.stop()
            primary.stop()


def test_service_counts_each_batch_once_through_a_failover(
    pair: tuple[Postgres, Postgres], start: StartAggregator, make_batch: MakeBatch, closed_last: ExitStack
) -> None:
    """Each batch is sent until it is accepted, and once more."""
    primary, standby = pair
    store = SqlStore.open(f"postgresql://hubbub@/postgres?host={primary.sockets},{standby.sockets}")
    closed_last.callback(store.close)
    aggregator = start(store, fold_interval=0.05)
    metric = aggregator.definitions["homepage"]
    batches = [make_batch(metric) for _ in range(200)]
    halfway, killed, refused = threading.Event(), threading.Event(), threading.Event()

    def deliver(batch: Batch) -> int:
        while (status := aggregator.post(batch).status) == 503:
            refused.set()
            time.sleep(0.01)
        return status

    def send() -> list[int]:
        statuses = []
        for number, batch in enumerate(batches):
            if number == len(batches) // 2:
                halfway.set()
                killed.wait()
            statuses.append(deliver(batch))
            assert deliver(batch) == 200
        return statuses

    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send)
        assert halfway.wait(GIVE_UP_SECONDS), sending.result(0)
        primary.kill()
        killed.set()
        assert refused.wait(GIVE_UP_SECONDS), sending.result(0)
        standby.execute("SELECT pg_promote()")
        statuses = sending.result()
    assert set(statuses) <= {200, 202}
    assert statuses.count(200) <= 1, "200 only for the batch whose commit was in doubt"
    assert aggregator.get("/readyz").status == 200
    assert aggregator.summary("homepage").num_reports == 3 * len(batches)


def test_pool_keeps_no_connection_to_a_standby(
    pair: tuple[Postgres, Postgres], tmp_path: Path, definitions: Definitions, make_batch: MakeBatch
) -> None:
    """A name that leads to another server for a while, as DNS does during a failover."""
    primary, standby = pair
    name = tmp_path / "database"
    name.symlink_to(primary.sockets)
    with closing(SqlStore.open(f"postgresql://hubbub@/postgres?host={name}")) as store:
        batch = make_batch(definitions["homepage"])
        name.unlink()
        name.symlink_to(standby.sockets)
        primary.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        for _ in range(3):
            with pytest.raises(StoreError):
                store.append([batch])
        with pytest.raises(StoreError, match="read-only"):
            store.append([batch])
        name.unlink()
        name.symlink_to(primary.sockets)
        assert store.append([batch]) == [AppendResult.STORED]


def forward(listener: socket.socket, unix_socket: str) -> None:
    """Forward one TCP connection to a unix socket."""
    client, _ = listener.accept()
    with client, socket.socket(socket.AF_UNIX) as server:
        server.connect(unix_socket)
        while True:
            ready, _, _ = select.select([client, server], [], [])
            for source, target in ((client, server), (server, client)):
                if source in ready:
                    data = source.recv(1 << 16)
                    if not data:
                        return
                    target.sendall(data)


def test_connection_has_options_that_detect_a_vanished_server(postgres_url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        unix_socket = f"{postgres_url.partition('host=')[2]}/.s.PGSQL.5432"
        threading.Thread(target=forward, args=(listener, unix_socket), daemon=True).start()
        engine = open_postgres(f"postgresql://hubbub@127.0.0.1:{listener.getsockname()[1]}/postgres")
        with closing(engine.raw_connection()) as connection:
            driver: Any = connection.driver_connection
            with socket.socket(fileno=os.dup(driver.pgconn.socket)) as raw:
                options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
                assert [raw.getsockopt(socket.IPPROTO_TCP, option) for option in options] == [5, 5, 2, 15_000]
        engine.dispose()


@pytest.mark.parametrize(("query", "seconds"), [("", 5), ("?connect_timeout=2", 2)])
def test_connecting_to_a_silent_server_ends(query: str, seconds: float) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        engine = open_postgres(f"postgresql://hubbub@127.0.0.1:{silent.getsockname()[1]}/postgres{query}")
        began = time.monotonic()
        with pytest.raises(StoreError, match="timeout"), transaction(engine, writes=False):
            pass
        assert seconds - 1 < time.monotonic() - began < seconds + 60
