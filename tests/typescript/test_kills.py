"""Recordings that the TypeScript client acknowledged are counted after kills, and with several processes on one directory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from threading import Timer
from typing import Any

import pytest

from hubbub.conformance.adapter import Adapter, AdapterError
from hubbub.conformance.scenarios import DARK, PAGE
from hubbub.conformance.scripted_aggregator import ScriptedAggregator
from tests.support.browsers import require_browser
from tests.typescript.browser_adapter import end_processes
from tests.typescript.conftest import Built

PROGRAM = Path(__file__).with_name("recording.mjs")
NOBODY = "http://127.0.0.1:9"
DEFINITIONS = [PAGE.to_dict(), DARK.to_dict()]


def start(node: str, bundle: Path, directory: Path, number: int) -> subprocess.Popen[bytes]:
    arguments = [str(bundle), str(directory), json.dumps(DEFINITIONS), NOBODY, str(number)]
    return subprocess.Popen([node, str(PROGRAM), *arguments], stdout=subprocess.PIPE)


def state_of(adapter: Adapter, directory: Path, url: str, now: datetime) -> dict[str, Any]:
    adapter.ask(
        {"call": "start", "definitions": DEFINITIONS, "directory": str(directory), "url": url, "now": now.isoformat()}
    )
    return dict(adapter.ask({"call": "inspect"}))


def check(adapter: Adapter, directory: Path, acknowledged: int, at_most: int) -> None:
    """The recordings are counted, and two days later each metric and period has one report."""
    now = datetime.now(UTC)
    with ScriptedAggregator(now) as aggregator:
        counts = state_of(adapter, directory, aggregator.url, now)["counts"]
        recorded = counts["chosen"] + counts["superseded"]
        assert acknowledged <= recorded <= at_most
        assert counts["ignored"] == {}
        for _ in range(12):
            aggregator.now += timedelta(hours=6)
            adapter.ask({"call": "advance", "now": aggregator.now.isoformat()})
            assert adapter.ask({"call": "flush"})["delivered"]
        counts = adapter.ask({"call": "inspect"})["counts"]
        reports = {
            (body["metric"], body["period"]): body["batch_id"]
            for body in (json.loads(request.body) for request in aggregator.requests)
        }
        ids = {request.batch_id for request in aggregator.requests}
        assert len(reports) == len(ids) == counts["acknowledged"]
        assert {name for name, _ in reports} == {"page", "dark"}


RECORDING = {"call": "record", "metric": "dark", "value": True}
KILLS = int(os.environ.get("HUBBUB_TEST_KILLS", "20"))


@pytest.mark.slow
def test_kills_of_node_lose_nothing(
    node_adapter: Sequence[str], built: Built, unseen_seed: int, tmp_path: Path
) -> None:
    random, acknowledged = Random(unseen_seed), 0  # noqa: S311  (moments of kills)
    for _ in range(KILLS):
        process = start(node_adapter[0], built("node.js"), tmp_path, 10_000)
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        time.sleep(random.uniform(0, 0.05))
        process.kill()
        lines += process.stdout.readlines()
        process.wait()
        process.stdout.close()
        complete = [line for line in lines if line.endswith(b"\n")]
        assert set(complete) <= {b"recorded\n"}
        acknowledged += len(complete)
    assert acknowledged > KILLS
    with Adapter(node_adapter, 60) as adapter:
        check(adapter, tmp_path, acknowledged, acknowledged + KILLS)
    assert [path.name for path in tmp_path.iterdir()] == ["journal.jsonl"]  # others would have the secret


@pytest.mark.slow
def test_kills_of_a_browser_lose_nothing(built: Built, unseen_seed: int, tmp_path: Path) -> None:
    require_browser("chromium")
    random, acknowledged, kills = Random(unseen_seed), 0, KILLS // 4  # noqa: S311  (moments of kills)
    command = [
        sys.executable,
        "-m",
        "tests.typescript.browser_adapter",
        str(built("conformance-browser.js")),
        "chromium",
        str(profiles := tmp_path / "profiles"),
    ]
    profiles.mkdir()
    now = datetime.now(UTC)
    with Adapter(command, 60) as adapter:
        for _ in range(kills):
            state_of(adapter, tmp_path, NOBODY, now)
            adapter.ask({"call": "consent", "level": "on"})
            killing = Timer(random.uniform(0.05, 0.5), end_processes, [profiles / "profile-"])
            killing.start()
            with suppress(AdapterError):  # as soon as the browser is gone
                while True:
                    assert adapter.ask(RECORDING) == {"outcome": "recorded"}
                    acknowledged += 1
            killing.join()
            adapter.kill()
        assert acknowledged > kills
        check(adapter, tmp_path, acknowledged, acknowledged + kills)


def processes_with(variable: bytes) -> list[Path]:
    """Running processes that have inherited a variable of the environment."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended
            found += [environment] if variable in environment.read_bytes() else []
    return found


@pytest.mark.slow
@pytest.mark.parametrize("browser", ["chromium", "firefox"])
def test_a_killed_adapter_leaves_no_process(browser: str, built: Built, tmp_path: Path) -> None:
    require_browser(browser)
    bundle, marker = str(built("conformance-browser.js")), f"HUBBUB_TEST_MARKER={tmp_path}"
    command = [sys.executable, "-m", "tests.typescript.browser_adapter", bundle, browser, str(tmp_path)]
    variables = os.environ | dict([marker.split("=")])
    with subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as adapter:
        assert adapter.stdin is not None
        assert adapter.stdout is not None
        adapter.stdin.write(b'{"call": "inspect"}\n')
        adapter.stdin.flush()
        assert adapter.stdout.readline()
        assert len(processes_with(marker.encode())) > 2  # also the browser, and what ends it
        adapter.kill()
    while processes_with(marker.encode()):
        time.sleep(0.05)


def test_processes_share_a_directory(node_adapter: Sequence[str], built: Built, tmp_path: Path) -> None:
    processes = [start(node_adapter[0], built("node.js"), tmp_path, 300) for _ in range(3)]
    printed = [process.communicate(timeout=120)[0] for process in processes]
    assert b"".join(printed).split() == [b"recorded"] * 900
    with Adapter(node_adapter, 60) as adapter:
        check(adapter, tmp_path, 900, 900)
