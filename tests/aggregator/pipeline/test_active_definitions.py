"""Reload of the definitions while the service runs: the whole file is accepted or rejected."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from hubbub import parse_definitions
from hubbub_aggregator.app import create_app
from hubbub_aggregator.errors import StoreError
from hubbub_aggregator.pipeline.active_definitions import ActiveDefinitions, warn_of_removed_metrics
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.sql_store import SqlStore
from tests.aggregator.conftest import DEFINITIONS, FakeClock
from tests.support.asgi import ADDRESS, Caller, started

if TYPE_CHECKING:
    from tests.aggregator.conftest import MakeBatch

NEW_METRIC = """
[[metric]]
name = "theme"
kind = "boolean"
description = "Whether the dark theme is on."
owner = "owner@example.org"
prob_p = 0.25
prob_q = 0.75
prob_f = 0
expires = 2030-01-01
"""
NEW_VERSION = NEW_METRIC.replace("prob_f = 0", "prob_f = 0.5")
OLD = parse_definitions(DEFINITIONS + NEW_METRIC)
THEME = OLD["theme"].digest


def nothing_open() -> list[tuple[str, str]]:
    return []


def reloaded(text: str, open_periods: Callable[[], list[tuple[str, str]]] = nothing_open) -> ActiveDefinitions:
    active_definitions = ActiveDefinitions(OLD, lambda: parse_definitions(text), open_periods)
    active_definitions.reload()
    return active_definitions


def open_days(*days: str) -> Callable[[], list[tuple[str, str]]]:
    return lambda: [(THEME, day) for day in days]


def test_reload_accepts_new_metrics_and_versions() -> None:
    active_definitions = reloaded(
        DEFINITIONS + NEW_METRIC + NEW_VERSION + NEW_METRIC.replace("theme", "font"), open_days("2024-06-15")
    )
    assert active_definitions.last_reload_ok
    assert [metric.name for metric in active_definitions.current.versions()][-3:] == ["theme", "theme", "font"]
    assert active_definitions.current["theme"].digest != THEME


def test_reload_accepts_new_expiry_and_removal_of_closed_metrics() -> None:
    assert "theme" not in reloaded(DEFINITIONS).current
    later = reloaded((DEFINITIONS + NEW_METRIC).replace("2030-01-01", "2031-01-01"), open_days("2024-06-15"))
    assert later.last_reload_ok
    assert later.current["theme"].digest == THEME
    assert str(later.current["theme"].expires) == "2031-01-01"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[metric]", "is not TOML"),
        ("", "there is no [[metric]] table"),
        (DEFINITIONS.replace("prob_f = 0.5", "prob_f = 1.5"), "homepage: prob_f must be a number in [0, 1]"),
        (
            DEFINITIONS,
            f"theme with digest {THEME[:12]} is changed or removed, but has open periods (2024-06-14, 2024-06-15)",
        ),
        (DEFINITIONS + NEW_VERSION, "keep its table in the file, above the new version, until 2024-07-16"),
    ],
    ids=["broken", "empty", "no mechanism", "gone", "edited in place"],
)
def test_rejected_reload_keeps_definitions_and_logs_the_reason(
    text: str, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    active_definitions = reloaded(text, open_days("2024-06-15", "2024-06-14"))
    assert active_definitions.current is OLD
    assert not active_definitions.last_reload_ok
    assert message in caplog.text


def test_reload_with_a_failing_store_keeps_definitions() -> None:
    def broken() -> list[tuple[str, str]]:
        raise StoreError("the disk is gone")

    active_definitions = reloaded(DEFINITIONS + NEW_METRIC + NEW_VERSION, broken)
    assert (active_definitions.current is OLD, active_definitions.last_reload_ok) == (True, False)


def test_accepted_reload_resets_last_reload_ok() -> None:
    texts = iter(["", DEFINITIONS + NEW_METRIC + NEW_VERSION])
    active_definitions = ActiveDefinitions(OLD, lambda: parse_definitions(next(texts)), nothing_open)
    active_definitions.reload()
    active_definitions.reload()
    assert (active_definitions.last_reload_ok, len(list(active_definitions.current.versions()))) == (
        True,
        len(list(OLD.versions())) + 1,
    )


def test_requested_reload_logs_changes_at_every_level(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("hubbub_aggregator.pipeline.active_definitions"), "level", logging.ERROR)
    newest = parse_definitions(NEW_METRIC + NEW_VERSION)["theme"].digest[:12]
    expires = DEFINITIONS.replace("2030-01-01", "2031-01-01", 1)
    theme = THEME[:12]
    for text, message in (
        (DEFINITIONS + NEW_METRIC, "nothing changed"),
        (DEFINITIONS + NEW_METRIC + NEW_VERSION, f"added: theme {newest}; current: theme {newest}"),
        (DEFINITIONS, f"removed: theme {theme}"),
        (expires + NEW_METRIC, f"changed: {OLD['homepage'].name} {OLD['homepage'].digest[:12]}"),
    ):
        caplog.clear()
        active_definitions = ActiveDefinitions(OLD, lambda text=text: parse_definitions(text), nothing_open)  # type: ignore[misc]
        active_definitions.reload(always_log=True)
        assert [record.getMessage().partition("; ")[2] for record in caplog.records] == [message]


def test_start_warns_of_removed_versions_with_open_periods(
    store: SqlStore, make_batch: MakeBatch, caplog: pytest.LogCaptureFixture
) -> None:
    """SIGHUP rejects such a file. A start accepts it, because there are no earlier definitions and a failed start is an outage."""
    edited_in_place = parse_definitions(DEFINITIONS + NEW_VERSION)
    store.append([make_batch(OLD["theme"], period=f"2024-06-1{day}") for day in (5, 1, 2, 3)])
    store.append([make_batch(OLD["homepage"])])
    for definitions in (edited_in_place, parse_definitions(DEFINITIONS)):
        caplog.clear()
        warn_of_removed_metrics(definitions, store)
        assert [record.getMessage() for record in caplog.records] == [
            (
                f"theme with digest {THEME[:12]} is changed or removed, but has open periods (2024-06-11, 2024-06-12, "
                "2024-06-13 and 1 more): its reports are refused, and its periods are never closed or purged. Put its "
                "table back into the file, above the new version, until they are closed"
            )
        ]
    caplog.clear()
    warn_of_removed_metrics(parse_definitions(DEFINITIONS + NEW_METRIC + NEW_VERSION), store)
    for day in (5, 1, 2, 3):
        store.close_period(OLD["theme"], f"2024-06-1{day}")
    warn_of_removed_metrics(edited_in_place, store)
    assert caplog.records == []


@pytest.fixture
def caller(sqlite_store: SqlStore) -> Iterator[Caller]:
    """Requests to an application that starts with the previous definitions."""
    with started(
        create_app(OLD, sqlite_store, Settings(fold_interval=0.02), FakeClock(), local_address=ADDRESS)
    ) as caller:
        yield caller


def test_request_keeps_its_definitions_during_a_reload(caller: Caller, make_batch: MakeBatch) -> None:
    active_definitions, json = caller.state["service"].active_definitions, [(b"content-type", b"application/json")]
    first, second = (make_batch(OLD["theme"]).to_json() for _ in range(2))

    def forget() -> None:
        active_definitions.current = parse_definitions(DEFINITIONS)

    assert caller.post(json, [first[:9], first[9:]], meanwhile=forget).status == 202
    assert caller.post(json, [second]).json["type"] == "/problems/unknown-metric"
    assert "theme" not in [metric["name"] for metric in caller.call("GET", "/v1/metrics").json["metrics"]]


def test_upkeep_uses_reloaded_definitions(caller: Caller, sqlite_store: SqlStore, make_batch: MakeBatch) -> None:
    both = parse_definitions(DEFINITIONS + NEW_METRIC + NEW_VERSION)
    new = both["theme"]
    sqlite_store.append([make_batch(new)])
    caller.state["service"].active_definitions.current = both
    deadline = time.monotonic() + 60
    while sqlite_store.unfolded(new.digest) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not sqlite_store.unfolded(new.digest)


def test_metrics_show_whether_the_last_reload_was_accepted(caller: Caller) -> None:
    active_definitions = caller.state["service"].active_definitions
    for ok in (True, False):
        active_definitions.last_reload_ok = ok
        assert f"hubbub_definitions_reload_ok {float(ok)}" in caller.call("GET", "/metrics").body.decode().splitlines()
