"""Grafana dashboard of the aggregator, printed as JSON.

    python deploy/grafana/make_dashboard.py > deploy/grafana/dashboard.json

Prometheus renames the label `job` of hubbub_job_failing to `exported_job`, because `job` is the name of the scrape job.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from grafana_foundation_sdk.builders import dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import DashboardCursorSync, DataSourceRef

SOURCE = DataSourceRef(type_val="prometheus", uid="prometheus")
WIDTH, HEIGHT = 12, 8

Query = tuple[str, str]
"""A query of Prometheus and the legend of its series."""

STATS: Sequence[tuple[str, str, str]] = (  # title, unit, query
    ("Replicas up", "none", 'sum(up{job="hubbub"})'),
    ("Batches stored in 24 hours", "short", 'sum(increase(hubbub_batches_total{result="stored"}[1d]))'),
    ("Time since the last backup", "s", "time() - max(hubbub_last_backup_timestamp_seconds)"),
    ("Background jobs failing", "none", "sum(hubbub_job_failing)"),
)
PANELS: Sequence[tuple[str, str, Sequence[Query]]] = (  # title, unit, queries
    (
        "Batches stored, by metric",
        "reqps",
        [('sum by (metric) (rate(hubbub_batches_total{result="stored"}[$__rate_interval]))', "{{metric}}")],
    ),
    (
        "Batches not stored, by result",
        "reqps",
        [('sum by (result) (rate(hubbub_batches_total{result!="stored"}[$__rate_interval]))', "{{result}}")],
    ),
    (
        "Commit latency",
        "s",
        [
            (f"histogram_quantile({q}, sum by (le) (rate(hubbub_commit_seconds_bucket[$__rate_interval])))", legend)
            for q, legend in (("0.5", "median"), ("0.99", "99 %"))
        ],
    ),
    ("Queue, share of its limit", "percentunit", [("hubbub_queue_bytes / hubbub_queue_limit_bytes", "{{instance}}")]),
    (
        "Folding",
        "s",
        [
            ("time() - hubbub_last_fold_timestamp_seconds", "since the last round, {{instance}}"),
            ("hubbub_oldest_segment_age_seconds", "oldest segment, {{instance}}"),
        ],
    ),
    ("Segments that wait for folding", "short", [("max(hubbub_segments_waiting)", "segments")]),
    (
        "Failures of background jobs",
        "cps",
        [("sum by (exported_job) (rate(hubbub_job_failures_total[$__rate_interval]))", "{{exported_job}}")],
    ),
    (
        "Other refused requests, by reason",
        "reqps",
        [("sum by (reason) (rate(hubbub_refused_requests_total[$__rate_interval]))", "{{reason}}")],
    ),
    ("Memory", "bytes", [("process_resident_memory_bytes", "{{instance}}")]),
    ("CPU cores used", "none", [("rate(process_cpu_seconds_total[$__rate_interval])", "{{instance}}")]),
    ("Free disk space (SQLite)", "bytes", [("hubbub_disk_free_bytes", "{{instance}}")]),
    (
        "Implausible periods",
        "none",
        [("max by (metric, kind) (hubbub_implausible_periods)", "{{metric}}: {{kind}}")],
    ),
    ("Versions", "none", [("count by (version) (hubbub_build_info)", "{{version}}")]),
    (
        "Replicas that have each definition",
        "none",
        [("count by (metric, digest) (hubbub_definition_info)", "{{metric}} {{digest}}")],
    ),
    (  # hubbub fold --prometheus-textfile, from here on
        "hubbub fold: last run",
        "s",
        [
            ("time() - hubbub_fold_end_timestamp_seconds", "since its end, {{instance}}"),
            ("hubbub_fold_duration_seconds", "duration, {{instance}}"),
        ],
    ),
    (
        "hubbub fold: batches of the last run",
        "short",
        [("hubbub_fold_batches", "counted, {{instance}}"), ("hubbub_fold_repeated_batches", "repeated, {{instance}}")],
    ),
    ("hubbub fold: segments of the last run", "short", [("hubbub_fold_segments", "{{instance}}")]),
    (
        "hubbub fold: metric versions and periods of the last run",
        "short",
        [("sum by (status) (hubbub_fold_folders)", "{{status}}")],
    ),
)


def build() -> dashboard.Dashboard:
    """Return the dashboard: figures in the first row, then two graphs a row."""
    board = (
        dashboard.Dashboard("hubbub aggregator")
        .uid("hubbub")
        .tags(["hubbub"])
        .refresh("1m")
        .time("now-24h", "now")
        .timezone("utc")
        .tooltip(DashboardCursorSync.CROSSHAIR)
    )
    for title, unit, query in STATS:
        figure = stat.Panel().title(title).unit(unit).datasource(SOURCE).height(4).span(6)
        board = board.with_panel(figure.with_target(_target(query, "", instant=True).ref_id("A")))
    for title, unit, queries in PANELS:
        graph = timeseries.Panel().title(title).unit(unit).min(0).datasource(SOURCE).height(HEIGHT).span(WIDTH)
        for number, (query, legend) in enumerate(queries):
            graph = graph.with_target(_target(query, legend).ref_id("AB"[number]))
        board = board.with_panel(graph)
    return board


def _target(query: str, legend: str, *, instant: bool = False) -> prometheus.Dataquery:
    target = prometheus.Dataquery().expr(query).legend_format(legend)
    return target.instant() if instant else target


if __name__ == "__main__":
    sys.stdout.write(JSONEncoder(sort_keys=True, indent=1).encode(build().build()) + "\n")
