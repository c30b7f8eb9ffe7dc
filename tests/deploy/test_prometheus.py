"""A real Prometheus with the configuration of deploy/ scrapes an aggregator and evaluates every rule and every query."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
import urllib3

from hubbub_aggregator.cli.fold import write_fold_textfile
from hubbub_aggregator.store.sql_store import SqlStore
from hubbub_aggregator.store.tokens import Scope, Token, hash_secret, new_token
from tests.deploy.conftest import free_port
from tests.deploy.test_names import dashboard_queries
from tests.support.paths import DEPLOY
from tests.support.programs import installed

if TYPE_CHECKING:
    from tests.aggregator.conftest import MakeBatch, StartAggregator

GIVE_UP_SECONDS = 60


def get(http: urllib3.HTTPConnectionPool, path: str, **fields: str) -> Any:
    """Return the data of a response of Prometheus's API."""
    answer = http.request("GET", f"/api/v1/{path}", fields=fields).json()
    assert answer["status"] == "success", answer
    return answer["data"]


@contextmanager
def served_fold_textfile(place: Path) -> Iterator[str]:
    """Serve the file of a run of `hubbub fold` as the node exporter would, as /fold.txt; yields the address."""
    write_fold_textfile(place / "fold.txt", [{"status": "failed"}], ended=time.time() - 3 * 86400, seconds=1)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(place))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.slow
def test_every_query_has_a_result_and_every_rule_is_evaluated(
    start: StartAggregator,
    sqlite_store: SqlStore,
    make_batch: MakeBatch,
    monkeypatch: pytest.MonkeyPatch,
    closed_last: ExitStack,
    tmp_path: Path,
) -> None:
    tool = installed("prometheus")
    aggregator = start(sqlite_store, free=lambda: 1 << 40, local_reads_without_token=False, fold_interval=0.2)
    metric = aggregator.definitions["homepage"]
    monkeypatch.setattr(sqlite_store, "implausible_periods", lambda: {(metric.digest, "ones"): 1})
    secret = new_token()
    assert sqlite_store.add_token(Token("prometheus", frozenset([Scope.METRICS])), hash_secret(secret))

    shutil.copytree(DEPLOY / "prometheus", tmp_path / "prometheus")
    (tmp_path / "metrics").write_text(secret)
    config = tmp_path / "prometheus" / "prometheus.yml"
    text = config.read_text().replace("15s", "500ms").replace("/etc/hubbub/metrics", str(tmp_path / "metrics"))
    targets = '"replica-1:8000", "replica-2:8000"'
    assert targets in text
    text = text.replace(targets, json.dumps(aggregator.url.removeprefix("http://")))
    textfile = closed_last.enter_context(served_fold_textfile(tmp_path))
    node = f"{{job_name: node, metrics_path: /fold.txt, static_configs: [{{targets: ['{textfile}']}}]}}"
    config.write_text(f"{text}\n  - {node}\n")

    port, log = free_port(), tmp_path / "log"
    command = [tool, f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}"]
    with log.open("wb") as output:
        server = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=output, stderr=output)
    try:
        http = urllib3.HTTPConnectionPool("127.0.0.1", port, retries=urllib3.Retry(20, backoff_factor=0.05))
        missing, until = dashboard_queries(), time.monotonic() + GIVE_UP_SECONDS
        while missing and time.monotonic() < until:
            assert server.poll() is None, log.read_text()
            assert aggregator.post(make_batch(metric)).status == 202
            aggregator.get("/nothing")
            time.sleep(0.2)
            missing = [query for query in missing if not get(http, "query", query=query)["result"]]
        assert missing == [], log.read_text()
        fold_alerts, firing = {"HubbubFoldFailed", "HubbubFoldOverdue"}, set[str]()
        # rules are evaluated after the queries have results
        while not fold_alerts <= firing and time.monotonic() < until:
            time.sleep(0.2)
            rules = get(http, "rules")["groups"][0]["rules"]
            firing = {rule["name"] for rule in rules if rule["state"] == "firing"}
        assert [(rule["name"], rule["lastError"]) for rule in rules if rule["health"] != "ok"] == []
        annotations = [text for rule in rules for alert in rule["alerts"] for text in alert["annotations"].values()]
        assert annotations
        assert fold_alerts <= firing
        assert [text for text in annotations if "<error" in text or "<no value>" in text] == []
    finally:
        server.terminate()
        server.wait(30)
