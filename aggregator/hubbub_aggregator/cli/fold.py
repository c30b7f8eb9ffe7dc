"""`hubbub fold`: segments of an object store -> summaries."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hubbub.cli.output import PATH, jobs_option, json_option, print_json
from hubbub.text import format_count

if TYPE_CHECKING:
    from hubbub.metrics.metric import Metric
    from hubbub.summary import Summary
    from hubbub_aggregator.segments.engines import Engine
    from hubbub_aggregator.segments.folding import Folded
    from hubbub_aggregator.segments.object_store import ObjectStore
    from hubbub_aggregator.segments.segment_file import SegmentFolder

_LOCAL_MASTER = "local[*]"


@click.command()
@click.argument("definitions", type=PATH)
@click.argument("segments")
@click.option(
    "--out-dir",
    "out",
    metavar="DIRECTORY",
    type=PATH,
    help="Output directory for the summaries, one file for each metric version and period, each value of its group, and their sum; created if missing.",
)
@click.option(
    "--engine",
    default="arrow",
    show_default=True,
    type=click.Choice(["arrow", "spark"]),
    help="arrow counts on this machine, with temporary files; spark counts on a cluster.",
)
@jobs_option("one for each core, for three million batches or more, with arrow")
@click.option(
    "--spark-master",
    default=None,
    help=f"Address of the cluster, such as spark://host:7077.  [default: {_LOCAL_MASTER}, all cores of this machine]",
)
@click.option(
    "--spark-conf",
    multiple=True,
    metavar="KEY=VALUE",
    help="Property of Spark, such as spark.driver.memory=4g; repeatable.",
)
@click.option(
    "--prometheus-textfile",
    type=PATH,
    help="Write the figures of this run to this file, for the textfile collector of the node exporter.",
)
@click.option(
    "--keep-segments/--delete-segments",
    default=None,
    help="Keep the segments that this run counts, or delete also those that an earlier run kept. "
    "Default: delete those that this run counts.",
)
@json_option
def command(
    definitions: Path,
    segments: str,
    out: Path | None,
    engine: str,
    jobs: int | None,
    spark_master: str | None,
    spark_conf: tuple[str, ...],
    prometheus_textfile: Path | None,
    keep_segments: bool | None,
    as_json: bool,
) -> None:
    """Count the reports in an object store.

    SEGMENTS is a directory or s3://bucket/prefix, DEFINITIONS a TOML file of metrics. Each batch counts once. Only segments that were not folded before are read. The command may be interrupted, repeated, and run by
    several processes at once.

    \b
    Example:
      hubbub fold metrics.toml s3://reports/hubbub --out-dir summaries/
    """
    from hubbub.metrics.definitions import load_definitions
    from hubbub.wire.urls import mask_url
    from hubbub_aggregator.segments.folding import folders
    from hubbub_aggregator.segments.object_store import ObjectStore

    begun = time.monotonic()
    metrics = {metric.digest: metric for metric in load_definitions(definitions).collections()}
    with _chosen_engine(engine, jobs, spark_master, spark_conf) as chosen:
        if "://" not in segments and not Path(segments).is_dir():
            raise click.ClickException(
                f"{segments} is not a directory: pass the place that `hubbub serve --segments` has"
            )
        objects = ObjectStore.open(segments)
        summaries = None if out is None else _Summaries(metrics, out)
        results = []
        for folder, folded in _fold_all(objects, definitions, metrics, chosen, keep=keep_segments):
            if summaries is not None:
                summaries.write(folder, folded)
            results.append(_result(folder, folded))
        if summaries is not None:
            summaries.write_sums(folders(objects))
    if as_json:
        print_json(results)
    else:
        for result in results:
            click.echo(_line(result))
    kept = sum(int(result.get("kept", 0)) for result in results)
    if kept and keep_segments is None:
        click.echo(
            f"{format_count(kept, 'counted segment')} that an earlier run kept (--keep-segments) stay stored: add --delete-segments to "
            "delete them, or --keep-segments to keep further ones too",
            err=True,
        )
    if prometheus_textfile is not None:
        try:
            write_fold_textfile(prometheus_textfile, results, ended=time.time(), seconds=time.monotonic() - begun)
        except OSError as problem:
            raise click.ClickException(
                f"--prometheus-textfile {prometheus_textfile}: {problem.strerror}. The segments were folded; "
                "create the directory, or give another file"
            ) from None
    if not results:
        raise click.ClickException(
            f"{mask_url(segments)} has no segments, so nothing was counted: pass the place that `hubbub serve --segments` has"
        )
    failed = [result for result in results if result["status"] == "failed"]
    if failed:
        raise click.ClickException(
            f"{len(failed)} of {format_count(len(results), 'folder')} failed: "
            + "; ".join(f"{result['metric']} {result['period']}: {result['reason']}" for result in failed)
        )


def _fold_all(
    objects: ObjectStore, definitions: Path, metrics: Mapping[str, Metric], engine: Engine, *, keep: bool | None
) -> Iterator[tuple[SegmentFolder, Folded | str]]:
    """Fold each folder; yield the result, or the reason of a failure."""
    from hubbub.errors import HubbubError
    from hubbub_aggregator.segments.folding import fold_folder, folders

    for folder in folders(objects):
        metric = metrics.get(folder.digest)
        if metric is None:
            yield folder, f"{definitions} has no definition with this digest: add this version of the metric"
            continue
        try:
            yield folder, fold_folder(objects, folder, metric, engine, keep=keep)
        except HubbubError as problem:
            yield folder, str(problem)


class _Summaries:
    """Output directory: a summary of each metric version and period, of each value of a group, and of their sum if all were folded."""

    def __init__(self, metrics: Mapping[str, Metric], out: Path) -> None:
        from hubbub.files.private_file import make_private_directory

        make_private_directory(out)
        self._metrics, self._out = metrics, out
        self._folded: dict[SegmentFolder, bool] = {}
        """Whether each folder is closed."""
        self._sums: dict[tuple[str, str], Summary] = {}

    def write(self, folder: SegmentFolder, folded: Folded | str) -> None:
        """Write the summary of one folder; a text is the reason of a failure."""
        metric = self._metrics.get(folder.digest)
        if metric is None or isinstance(folded, str):
            return
        self._folded[folder] = folded.closed
        if folded.summary is None:
            return
        self._write(metric, folder.period, folded.summary)
        if metric.group is not None:
            key = metric.in_group(None).digest, folder.period
            before = self._sums.get(key)
            self._sums[key] = folded.summary if before is None else add(before, folded.summary)
            # The name that earlier versions gave to the same counts, which would be added to these.
            (self._out / f"{folder.metric}@{folder.digest[:8]}-{folder.period}.parquet").unlink(missing_ok=True)

    def write_sums(self, existing: Iterable[SegmentFolder]) -> None:
        """Write the sums over groups; existing : the folders that there are now. A sum without one of them would look complete.

        A sum is closed if all values are: of a value without a folder, reports may still come.
        """
        from hubbub_aggregator.segments.segment_file import SegmentFolder

        missing = [
            (self._metrics[folder.digest], folder)
            for folder in existing
            if folder not in self._folded and folder.digest in self._metrics
        ]
        incomplete = {(metric.in_group(None).digest, folder.period) for metric, folder in missing}
        for (digest, period), total in self._sums.items():
            if (digest, period) not in incomplete:
                whole = total.metric.in_group(None)  # also if one value has all reports
                folders = [SegmentFolder(whole.name, value.digest, period) for value in whole.collections]
                closed = all(self._folded.get(folder, False) for folder in folders)
                self._write(whole, period, replace(total, metric=whole, closed=closed))

    def _write(self, metric: Metric, period: str, summary: Summary) -> None:
        from hubbub.summary import write_summary

        value = "" if metric.group is None or metric.group.value is None else f"-{metric.group.value}"
        write_summary(summary, self._out / f"{metric.name}@{metric.in_group(None).digest[:8]}{value}-{period}.parquet")


def _result(folder: SegmentFolder, folded: Folded | str) -> dict[str, str | int]:
    """Return a result as `--json` prints it."""
    about: dict[str, str | int] = {"metric": folder.metric, "digest": folder.digest, "period": folder.period}
    if isinstance(folded, str):
        return about | {"status": "failed", "reason": folded}
    return about | {
        "status": "folded",
        "segments": folded.num_segments,
        "batches": folded.num_batches,
        "repeated": folded.num_repeated,
        "kept": folded.num_kept,
        "reports": 0 if folded.summary is None else folded.summary.num_reports,
    }


def _line(result: Mapping[str, str | int]) -> str:
    """Return a result as text."""
    name = f"{result['metric']} {str(result['digest'])[:12]} {result['period']}"
    if result["status"] == "failed":
        return f"{name}: failed: {result['reason']}"
    return (
        f"{name}: {result['reports']:,} reports; {result['segments']:,} segments folded now, "
        f"{result['batches']:,} new batches, {result['repeated']:,} repeated"
    )


@contextmanager
def _chosen_engine(name: str, jobs: int | None, master: str | None, conf: Sequence[str]) -> Iterator[Engine]:
    """Check the options of engines, and provide the engine for the block."""
    from hubbub_aggregator.segments.engines import ArrowEngine

    if jobs is not None and name == "spark":
        raise click.UsageError("--jobs is for --engine arrow. Set the cores of Spark with --spark-master local[N].")
    for option, value in {"--spark-master": master, "--spark-conf": conf}.items():
        if value and name != "spark":
            raise click.UsageError(f"{option} is for --engine spark. Leave it out, or add --engine spark.")
    wrong = [given for given in conf if "=" not in given or not given.startswith("spark.")]
    if wrong:
        raise click.UsageError(
            f"--spark-conf {wrong[0]}: this is not a property of Spark. Write spark.NAME=VALUE, such as spark.driver.memory=4g."
        )
    if name != "spark":
        yield ArrowEngine(jobs)
        return
    from hubbub_aggregator.segments.spark_engine import SparkEngine, spark_session

    with spark_session(master or _LOCAL_MASTER, dict(given.split("=", 1) for given in conf)) as session:
        yield SparkEngine(session)


def write_fold_textfile(
    path: Path, results: Iterable[Mapping[str, str | int]], *, ended: float, seconds: float
) -> None:
    """Write the figures of one run for the textfile collector of Prometheus's node exporter; the file is replaced in one step.

    A run ends before Prometheus could scrape it. The file holds the figures of the last run until the next one replaces it.

    results : one for each metric version and period, as `hubbub fold --json` prints them
    ended   : end of the run, POSIX seconds          seconds : its duration

    Raises OSError if the file cannot be written.
    """
    from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

    folders, totals = Counter[str]({"folded": 0, "failed": 0}), Counter[str]()
    for result in results:
        folders[str(result["status"])] += 1
        totals.update({name: int(result.get(name, 0)) for name in ("segments", "batches", "repeated")})
    registry = CollectorRegistry(auto_describe=False)
    gauges = {
        "hubbub_fold_end_timestamp_seconds": ("End of the last run of hubbub fold.", ended),
        "hubbub_fold_duration_seconds": ("Duration of the last run of hubbub fold.", seconds),
        "hubbub_fold_segments": ("Segments that the last run folded.", totals["segments"]),
        "hubbub_fold_batches": ("Batches that the last run counted.", totals["batches"]),
        "hubbub_fold_repeated_batches": ("Repeated batches that the last run did not count.", totals["repeated"]),
    }
    for name, (meaning, value) in gauges.items():
        Gauge(name, meaning, registry=registry).set(value)
    by_status = Gauge(
        "hubbub_fold_folders", "Metric versions and periods of the last run, by status.", ["status"], registry=registry
    )
    for status, number in folders.items():
        by_status.labels(status).set(number)
    write_to_textfile(str(path), registry)
