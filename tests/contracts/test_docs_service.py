"""What the documents say of the service: options, Prometheus metrics, no request data in files or logs, security headers."""

from __future__ import annotations

import logging
import re
import resource
import sys
import time
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from hubbub import ProblemType
from hubbub.cli import main
from hubbub_aggregator.cli.serve import command as serve
from hubbub_aggregator.errors import StoreError
from hubbub_aggregator.monitoring.log_output import JsonLines
from hubbub_aggregator.store.sql_store import SqlStore
from tests.support.paths import DOCS

if TYPE_CHECKING:
    from tests.aggregator.conftest import Aggregator, MakeBatch, StartAggregator

PAGE = DOCS / "reference" / "configuration.md"
CANARIES = ("203.0.113.77", "canary-agent", "canary-cookie", "canary-query", "canary-metric")


def variable_of(parameter: click.Parameter, prefix: str | None = "HUBBUB") -> str | None:
    """Return the environment variable of a parameter: its own, or the one that click derives from the prefix of a command."""
    if parameter.envvar or prefix is None or not isinstance(parameter, click.Option):
        return str(parameter.envvar) if parameter.envvar else None
    return f"{prefix}_{parameter.name}".upper() if parameter.allow_from_autoenv else None


def environment_of(command: click.Command) -> Iterator[str]:
    """Yield the environment variables of a command and its subcommands."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below
            yield from environment_of(below)
    prefix = command.context_settings.get("auto_envvar_prefix")
    yield from filter(None, (variable_of(parameter, prefix) for parameter in command.params))


def test_configuration_page_names_every_variable() -> None:
    """By its name, or as the variable of an option of `serve`, of which the page states the rule."""
    page = PAGE.read_text(encoding="utf-8")
    assert "`--max-body` is `HUBBUB_MAX_BODY`" in page
    by_rule = {f"HUBBUB_{option.opts[0].lstrip('-').replace('-', '_').upper()}" for option in serve.params}
    assert "HUBBUB_KEEP_COUNTS" in by_rule
    assert [name for name in environment_of(main) if f"`{name}`" not in page and name not in by_rule] == []


def test_prometheus_metrics_count_responses(start: StartAggregator, store: SqlStore, make_batch: MakeBatch) -> None:
    aggregator = start(store, fold_interval=1000, free=lambda: 1 << 40)
    metric = aggregator.definitions["homepage"]
    batch = make_batch(metric)
    for sent in (batch, batch, make_batch(metric), make_batch(metric, n=0)):
        aggregator.post(sent)
    answer = aggregator.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.body.decode().splitlines()
    for expected in (
        'hubbub_batches_total{metric="homepage",result="stored"} 2.0',
        'hubbub_batches_total{metric="homepage",result="duplicate"} 1.0',
        'hubbub_batches_total{metric="homepage",result="no-reports"} 1.0',
        'hubbub_batches_total{metric="carrier",result="stored"} 0.0',
        "hubbub_last_fold_timestamp_seconds 0.0",
        "hubbub_last_backup_timestamp_seconds 0.0",
        "hubbub_oldest_segment_age_seconds 0.0",
        'hubbub_refused_batches_total{metric="homepage",reason="no-reports"} 1.0',
        'hubbub_commit_seconds_bucket{le="+Inf"} 3.0',
        "hubbub_commit_seconds_count 3.0",
        "hubbub_queue_bytes 0.0",
        "hubbub_segments_waiting 2.0",
        "hubbub_disk_free_bytes 1.099511627776e+12",
        'hubbub_batches_total{metric="",result="too-slow"} 0.0',
        f'hubbub_definition_info{{digest="{metric.digest}",metric="homepage"}} 1.0',
        "hubbub_store_up 1.0",
    ):
        assert expected in lines
    sample = re.compile(r'[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? ([0-9.e+-]+|NaN)')
    assert all(line.startswith("# ") or sample.fullmatch(line) for line in lines)


def test_prometheus_metrics_omit_undefined_names(
    start: StartAggregator, store: SqlStore, make_batch: MakeBatch
) -> None:
    """A batch of an undefined metric with a stored id is a duplicate, but its name comes from the request."""
    aggregator = start(store, fold_interval=1000)
    homepage, carrier = aggregator.definitions["homepage"], aggregator.definitions["carrier"]
    stored = make_batch(homepage)
    for batch in (
        stored,
        make_batch(carrier),
        make_batch(carrier),
        replace(stored, metric="canary-metric"),
        replace(make_batch(carrier), metric="canary-metric"),
        replace(make_batch(carrier), digest=64 * "0"),
    ):
        aggregator.post(batch)
    numbers = aggregator.get("/metrics").body.decode()
    assert "canary-metric" not in numbers
    counted = {
        (metric, result): float(count)
        for metric, result, count in re.findall(
            r'^hubbub_batches_total{metric="([^"]*)",result="([^"]*)"} (.*)$', numbers, re.MULTILINE
        )
    }
    assert {key: count for key, count in counted.items() if count} == {
        ("homepage", "stored"): 1,
        ("carrier", "stored"): 2,
        ("", "duplicate"): 1,
        ("", "unknown-metric"): 1,
        ("carrier", "digest-mismatch"): 1,
    }
    names = set(aggregator.definitions)
    assert {metric for metric, _ in counted} == {"", *names}
    assert len(counted) == 2 * len(names) + 2 + len(ProblemType) - 1 + 1, (
        "two results of each metric, and one per refusal that occurred"
    )


def unlabelled_samples(aggregator: Aggregator) -> dict[str, float]:
    """Return the values of the samples without labels."""
    lines = aggregator.get("/metrics").body.decode()
    return {name: float(value) for name, value in re.findall(r"^(\w+) (\S+)$", lines, re.MULTILINE)}


def test_prometheus_metrics_include_last_fold_and_backup(
    start: StartAggregator, sqlite_store: SqlStore, tmp_path: Path
) -> None:
    aggregator = start(sqlite_store, fold_interval=0.01)
    backup = ["db", "backup", str(tmp_path / "backup.db"), "--database", str(tmp_path / "reports.db")]
    before = int(time.time())
    assert CliRunner().invoke(main, backup).exit_code == 0
    while not (values := unlabelled_samples(aggregator))["hubbub_last_fold_timestamp_seconds"]:
        pass
    assert values["hubbub_last_fold_timestamp_seconds"] == aggregator.clock().timestamp()
    assert before <= values["hubbub_last_backup_timestamp_seconds"] <= time.time()
    assert values["hubbub_oldest_segment_age_seconds"] == 0


def test_prometheus_metrics_include_age_of_unfolded_segments(
    start: StartAggregator, store: SqlStore, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("private")

    def age() -> float:
        return unlabelled_samples(aggregator)["hubbub_oldest_segment_age_seconds"]

    aggregator = start(store, fold_interval=0.01)
    with monkeypatch.context() as broken:
        broken.setattr(store, "fold", fail)
        assert aggregator.post(make_batch(aggregator.definitions["homepage"])).status == 202
        while not age():
            pass
    while age():
        pass


def test_prometheus_metrics_count_other_refused_requests(start: StartAggregator, store: SqlStore) -> None:
    aggregator = start(store)
    bad = {"x-forwarded-for": "192.0.2.1", "authorization": "Bearer hubbub_guessed"}
    for path, headers in (
        ("/metrics", bad),
        ("/", bad),
        ("/nothing", {}),
        ("/v1/metrics/homepage/summary?kind=all", {}),
    ):
        aggregator.get(path, **headers)
    aggregator.request("PUT", "/livez")
    lines = aggregator.get("/metrics").body.decode().splitlines()
    assert [line for line in lines if line.startswith("hubbub_refused_requests_total{")] == [
        'hubbub_refused_requests_total{reason="invalid-query"} 1.0',
        'hubbub_refused_requests_total{reason="method-not-allowed"} 1.0',
        'hubbub_refused_requests_total{reason="not-found"} 1.0',
        'hubbub_refused_requests_total{reason="unauthorized"} 2.0',
    ]


def test_prometheus_metrics_in_memory_need_no_database(
    start: StartAggregator, store: SqlStore, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    aggregator = start(store, fold_interval=1000)
    aggregator.post(make_batch(aggregator.definitions["homepage"]))

    def away() -> int:
        raise StoreError("the database is away")

    monkeypatch.setattr(store, "segments_waiting", away)
    lines = aggregator.get("/metrics").body.decode().splitlines()
    assert {
        'hubbub_batches_total{metric="homepage",result="stored"} 1.0',
        "hubbub_store_up 0.0",
        "hubbub_queue_bytes 0.0",
    } <= set(lines)
    assert not any(line.startswith("hubbub_segments_waiting") for line in lines)


def test_files_logs_and_metrics_contain_no_request_data(
    start: StartAggregator,
    sqlite_store: SqlStore,
    make_batch: MakeBatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Marker strings are sent with accepted, refused and failing requests; no file, log line or metric contains them."""

    def fail(*_: object) -> None:
        raise RuntimeError(" ".join(CANARIES))

    store = sqlite_store
    aggregator = start(store, fold_interval=0.05)
    headers = {
        "x_forwarded_for": CANARIES[0],
        "forwarded": f"for={CANARIES[0]}",
        "user_agent": CANARIES[1],
        "cookie": CANARIES[2],
    }
    metric = aggregator.definitions["homepage"]
    with caplog.at_level(logging.DEBUG):
        assert aggregator.post(make_batch(metric), **headers).status == 202
        assert aggregator.post(make_batch(metric, n=0), **headers).status == 422
        undefined = make_batch(metric).to_json().replace(b'"homepage"', b'"canary-metric"')
        assert aggregator.post(undefined, **headers).status == 404
        assert aggregator.get("/nowhere?canary-query", **headers).status == 404
        while store.unfolded(metric.digest):
            pass
        numbers = aggregator.get("/metrics", **headers).body.decode()
        with monkeypatch.context() as broken:
            broken.setattr(store, "append", fail)
            broken.setattr(store, "probe", fail)
            assert aggregator.post(make_batch(metric), **headers).status == 503
            assert aggregator.get("/readyz", **headers).status == 500
    lines, others = JsonLines(), ("urllib3", "asyncio")
    ours = "\n".join(lines.format(record) for record in caplog.records if not record.name.startswith(others))
    sinks = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert any(sinks.values())
    for canary in CANARIES:
        assert canary not in ours + numbers
        assert not [name for name, data in sinks.items() if canary.encode() in data], canary


def test_every_response_has_security_headers(start: StartAggregator, store: SqlStore, make_batch: MakeBatch) -> None:
    aggregator = start(store)
    batch = make_batch(aggregator.definitions["homepage"])
    answers = [aggregator.post(batch), aggregator.post(b"")]
    answers += [aggregator.get(path) for path in ("/v1/metrics", "/nowhere", "/problems/malformed", "/metrics")]
    for answer in answers:
        assert answer.headers.getlist("x-content-type-options") == ["nosniff"]
        assert answer.headers.getlist("cache-control") == ["no-store"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in other units elsewhere")
def test_100_gzip_bombs_use_less_than_20_mib(start: StartAggregator, store: SqlStore) -> None:
    """Each body has 1 GiB of zeros in 1 MiB; at most 4 MiB are inflated at a time."""
    aggregator = start(store)
    packer = zlib.compressobj(wbits=31)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(1000)) + packer.flush()
    assert len(bomb) < 1 << 20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(100):
        assert aggregator.post(bomb, content_encoding="gzip").status == 413
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 << 10
