"""Grafana dashboard of the results that `hubbub decode-all` records in PostgreSQL, printed as JSON.

    python deploy/grafana/make_results_dashboard.py > deploy/grafana/results.json

It shows closed periods alone, because an open one changes, and its readers learn the reports between two of its states.
"""

# ruff: noqa: S608  (the parts of the queries are constants)
from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.builders import dashboard, table, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models.dashboard import DataSourceRef, VariableRefresh

TYPE = "grafana-postgresql-datasource"
SOURCE = DataSourceRef(type_val=TYPE, uid="${datasource}")
WIDTH, HEIGHT = 12, 9
PERIODS = (
    "(SELECT metric, digest, group_value, period, num_reports, closed FROM shares "
    "UNION SELECT metric, digest, group_value, period, num_reports, closed FROM means) AS periods"
)
CHOSEN = (
    "metric = '$metric' AND digest = '$version' AND coalesce(group_value, '(all)') = '$group' AND closed = 1 "
    "AND period LIKE '____-__-__'"  # not the sum of several periods, FIRST..LAST
)
TIME = "CAST(period AS timestamp) AS time"
SHOWN = "share IS NOT NULL AND coalesce(detected, 1) = 1"
VARIABLES: Sequence[tuple[str, str]] = (  # name, query
    ("metric", f"SELECT DISTINCT metric FROM {PERIODS} ORDER BY metric"),
    (
        "version",
        f"SELECT digest FROM {PERIODS} WHERE metric = '$metric' GROUP BY digest ORDER BY max(period) DESC",
    ),
    (
        "group",
        f"SELECT DISTINCT coalesce(group_value, '(all)') FROM {PERIODS} WHERE metric = '$metric' ORDER BY 1",
    ),
)
GRAPHS: Sequence[tuple[str, str, str]] = (  # title, unit, query
    (
        "Shares",
        "percentunit",
        f"SELECT {TIME}, value AS metric, share AS value FROM shares WHERE {CHOSEN} AND {SHOWN} ORDER BY 1",
    ),
    (
        "Mean, with its confidence interval",
        "none",
        f"SELECT {TIME}, value AS mean, low, high FROM means WHERE {CHOSEN} ORDER BY 1",
    ),
    ("Reports", "short", f"SELECT {TIME}, num_reports FROM {PERIODS} WHERE {CHOSEN} ORDER BY 1"),
)
TABLE = (
    "Shares with their confidence intervals",
    f"SELECT {TIME}, value, share, low, high FROM shares WHERE {CHOSEN} AND {SHOWN} ORDER BY period DESC, share DESC",
)


@dataclass
class SqlQuery(Builder[Dataquery], Dataquery):
    """Query of a panel, with the fields of Grafana's data source for PostgreSQL, which the SDK does not have."""

    sql: str
    format: str

    def build(self) -> Dataquery:
        """Return itself."""
        return self

    def to_json(self) -> dict[str, Any]:
        """Return the fields of the query."""
        return {
            "refId": "A",
            "datasource": SOURCE,
            "editorMode": "code",
            "format": self.format,
            "rawQuery": True,
            "rawSql": self.sql,
        }


def build() -> dashboard.Dashboard:
    """Return the dashboard: a choice of the metric, its version and group, three graphs, and a table."""
    source = dashboard.DatasourceVariable("datasource").label("database").type(TYPE)
    board = (
        dashboard.Dashboard("hubbub results")
        .uid("hubbub-results")
        .tags(["hubbub"])
        .time("now-90d", "now")
        .timezone("utc")
        .with_variable(source)
    )
    for name, query in VARIABLES:
        board = board.with_variable(
            dashboard.QueryVariable(name).datasource(SOURCE).query(query).refresh(VariableRefresh.ON_DASHBOARD_LOAD)
        )
    for title, unit, query in GRAPHS:
        graph = timeseries.Panel().title(title).unit(unit).datasource(SOURCE).height(HEIGHT).span(WIDTH)
        board = board.with_panel(graph.with_target(SqlQuery(query, "time_series")))
    title, query = TABLE
    rows = table.Panel().title(title).datasource(SOURCE).height(HEIGHT).span(WIDTH)
    return board.with_panel(rows.with_target(SqlQuery(query, "table")))


if __name__ == "__main__":
    sys.stdout.write(JSONEncoder(sort_keys=True, indent=1).encode(build().build()) + "\n")
