"""A database with many metrics and periods, filled directly with folded summaries."""

from __future__ import annotations

from datetime import date, timedelta
from functools import cache

import numpy as np
from sqlalchemy import insert

from hubbub import Definitions, Metric, Params, parse_definitions
from hubbub.summary import BitCounts, summary_to_bytes
from hubbub_aggregator.database.engine import transaction
from hubbub_aggregator.database.schema import collection
from hubbub_aggregator.store.period_figures import figures_of
from hubbub_aggregator.store.sql_figures import figure_columns
from hubbub_aggregator.store.sql_store import SqlStore

_DEFINITION = """
[[metric]]
name = "{name}"
kind = "string"
description = "{description}"
owner = "{team}@example.org"
num_bits = 128
num_hashes = 2
num_cohorts = 64
prob_p = 0.25
prob_q = 0.75
prob_f = 0.5
expires = {expires}
"""
_AREAS = ("editor", "search", "sync", "billing", "startup", "export", "plugins", "network", "layout", "print")
_THINGS = (
    ("first_page", "The page that a user opens first."),
    ("language", "The language of the user interface."),
    ("last_error", "The kind of the last error that was shown."),
    ("shortcut", "The keyboard shortcut that was used most."),
    ("file_type", "The type of the file that was opened."),
    ("theme", "The color theme, one of those that ship with the app or another."),
    ("provider", "The host name of the configured provider."),
    ("plugin", "The name of an enabled plug-in."),
    ("query_kind", "The kind of the last query."),
    ("device", "The model of the device."),
)
_REPORTS = 20_000


def many_definitions(num_metrics: int) -> Definitions:
    """Return definitions of `num_metrics` metrics of 128 bits and 64 cohorts."""
    return parse_definitions(definitions_text(num_metrics))


def definitions_text(num_metrics: int) -> str:
    """Return the definitions file of `num_metrics` metrics."""
    texts = []
    for number in range(num_metrics):
        area, (thing, description) = _AREAS[number % len(_AREAS)], _THINGS[number // len(_AREAS) % len(_THINGS)]
        name = f"{area}.{thing}" + (f"_{number // 100 + 1}" if number >= len(_AREAS) * len(_THINGS) else "")
        texts.append(_DEFINITION.format(name=name, description=description, team=area, expires="2030-01-01"))
    return "".join(texts)


def fill(store: SqlStore, definitions: Definitions, last: date, num_periods: int, *, computed: bool = True) -> None:
    """Store the last days of all metrics, with 20,000 reports each; all but the last 30 are closed.

    computed : also store the figures of the summaries
    """
    for metric in definitions.versions():
        counted = _count(metric.params)
        rows = list[dict[str, object]]()
        for ago in range(num_periods):
            period = str(last - timedelta(days=ago))
            if not rows:  # the others are copies with another period
                counts = BitCounts(metric, counted.reports, counted.ones, [period], counted.ones_histogram)
                summary, figures = summary_to_bytes(counts), figures_of(metric.blocks, counts.count_profile())
            row = {"metric": metric.name, "digest": metric.digest, "period": period, "revision": 1, "closed": ago > 30}
            rows.append(row | {"summary": summary} | (figure_columns(figures, 1) if computed else {}))
        with transaction(store._engine, writes=True) as connection:
            connection.execute(insert(collection), rows)


@cache
def _count(params: Params) -> BitCounts:
    """Count reports of clients with nothing recorded."""
    rng, metric = np.random.default_rng(0), Metric.string("any", params)
    bits = rng.random((_REPORTS, params.num_bits)) < params.mechanism.p_star
    rows = np.packbits(bits, axis=1, bitorder="little").tobytes()
    cohorts = rng.integers(params.num_cohorts, size=_REPORTS, dtype=np.uint8).tobytes()
    return BitCounts.from_rows(metric, cohorts, rows, ["2024-01-01"])
