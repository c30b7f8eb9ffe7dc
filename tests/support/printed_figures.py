"""Epsilons that the surfaces print: `hubbub metrics show` as text and JSON, the aggregator's page, GET /v1/metrics, the decoder's headline.

Figures are parsed from the output, by label: `per report`, `per epoch`, `per value`, `per enrollment`, `lifetime`, and units of sums.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from rich.console import Console

from hubbub import Definitions, KindWord, Metric
from hubbub.cli import main
from hubbub.summary import BitCounts
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.sql_store import SqlStore
from hubbub_decoder import Decoding, decode
from tests.aggregator.conftest import Aggregator, running

Figures = dict[str, float]
SURFACES = ("metrics show", "metrics show --json", "page", "GET /v1/metrics", "decoder")


def printed_figures(file: Path, definitions: Definitions, folder: Path) -> Mapping[str, Mapping[str, Figures]]:
    """Printed figures by surface, metric and label.

    file : definitions file of `definitions`      folder : directory for the aggregator's database
    """
    metrics = {name: definitions[name] for name in definitions}
    with (
        closing(SqlStore.open(str(folder / "reports.db"))) as store,
        running(definitions, store, Settings(local_reads_without_token=True)) as aggregator,
    ):
        return {
            "metrics show": show_text(file),
            "metrics show --json": show_json(file),
            "page": page(aggregator, metrics),
            "GET /v1/metrics": over_http(aggregator),
            "decoder": decoder_headlines(metrics),
        }


def number(text: str) -> float:
    return math.inf if text == "no bound" else float(text)


def show_text(definitions: Path) -> dict[str, Figures]:
    shown = CliRunner().invoke(main, ["metrics", "show", str(definitions)]).output
    blocks = re.split(r"^(?=\S)", shown, flags=re.MULTILINE)[1:]
    line = re.compile(r"^    (per \w+|lifetime)(?: epsilon)? +(no bound|[\d.]+)  (.*)$", flags=re.MULTILINE)
    return {block.split("  ")[0]: figures_with_units(line.findall(block)) for block in blocks}


def figures_with_units(rows: list[tuple[str, str, str]]) -> Figures:
    """Figures from rows of label, epsilon and note; the note of a sum contains its number of units."""
    rows = [(label.lower(), text, note) for label, text, note in rows]
    figures = {label: number(text) for label, text, _ in rows}
    for label, _, note in rows:
        for count in re.findall(r"up to ([\d,]+) (?:epoch|distinct value|value|report)s?\b", note):
            figures[f"units {label}"] = float(count.replace(",", ""))
    return figures


def from_json(metric: dict[str, Any]) -> Figures:
    privacy = metric["privacy"]
    names = {"per report": "epsilon_report", "per enrollment": "epsilon_enrollment", "lifetime": "epsilon_lifetime"}
    if privacy["unit"] != "period":
        names[f"per {privacy['unit']}"] = "epsilon_unit"
    if privacy["objection"] is None:
        names |= {"units per enrollment": "units_enrollment", "units lifetime": "units_lifetime"}
    assert {name for name, value in privacy.items() if value is None} <= {"hold", "objection"}
    return {label: float(privacy[name]) for label, name in names.items()}


def show_json(definitions: Path) -> dict[str, Figures]:
    shown = CliRunner().invoke(main, ["metrics", "show", str(definitions), "--json"]).output
    return {metric["name"]: from_json(metric) for metric in json.loads(shown)}


def page(aggregator: Aggregator, names: Iterable[str]) -> dict[str, Figures]:
    entry = re.compile(
        r"<dt>(?:Epsilon )?(per \w+|Lifetime)(?: epsilon)?</dt><dd>(no bound|[\d.]+)<small>(.*?)</small>"
    )
    pages = {name: aggregator.get(f"/metric/{name}").body.decode() for name in names}
    return {name: figures_with_units(entry.findall(html)) for name, html in pages.items()}


def over_http(aggregator: Aggregator) -> dict[str, Figures]:
    return {metric["name"]: from_json(metric) for metric in aggregator.get("/v1/metrics").json["metrics"]}


def decoder_headlines(metrics: Mapping[str, Metric]) -> dict[str, Figures]:
    """Headlines of decodings: one decoding of each kind, shown with each metric of this kind."""
    decodings: dict[KindWord, Decoding] = {}
    for metric in metrics.values():
        if metric.kind.word not in decodings:
            k, m = metric.num_bits, metric.num_cohorts
            candidates = [f"v{i}" for i in range(3)] if metric.kind.needs_candidates else None
            decodings[metric.kind.word] = decode(BitCounts(metric, [100] * m, [[50] * k] * m), candidates)
    return {
        name: headline_figures(replace(decodings[metric.kind.word], metric=metric)) for name, metric in metrics.items()
    }


def headline_figures(decoding: Decoding) -> Figures:
    console = Console(file=io.StringIO(), width=400)
    console.print(decoding)
    headline = console.file.getvalue().splitlines()[0]  # type: ignore[attr-defined]
    headline = headline.replace("lifetime epsilon no bound", "no bound lifetime")
    headline = re.sub(r"lifetime epsilon ([\d.]+)", r"\1 lifetime", headline)
    entry = re.compile(r"(no bound|[\d.]+) (per \w+|lifetime)(?: \(([^)]*)\))?")
    return figures_with_units([(label, text, f"up to {detail}") for text, label, detail in entry.findall(headline)])
