"""`hubbub decode`: estimate shares from summaries or reports."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from hubbub.cli.help_sections import SectionedCommand
from hubbub.cli.output import PATH, json_option
from hubbub_decoder.cli.shared import (
    Share,
    candidates_option,
    elapsed_time,
    events_option,
    everything_option,
    fdr_option,
    independent_clients_option,
    interval_options,
    output_options,
    print_result,
    read_all,
    statistics_option,
    top_option,
    warn_of_repeated_inputs,
    write_outputs,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from hubbub.metrics.metric import Metric
    from hubbub_decoder.cli.shared import ShowStage
    from hubbub_decoder.comparison.trends import Trends
    from hubbub_decoder.data.events import Event
    from hubbub_decoder.model.design_matrix import DesignMatrix
    from hubbub_decoder.model.evidence import Collected
    from hubbub_decoder.options import OptionFields, Target
    from hubbub_decoder.results.decoding import Decoding


@click.command(cls=SectionedCommand)
@click.argument("summaries", metavar="SUMMARY...", nargs=-1, required=True, type=PATH)
@candidates_option
@click.option(
    "--map",
    "map_path",
    type=PATH,
    help="Map of google/rappor: .csv with candidates and their bit positions. Replaces --candidates.",
)
@click.option(
    "--more-candidates",
    "words_path",
    type=PATH,
    help="Words to compare with the frequent unlisted strings that are found; a file like that of --candidates.",
)
@json_option
@output_options(
    "the estimates",
    ".csv, .json, .parquet or .html",
    "the estimates with their intervals, or with --by the shares of each period or value",
)
@click.option(
    "--by",
    metavar="NAME",
    help="Decode each period by itself (period), or each value of the metric's group (its name, such as version), and show the changes from each to "
    "the next. Needs one file or more for each.",
)
@events_option
@everything_option("every candidate, not only the detected ones")
@top_option("the largest shares, also in --plot")
@interval_options
@fdr_option("candidates")
@click.option(
    "--method",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "lasso"]),
    help="auto estimates every candidate; lasso only those that a lasso on half of the cohorts keeps.",
)
@statistics_option(
    "--fabricated",
    default="0%",
    show_default=True,
    metavar="SHARE",
    type=Share(),
    help="Share of the reports that may be forged: intervals and tests then hold for the others, whichever they are.",
)
@independent_clients_option("the same clients with the same values, for which intervals are wider")
@statistics_option(
    "--weights",
    "weights_path",
    type=PATH,
    help="Frequencies known beforehand, such as those of an earlier list: .csv with the columns candidate and weight. They inform detection.",
)
def command(
    summaries: tuple[Path, ...],
    candidates_path: Path | None,
    map_path: Path | None,
    words_path: Path | None,
    as_json: bool,
    out: Path | None,
    by: str | None,
    plot: Path | None,
    event_paths: tuple[Path, ...],
    everything: bool,
    top: int | None,
    confidence: float,
    fdr: float,
    target: Target,
    method: Literal["auto", "lasso"],
    fabricated: float,
    independent_clients: bool,
    weights_path: Path | None,
) -> None:
    """Estimate the share of reports that carry each candidate.

    A SUMMARY is a file of counts or of individual reports. Several files of one definition are added up.

    \b
    Example:
      hubbub decode monday.parquet tuesday.parquet --candidates names.txt --out estimates.csv
      hubbub decode monday.parquet tuesday.parquet --candidates names.txt --by period --out trend.html --events releases.csv
    """
    from rich.console import Console

    from hubbub.metrics.group import PERIOD
    from hubbub_decoder.data.candidates import read_candidates
    from hubbub_decoder.data.events import read_events
    from hubbub_decoder.data.output_files import PAGE, TABLES, check_result_paths
    from hubbub_decoder.data.weights import read_weights
    from hubbub_decoder.model.evidence import combine, describe
    from hubbub_decoder.options import OptionFields
    from hubbub_decoder.pipeline import decode

    if candidates_path is not None and map_path is not None:
        raise click.UsageError("--candidates and --map exclude each other. Pass one of them.")
    if by is not None and (words_path is not None or weights_path is not None or method != "auto" or fabricated):
        raise click.UsageError("--by takes no --more-candidates, --weights, --method or --fabricated. Leave them out.")
    if event_paths and not (by == PERIOD and out is not None and out.suffix.lower() == PAGE):
        raise click.UsageError(
            "--events marks the charts of a page over periods. Pass --by period and --out FILE.html, or leave it out."
        )
    inputs = (*summaries, candidates_path, map_path, words_path, weights_path, *event_paths)
    check_result_paths(out, plot, (*TABLES, PAGE), inputs)
    events = read_events(event_paths)
    candidates: list[str] | DesignMatrix | None = None if candidates_path is None else read_candidates(candidates_path)
    weights = None if weights_path is None else read_weights(weights_path)
    words = None if words_path is None else read_candidates(words_path)
    stderr = Console(stderr=True)
    with elapsed_time(stderr) as show_stage:
        parts = read_all(summaries, show_stage)
        summary = combine(parts)
        if map_path is not None:
            candidates = _design_of_map(map_path, summary.metric)
        if words is not None:
            _require_unlisted(summary.metric)
        show_stage(f"decoding {describe(summary)}")
        options = OptionFields(confidence=confidence, fdr=fdr, target=target, same_clients=not independent_clients)
        found: Decoding | Trends
        if by is not None:
            found = _decode_each(parts, candidates, by, show_stage, options)
        else:
            found = decode(
                summary,
                candidates,
                method=method,
                weights=weights,
                fabricated=fabricated,
                progress=show_stage,
                **options,
            )
            if plot is not None:
                _require_plot(found)
            if words is not None:
                found = found.match_unlisted(words)
            found = warn_of_repeated_inputs(found, summaries, parts)
    stderr.print(f"decoded {describe(summary)}", highlight=False)

    files = summaries, [path for path in (candidates_path, map_path) if path]
    save = partial(_save, found, summary, candidates, events, files)
    write_outputs(stderr, out, save, plot, lambda figure: _draw(found, figure, top))
    print_result(found, as_json=as_json, everything=everything, top=top)


def _design_of_map(path: Path, metric: Metric) -> DesignMatrix:
    """Return the design matrix of google/rappor's map; raises UsageError for a metric whose values need no candidates."""
    from hubbub_decoder.data.google_rappor import read_map

    if not metric.kind.needs_candidates:
        raise click.UsageError(f"{metric.name} is a {metric.kind} metric and needs no map. Leave out --map.")
    return read_map(path, metric.params).design()


def _require_unlisted(metric: Metric) -> None:
    """Raise UsageError for a metric whose values are listed in its definition."""
    if not metric.kind.needs_candidates:
        raise click.UsageError(
            f"{metric.name} is a {metric.kind} metric, so no string of it is unlisted. Leave out --more-candidates."
        )


def _decode_each(
    parts: Sequence[Collected],
    candidates: Sequence[str] | DesignMatrix | None,
    by: str,
    show_stage: ShowStage,
    options: OptionFields,
) -> Trends:
    """Decode each period or value of the group; raises UsageError for a name that is neither."""
    from hubbub.errors import ParameterError
    from hubbub_decoder.comparison.trends import decode_each

    try:
        return decode_each(parts, candidates, by=by, progress=show_stage, **options)
    except ParameterError as problem:
        raise click.UsageError(f"--by {by}: {problem}") from None


def _save(
    found: Decoding | Trends,
    summary: Collected,
    candidates: Sequence[str] | DesignMatrix | None,
    events: Sequence[Event],
    files: tuple[Sequence[Path], Sequence[Path]],
    path: Path,
) -> None:
    """Save a result as a table, or as a page that names the files of the summaries, and of the candidates or the map."""
    from datetime import UTC, datetime

    from hubbub_decoder.comparison.trends import Trends
    from hubbub_decoder.data.output_files import PAGE
    from hubbub_decoder.model.design_matrix import DesignMatrix
    from hubbub_decoder.report.about import provenance_rows
    from hubbub_decoder.report.write import write_report, write_trend_report

    today = datetime.now(UTC).date()
    if path.suffix.lower() != PAGE:
        found.save(path)
    elif isinstance(found, Trends):
        write_trend_report(found, path, provenance_rows(found.decodings[0], *files, today), events)
    else:
        design = candidates if isinstance(candidates, DesignMatrix) else None
        write_report(found, path, summary, design=design, provenance=provenance_rows(found, *files, today))


def _require_plot(found: Decoding) -> None:
    """Raise UsageError for a decoding without estimates."""
    if not found.estimates:
        raise click.UsageError(
            f'{found.metric.name} estimates a mean (estimate = "mean"), which has no plot. Leave out --plot.'
        )


def _draw(found: Decoding | Trends, figure: Figure, top: int | None) -> None:
    """Draw a result on an empty figure: of an ordinal metric also the distribution function, and no more lines than can be told apart."""
    from hubbub_decoder.comparison.trends import Trends
    from hubbub_decoder.results.diagnostic_plots import plot_numbers
    from hubbub_decoder.results.plots import MAX_LINES

    if isinstance(found, Trends):
        found.plot(figure, top=min(top or MAX_LINES, MAX_LINES))
    elif found.numbers is not None:
        plot_numbers(found, figure)
    else:
        found.plot(figure, top=top)
