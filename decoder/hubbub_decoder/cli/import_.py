"""`hubbub import`: what other collectors wrote -> a summary."""

from __future__ import annotations

from pathlib import Path

import click

from hubbub.cli.output import PATH, json_option, print_json


@click.group()
def command() -> None:
    """Turn another collector's files into a summary.

    \b
    Example:
      hubbub import google-rappor --params params.csv --counts counts.csv --map map.csv --out summary.parquet
    """


@command.command("google-rappor")
@click.option("--params", "params_path", required=True, type=PATH, help="k,h,m,p,q,f.")
@click.option("--counts", "counts_path", type=PATH, help="One line a cohort: reports, ones a bit.")
@click.option(
    "--reports", "reports_path", type=PATH,
    help="client,cohort,bloom,prr,irr: they say more than counts.",
)  # fmt: skip
@click.option("--map", "map_path", type=PATH, help="Candidates and the places they set.")
@click.option("--name", default="google-rappor", show_default=True, help="What to call the metric.")
@click.option(
    "--client", type=click.Choice(["python", "cpp"]),
    help="Whose reports: Python rounds f up to 1/128, C++ down. Default: f as written.",
)  # fmt: skip
@click.option("--out", required=True, type=PATH, help="The file to write: a summary, or reports of k > 16.")
@click.option("--candidates-out", type=PATH, help="Also write the map's candidates, one a line.")
@json_option
def google_rappor(
    params_path: Path,
    counts_path: Path | None,
    reports_path: Path | None,
    map_path: Path | None,
    name: str,
    client: str | None,
    out: Path,
    candidates_out: Path | None,
    as_json: bool,
) -> None:
    """Import google/rappor's params, counts, map and report CSVs.

    Decode with `hubbub decode summary.parquet --map map.csv`, or with `--candidates` where the map is what google/rappor's clients
    hash, which is said here. A map that gives every candidate a bit of its own (basic RAPPOR) makes a categorical metric, which
    needs neither.

    \b
    Example:
      hubbub import google-rappor --params params.csv --counts counts.csv --map map.csv --out summary.parquet
    """

    from rich.console import Console

    from hubbub.metrics.metric import Metric
    from hubbub.summary import BitCounts
    from hubbub.text import counted
    from hubbub_decoder.data.candidates import write_candidates
    from hubbub_decoder.data.google_rappor import (
        categories_of_map,
        is_google_md5_map,
        read_map,
        read_params,
        read_reports,
        read_summary_files,
    )
    from hubbub_decoder.data.output_files import (
        check_output_path,
        check_parquet_path,
        write_report_file,
        write_summary_file,
    )
    from hubbub_decoder.errors import ForeignFileError

    if counts_path is None and reports_path is None:
        raise click.UsageError("give --counts or --reports")
    if candidates_out is not None and map_path is None:
        raise click.UsageError("--candidates-out goes with --map")
    check_parquet_path(out)
    if candidates_out is not None:
        check_output_path(candidates_out)
    talk = Console(stderr=True)
    warnings: list[str] = []
    told: list[str] = [str(out)]
    by_md5 = categories = None
    with talk.status("importing ..."):
        params = read_params(params_path, client)
        if map_path is not None:
            names, positions = read_map(map_path, params)
            by_md5 = is_google_md5_map(names, positions, params)
            categories = None if by_md5 else categories_of_map(names, positions, params)
        p, q, f = params.prob_p, params.prob_q, params.prob_f
        if p > q:
            warnings.append(
                f"{params_path} has p = {p:g} above q = {q:g}, so that true bits are rarer among ones: right for some clients, "
                "but if the two are swapped, all that is decoded is wrong"
            )
        metric = (
            Metric.string(name, params)
            if categories is None
            else Metric.categorical(name, categories, prob_p=p, prob_q=q, prob_f=f)
        )
        summary = read_summary_files(metric, counts_path, reports_path, params)
        if summary.num_reports == 0:
            raise ForeignFileError(f"{counts_path or reports_path}: counts no report: was it written completely?")
        if candidates_out is not None:
            if not by_md5 and categories is None:
                raise ForeignFileError(
                    f"{map_path}: is not what google/rappor's clients hash, so names alone do not say their bits: "
                    "leave --candidates-out, and decode with --map"
                )
            write_candidates(names, candidates_out)
            told.append(str(candidates_out))
        if reports_path is not None and categories is None and isinstance(summary, BitCounts):
            write_report_file(metric, read_reports(reports_path, params), out)
        else:
            write_summary_file(summary, out)
    talk.print(f"wrote {' and '.join(told)}: {counted(summary.num_reports, 'report')}", highlight=False, soft_wrap=True)
    for warning in warnings:
        talk.print(f"Note: {warning}.", highlight=False, soft_wrap=True, markup=False)
    if categories is not None:
        talk.print(
            f"{map_path} gives every candidate a bit of its own: a categorical metric, decoded without candidates",
            highlight=False,
            soft_wrap=True,
        )
    elif by_md5 is False:
        talk.print(
            f"{map_path} has a hashing of its own: decode with --map {map_path}", highlight=False, soft_wrap=True
        )
    if as_json:
        about = {
            "out": str(out),
            "metric": name,
            "kind": str(summary.metric.kind),
            "num_reports": summary.num_reports,
            "map_is_google_md5": by_md5,
            "warnings": warnings,
        }
        print_json(about)
