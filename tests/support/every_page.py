"""Every HTML page that a command, the client or the aggregator makes, with long and unusual texts."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import urllib3

from hubbub import Definitions, Group, Metric, parse_definitions
from hubbub.cli.catalogue import catalogue_pages
from hubbub.metrics.metric import folder_of
from hubbub.summary import write_summary
from hubbub.testing import ManualClock, RecordingTransport
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.sql_store import SqlStore
from hubbub_decoder import Wishes, decode, describe, plan, simulate
from hubbub_decoder.data.csv_cells import csv_bytes
from hubbub_decoder.demo.comparison import Comparison
from hubbub_decoder.demo.page import write_pages
from hubbub_decoder.planning.page import render_page
from tests.aggregator.conftest import DEFINITIONS, NOON, running
from tests.client.cli.test_catalogue import EVERY_KIND
from tests.client.conftest import HOMEPAGE, SURVEY, Rig
from tests.client.conftest import TODAY as CLIENT_DAY
from tests.client.transparency.test_state_page import OS, used_client
from tests.support.many_metrics import definitions_text, fill
from tests.support.report_pages import (
    DAYS,
    LOAD,
    NAMES,
    PAGE,
    SYSTEM,
    count_pages,
    decode_load,
    decode_pages,
    write_report_pages,
)

STATIC = (
    "catalogue/index",
    "catalogue/metric/dark_mode",
    "catalogue/metric/os",
    "state",
    "plan",
    "plans",
    "string",
    "noise",
    "noise-trend",
    "ordinal",
    "categories",
    "trend",
    "metric",
    "published",
    "demo/index",
    "demo/page",
)
EXPLORED = (
    "",
    "?q=page&state=good",
    "?q=nothing",
    "PAGE/",
    "PAGE/?from=2026-03-02&to=2026-03-16",
    "PAGE/?show=periods&from=2026-03-02&to=2026-03-16",
    "PAGE/?show=change",
    "LOAD/?show=periods&from=2026-03-02&to=2026-03-16",
    "LOAD/",
    "RARE/",
    "RARE/?show=change",
    "SYSTEM/",
    "OLD/?show=groups",
    "PAGE/?from=2026-03-03",
    "nothing/",
)
"""Addresses of `hubbub explore`, with a metric in place of PAGE, LOAD, RARE, SYSTEM and OLD."""
SERVED = (
    "/",
    "/?q=search&problems=1",
    "/?q=nothing+matches+this",
    "/metric/search.first_page",
    "/metric/from_jfk",
    "/metric/gone",
    "/metric/carrier",
    "/metric/unknown",
    "/unknown",
    "/sign-in",
)


def write_static_pages(out: Path) -> dict[str, Path]:
    """Write the pages of commands and of the client, and return their files by the names of STATIC."""
    files = {name: out / f"{name}.html" for name in ("state", "plan", "plans")}
    for path, text in catalogue_pages(EVERY_KIND, date(2026, 11, 23)).items():
        file = out / "catalogue" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    names = ("catalogue/index", "catalogue/metric/dark_mode", "catalogue/metric/os")
    rig = Rig(out / "state", ManualClock(CLIENT_DAY), RecordingTransport(), [])
    client = used_client(rig, HOMEPAGE, OS, SURVEY)
    files["state"].write_text(client.inspect_html())
    client.close()
    planned = plan(Wishes(epsilon=2, longitudinal=6, num_reports=100_000, num_candidates=100))
    files["plan"].write_text(
        render_page([planned.description], "[[metric]]\nname = 'homepage'\n" + "# " + "x" * 200, planned.findings)
    )
    other = describe(replace(PAGE, name="a_rather_long_name_of_a_metric.that_has_a_group"), num_reports=100_000)
    files["plans"].write_text(render_page([planned.description, other]))
    files |= write_report_pages(out, decode_pages(NAMES[:60]), decode_load())
    (out / "demo").mkdir()
    population = {"search": 60_000, "mail": 40_000}
    counts = simulate(PAGE, population, np.random.default_rng(0))
    compared = Comparison(
        decode(counts, [*population, "absent"]), {value: n / 100_000 for value, n in population.items()}
    )
    write_pages(out / "demo", [compared], {"search": "The page that lists results, with a rather long name"})
    return files | {name: out / f"{name}.html" for name in (*names, "demo/index", "demo/page")}


@contextmanager
def served_pages(directory: Path, num_metrics: int = 60) -> Iterator[str]:
    """Start an aggregator with the metrics of its tests and many others, and yield its address."""
    definitions = parse_definitions(DEFINITIONS + definitions_text(num_metrics))
    with ExitStack() as stack:
        store = SqlStore.open(directory / "reports.db")
        stack.callback(store.close)
        groups: dict[int, list[Metric]] = {}
        for number, metric in enumerate(m for m in definitions.versions() if "." in m.name):
            groups.setdefault(number % 7, []).append(metric)
        for days, metrics in groups.items():
            fill(store, Definitions(metrics), NOON.date() - timedelta(days=days), 5 + 12 * days)
        aggregator = stack.enter_context(running(definitions, store, Settings(local_reads_without_token=True)))
        yield aggregator.url


@contextmanager
def explored_pages(directory: Path) -> Iterator[dict[str, str]]:
    """Run `hubbub explore` over summaries with hostile strings, numbers, categories and noise, and yield the addresses of EXPLORED."""
    rare = replace(PAGE, name="rare")
    arms = replace(PAGE, name="arms", group=Group("arm", ("old", "new", "other")))
    people = {
        "PAGE": (PAGE, None),
        "LOAD": (LOAD, {"5": 5_000, "70": 3_000}),
        "RARE": (rare, {"site-1": 40}),
        "SYSTEM": (SYSTEM, {"linux": 2_000, "macos": 500}),
        "OLD": (arms.in_group("old"), {"site-1": 3_000, "site-2": 1_000}),
        "NEW": (arms.in_group("new"), {"site-1": 1_000, "site-2": 3_000}),
    }
    (directory / "summaries").mkdir()
    (directory / "candidates").mkdir()
    for seed, day in enumerate(DAYS):
        for name, (metric, population) in people.items():
            counts = (
                count_pages(day, seed)
                if population is None
                else simulate(metric, population, np.random.default_rng(seed), periods=[day])
            )
            write_summary(counts, directory / "summaries" / f"{name}-{day}.parquet")
    for name in ("page", "rare", "arms"):
        (directory / "candidates" / f"{name}.csv").write_bytes(
            csv_bytes(["candidate"], ([name] for name in NAMES[:200] if "\0" not in name))
        )
    (directory / "summaries" / "damaged.parquet").write_bytes(b"damaged")
    command = [
        sys.executable,
        "-m",
        "hubbub",
        "explore",
        str(directory / "summaries"),
        "--candidates",
        str(directory / "candidates"),
        "--port",
        "0",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[0]
            while "still being decoded" in urllib3.request("GET", url).data.decode():
                time.sleep(0.2)
            addresses = {}
            for path in EXPLORED:
                name, slash, query = path.partition("/")
                folder = folder_of(people[name][0].in_group(None)) if name in people else name
                addresses[f"explore {path}"] = url + folder + slash + query
            yield addresses
        finally:
            process.terminate()
