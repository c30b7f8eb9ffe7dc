"""Every HTML page that a command, the client or the aggregator makes, with long and unusual texts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import numpy as np

from hubbub import Definitions, Metric, parse_definitions
from hubbub.cli.catalogue import catalogue_pages
from hubbub.testing import ManualClock, RecordingTransport
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.sql_store import SqlStore
from hubbub_decoder import Wishes, decode, describe, plan, simulate
from hubbub_decoder.demo.comparison import Comparison
from hubbub_decoder.demo.page import write_pages
from hubbub_decoder.planning.page import render_page
from tests.aggregator.conftest import DEFINITIONS, NOON, running
from tests.client.cli.test_catalogue import EVERY_KIND
from tests.client.conftest import HOMEPAGE, SURVEY, Rig
from tests.client.conftest import TODAY as CLIENT_DAY
from tests.client.transparency.test_state_page import OS, used_client
from tests.support.many_metrics import definitions_text, fill
from tests.support.report_pages import NAMES, PAGE, decode_load, decode_pages, write_report_pages

STATIC = (
    "catalogue/index", "catalogue/metric/dark_mode", "catalogue/metric/os", "state", "plan", "plans", "string", "noise", "noise-trend", "ordinal", "categories", "trend", "metric", "index", "published",
    "demo/index", "demo/page",
)  # fmt: skip
SERVED = (
    "/", "/?q=search&problems=1", "/?q=nothing+matches+this", "/metric/search.first_page", "/metric/from_jfk", "/metric/gone",
    "/metric/carrier", "/metric/unknown", "/unknown", "/sign-in",
)  # fmt: skip


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
