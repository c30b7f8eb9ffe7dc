"""Pages of a report for the tests that read them, with or without a browser."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hubbub import Metric, Params, UnaryResponse
from hubbub.summary import BitCounts
from hubbub_decoder import Decoding, Trends, decode, decode_each, simulate
from hubbub_decoder.data.events import Event
from hubbub_decoder.report.highlights import Highlights
from hubbub_decoder.report.metric_page import PeriodRow, render_metric
from hubbub_decoder.report.published_page import MetricCard, render_front
from hubbub_decoder.report.rendering import SHARED_SCRIPT, inline_scripts, shared_script, shared_scripts
from hubbub_decoder.report.write import write_report, write_trend_report

PARAMS = Params(num_bits=32, num_hashes=2, num_cohorts=16, prob_p=0.25, prob_q=0.75, prob_f=0.25)
PAGE = Metric.string("page", PARAMS, description="The page that a user opens <first>.", owner="web@example.org")
LOAD = Metric.ordinal("load", [0, 10, 20, 50, 100], UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5))
SYSTEM = Metric.categorical(
    "system", ("linux", "macos", "other"), UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5), other="other"
)
HOSTILE = (
    "</script><script>window.attacked = 1</script>",
    '"\'><img src=x onerror="window.attacked = 1">',
    "<!--<script>",
    "{{ 7 * 7 }}${window.attacked = 1}",
    "exe.\u202egnp",
    "\u2066\u2067isolated",
    "line\u2028separator\x00\x1b[31m",
    "שלום עולם",
    "x" * 10_000,
)
FAMILY = "👩\u200d👩\u200d👧\u200d👦"
UNUSUAL = (f"{FAMILY} family", "   three spaces before", FAMILY * 20, "\U0001f1fa\U0001f1f8" * 50)
NAMES = ("search", "mail", "news", *HOSTILE, *UNUSUAL, *(f"site-{i}" for i in range(984)))
"""1,000 candidates."""

DAYS = ("2026-03-02", "2026-03-09", "2026-03-16")


EVENTS = (Event(DAYS[1], "2.1"), Event("2026-03-10", HOSTILE[1]), Event("2026-03-16", HOSTILE[7]))
"""A release, and two events at the last day with hostile labels."""


def count_pages(day: str, seed: int) -> BitCounts:
    people = {"search": 30_000, "mail": 20_000, **dict.fromkeys((*HOSTILE, *UNUSUAL), 4_000)}
    return simulate(PAGE, people, np.random.default_rng(seed), no_value=9_000, periods=[day])


def decode_pages(names: Sequence[str] = NAMES) -> list[Decoding]:
    """Decodings of three days, with hostile candidates."""
    return [decode(count_pages(day, seed), list(names)) for seed, day in enumerate(DAYS)]


def decode_load() -> Trends:
    """Numbers that grow from day to day."""
    people = ({"5": 5_000, "70": 3_000}, {"5": 4_000, "15": 1_000, "70": 3_000}, {"5": 3_000, "15": 1_200, "70": 3_800})
    counts = [
        simulate(LOAD, counts_of_day, np.random.default_rng(seed), periods=[day])
        for seed, (day, counts_of_day) in enumerate(zip(DAYS, people, strict=True))
    ]
    return decode_each(counts, same_clients=False)


def write_report_pages(out: Path, decodings: Sequence[Decoding], trends: Trends) -> dict[str, Path]:
    """Write pages by kind: `string`, `noise`, `noise-trend`, `ordinal`, `categories` and `trend` of one file each, and `metric`, `index` and `published` of a directory."""
    kinds = ("string", "noise", "noise-trend", "ordinal", "categories", "trend", "metric", "published")
    files = {kind: out / f"{kind}.html" for kind in kinds}
    write_trend_report(trends, files["trend"], events=EVENTS)
    sources = [("Summary", "page-<b>.parquet")]
    write_report(decodings[0], files["string"], count_pages(DAYS[0], 0), provenance=sources)
    rng = np.random.default_rng(0)
    few_rng = np.random.default_rng(1)
    few = [
        decode(
            simulate(PAGE, {f"site-{i}": 1 for i in range(50)}, few_rng, periods=[day]),
            ["search", "mail", *HOSTILE, *(f"site-{i}" for i in range(190))],
        )
        for day in DAYS
    ]
    write_report(few[0], files["noise"])
    noise = [PeriodRow.from_decoding(decoding) for decoding in few]
    files["noise-trend"].write_text(
        render_metric(PAGE, noise, [decoding.to_dict() for decoding in few], inline_scripts())
    )
    for kind, metric, people in (
        ("ordinal", LOAD, {"5": 5_000, "70": 3_000}),
        ("categories", SYSTEM, {"linux": 20, "macos": 5}),
    ):
        counts = simulate(metric, people, rng)
        write_report(decode(counts), files[kind], counts)
    (out / SHARED_SCRIPT).write_text(shared_script())
    rows = [PeriodRow.from_decoding(decoding) for decoding in decodings]
    documents = [decoding.to_dict() for decoding in decodings]
    files["metric"].write_text(
        render_metric(PAGE, rows, documents, shared_scripts(""), path=[("All", "index.html")], events=EVENTS)
    )
    none = decode(count_pages(DAYS[0], 0), ["absent"])
    cards = [
        MetricCard(decoding.metric, "metric.html", "v1/page", DAYS[0], 3, "0.125", "0.375", Highlights.of(decoding))
        for decoding in (decodings[0], none, trends.decodings[0])
    ]
    files["published"].write_text(render_front(cards, shared_scripts("")))
    assert inline_scripts().elements in files["string"].read_text()
    return files


def chart_data(page: Path) -> dict[str, Any]:
    """Return the data of the charts of a page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def visible_page_text(page: Path) -> str:
    """Text of a page, without its scripts and its style."""
    body = re.sub(r"<(script|style).*?</\1>", "", page.read_text(), flags=re.DOTALL)
    return " ".join(re.sub("<[^>]*>", " ", body).split())
