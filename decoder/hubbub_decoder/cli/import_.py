"""`hubbub import`: convert files of other collectors to a summary."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hubbub.cli.output import PATH, json_option, print_json
from hubbub_decoder.cli.shared import print_message

if TYPE_CHECKING:
    from collections import Counter

    from rich.console import Console

    from hubbub.metrics.metric import Metric
    from hubbub.metrics.params import Params
    from hubbub.summary import Summary
    from hubbub_decoder.data.google_rappor import CandidateMap
    from hubbub_decoder.documents.finding import Finding


@click.group()
def command() -> None:
    """Convert files of another collector to a summary.

    \b
    Example:
      hubbub import google-rappor --params params.csv --counts-file counts.csv --map map.csv --out summary.parquet
    """


@command.command("google-rappor", short_help="Import google/rappor's CSV files.")
@click.option("--params", "params_path", required=True, type=PATH, help="Parameters: .csv with k,h,m,p,q,f.")
@click.option(
    "--counts-file",
    "counts_path",
    type=PATH,
    help="Counts: .csv with one line per cohort, number of reports and ones of each bit.",
)
@click.option(
    "--reports-file",
    "reports_path",
    type=PATH,
    help="Reports: .csv with client,cohort,bloom,prr,irr. More precise than counts.",
)
@click.option(
    "--map", "map_path", type=PATH, help="Map of google/rappor: .csv with candidates and their bit positions."
)
@click.option("--name", default="google-rappor", show_default=True, help="Name of the metric.")
@click.option(
    "--client-language",
    "client",
    type=click.Choice(["python", "cpp"]),
    help="Language of the client that sent the reports: python rounds f up to a multiple of 1/128, cpp down. Default: f as written.",
)
@click.option(
    "--out",
    required=True,
    metavar="FILE",
    type=PATH,
    help="Output file (.parquet) of the summary; with --reports-file and k > 16, of the individual reports.",
)
@click.option(
    "--variable",
    "variables",
    multiple=True,
    metavar="NAME=TYPE",
    help="Column of --reports-file with a variable, string or boolean. Repeat it for a joint metric; read it with hubbub associate.",
)
@click.option(
    "--drop-invalid-rows",
    is_flag=True,
    help="Leave out the rows of --reports-file that are no reports. They are counted by reason, and each result says how many there were. "
    "Default: such a row ends the command.",
)
@click.option("--candidates-out", type=PATH, help="Also write the candidates of the map to this file, one per line.")
@json_option
def google_rappor(
    params_path: Path,
    counts_path: Path | None,
    reports_path: Path | None,
    map_path: Path | None,
    name: str,
    client: str | None,
    out: Path,
    variables: tuple[str, ...],
    drop_invalid_rows: bool,
    candidates_out: Path | None,
    as_json: bool,
) -> None:
    """Import google/rappor's CSV files: parameters, counts or reports, and map.

    Decode the result with `hubbub decode summary.parquet --map map.csv`. If the map equals the hashes of google/rappor's clients,
    `--candidates` is sufficient; this command prints whether it does. A map that gives every candidate its own bit (basic RAPPOR)
    becomes a categorical metric, and k = 1 a boolean one; they need neither option.

    \b
    Example:
      hubbub import google-rappor --params params.csv --counts-file counts.csv --map map.csv --out summary.parquet
    """
    from collections import Counter
    from dataclasses import asdict

    from rich.console import Console

    from hubbub.text import format_count
    from hubbub_decoder.data.google_rappor import read_collection
    from hubbub_decoder.data.output_files import check_output_path, check_parquet_path

    if counts_path is None and reports_path is None:
        raise click.UsageError("Pass --counts-file or --reports-file.")
    if drop_invalid_rows and reports_path is None:
        raise click.UsageError(
            "--drop-invalid-rows needs --reports-file: a line of --counts-file is a whole cohort. Repair it, or leave the option out."
        )
    dropped_rows = Counter[str]() if drop_invalid_rows else None
    if variables:
        if reports_path is None or (counts_path, map_path, candidates_out) != (None, None, None):
            message = "--variable needs --reports-file, and excludes --counts-file, --map and --candidates-out."
            raise click.UsageError(message)
        metric = _joint_metric(params_path, name, client, variables)
        _import_joint(metric, reports_path, out, dropped_rows, as_json=as_json)
        return
    if candidates_out is not None and map_path is None:
        raise click.UsageError("--candidates-out requires --map.")
    check_parquet_path(out)
    if candidates_out is not None:
        check_output_path(candidates_out)
    stderr = Console(stderr=True)
    with stderr.status("importing ..."):
        params, known, summary = read_collection(
            name, params_path, counts_path, reports_path, map_path, client=client, dropped_rows=dropped_rows
        )
        if known is not None and candidates_out is not None:
            _write_names(known, map_path, candidates_out)
        _write_collected(summary, reports_path, params, out)
    written = " and ".join(str(path) for path in (out, candidates_out) if path is not None)
    print_message(stderr, f"wrote {written}: {format_count(summary.num_reports, 'report')}")
    _print_dropped(stderr, reports_path, dropped_rows)
    warnings = _swapped_probabilities(params_path, params)
    for warning in warnings:
        print_message(stderr, warning.line)
    advice = _decoding_advice(summary.metric, known, params_path, map_path)
    if advice is not None:
        print_message(stderr, advice)
    if as_json:
        result = {
            "out": str(out),
            "metric": name,
            "kind": str(summary.metric.kind),
            "num_reports": summary.num_reports,
            "dropped_rows": dict(summary.dropped_rows),
            "map_is_google_md5": None if known is None else known.is_google_md5,
            "warnings": [asdict(warning) for warning in warnings],
        }
        print_json(result)


def _decoding_advice(
    metric: Metric, known: CandidateMap | None, params_path: Path, map_path: Path | None
) -> str | None:
    """Return how to decode a metric that needs no candidates, or whose map is needed; None: the names are sufficient."""
    if metric.params.num_bits == 1:
        return f"{params_path} has k = 1: the metric is boolean. Decode it without candidates."
    if known is not None and not metric.kind.needs_candidates:
        return f"{map_path} gives every candidate its own bit: the metric is categorical. Decode it without candidates."
    if known is not None and not known.is_google_md5:
        return f"{map_path} differs from the hashes of google/rappor's clients. Decode with --map {map_path}."
    return None


def _write_names(known: CandidateMap, map_path: Path | None, path: Path) -> None:
    """Write the names of a map's candidates, if they are sufficient to decode."""
    from hubbub_decoder.data.candidates import write_candidates
    from hubbub_decoder.errors import ForeignFileError

    if known.params.num_bits == 1:
        raise ForeignFileError(
            f"{map_path} belongs to k = 1, a boolean, which has no candidates. Leave out --candidates-out."
        )
    if not known.is_google_md5 and known.categories is None:
        raise ForeignFileError(
            f"{map_path} differs from the hashes of google/rappor's clients, so the names are not sufficient to decode. "
            "Leave out --candidates-out, and decode with --map."
        )
    write_candidates(known.names, path)


def _write_collected(summary: Summary, reports_path: Path | None, params: Params, out: Path) -> None:
    """Write the summary, or the reports themselves if they have too many bits for pattern counts and are more precise than it."""
    from collections import Counter

    from hubbub.summary import BitCounts
    from hubbub_decoder.data.google_rappor import read_reports
    from hubbub_decoder.data.output_files import write_report_file, write_summary_file

    if reports_path is not None and summary.metric.kind.needs_candidates and isinstance(summary, BitCounts):
        blocks = read_reports(reports_path, params, Counter() if summary.dropped_rows else None)
        write_report_file(summary.metric, blocks, out, dropped_rows=summary.dropped_rows)
    else:
        write_summary_file(summary, out)


def _swapped_probabilities(path: Path, params: Params) -> list[Finding]:
    """Return a finding if a one is reported more often for a true zero than for a true one."""
    from hubbub_decoder.documents.finding import Finding, Severity

    p, q = params.mechanism.prob_p, params.mechanism.prob_q
    if p <= q:
        return []
    text = f"{path} has p = {p:g} > q = {q:g}, so reported ones indicate true zeros. If the two were swapped, all estimates are wrong."
    return [Finding("swapped_probabilities", text, "Check them against the clients' parameters.", Severity.PROBLEM)]


def _print_dropped(stderr: Console, reports_path: Path | None, dropped_rows: Counter[str] | None) -> None:
    """Print the numbers of rows that were left out, if they were asked for."""
    from hubbub_decoder.results.warnings import rows_by_reason

    if dropped_rows is not None:
        print_message(stderr, f"left out of {reports_path}: {rows_by_reason(dropped_rows)}")


def _joint_metric(params_path: Path, name: str, client: str | None, variables: tuple[str, ...]) -> Metric:
    """Return the metric of the variables NAME=TYPE."""
    from hubbub_decoder.data.google_rappor import read_params
    from hubbub_decoder.data.google_rappor_joint import VARIABLE_TYPES, joint_metric

    types = {}
    for text in variables:
        variable, _, kind = text.partition("=")
        if kind not in VARIABLE_TYPES:
            raise click.UsageError(f"--variable must be NAME=string or NAME=boolean, got {text!r}.")
        types[variable] = kind
    return joint_metric(name, types, read_params(params_path, client))


def _import_joint(
    metric: Metric, reports_path: Path, out: Path, dropped_rows: Counter[str] | None, *, as_json: bool
) -> None:
    """Write the reports of several variables as reports of a joint metric."""
    from rich.console import Console

    from hubbub.summary import write_reports
    from hubbub.text import format_count
    from hubbub_decoder.data.google_rappor_joint import read_joint_reports
    from hubbub_decoder.data.output_files import check_parquet_path

    check_parquet_path(out)
    stderr = Console(stderr=True)
    with stderr.status("importing ..."):
        reports = read_joint_reports(reports_path, metric, dropped_rows)
        write_reports(reports, out)
    print_message(stderr, f"wrote {out}: {format_count(reports.num_reports, 'report')}")
    _print_dropped(stderr, reports_path, dropped_rows)
    if as_json:
        result = {"out": str(out), "metric": metric.name, "kind": str(metric.kind), "num_reports": reports.num_reports}
        print_json({**result, "dropped_rows": dict(reports.dropped_rows)})
