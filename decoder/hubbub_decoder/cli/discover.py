"""`hubbub discover`: find frequent strings without a list of candidates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hubbub.cli.output import PATH, json_option
from hubbub_decoder.cli.shared import (
    elapsed_time,
    everything_option,
    fdr_option,
    independent_clients_option,
    interval_options,
    output_options,
    print_result,
    read_all,
    top_option,
    warn_of_repeated_inputs,
    write_outputs,
)

if TYPE_CHECKING:
    from hubbub.metrics.discovery import Discovery
    from hubbub.metrics.metric import Metric
    from hubbub_decoder.options import Target


@click.command(short_help="Find frequent strings without a list.")
@click.argument("summaries", metavar="SUMMARY...", nargs=-1, required=True, type=PATH)
@json_option
@output_options("the estimates", ".csv, .json or .parquet")
@everything_option("every string of the search, not only the detected ones")
@top_option("the largest shares")
@interval_options
@fdr_option("strings")
@independent_clients_option("the same clients with the same values, for which intervals are wider")
@click.option(
    "--beam",
    default=1000,
    metavar="N",
    show_default=True,
    type=click.IntRange(min=1),
    help="Number of prefixes that are kept after each group. Fewer take less time and lose rare strings; a warning says which.",
)
def command(
    summaries: tuple[Path, ...],
    as_json: bool,
    out: Path | None,
    everything: bool,
    top: int | None,
    confidence: float,
    fdr: float,
    target: Target,
    independent_clients: bool,
    beam: int,
) -> None:
    """Find the frequent strings of a metric with a discover table, without a list of candidates.

    A SUMMARY is a file of bit counts or of individual reports. Several files of one definition are added up. Prefix groups find the
    strings; the estimates and tests are those of the held-out group.

    \b
    Example:
      hubbub discover monday.parquet tuesday.parquet --out found.csv
    """
    from dataclasses import replace

    from rich.console import Console

    from hubbub_decoder.data.output_files import check_result_paths
    from hubbub_decoder.discovery.discover import discover, discovery_of
    from hubbub_decoder.model.evidence import combine, describe

    check_result_paths(out, inputs=summaries)
    stderr = Console(stderr=True)
    with elapsed_time(stderr) as show_stage:
        parts = read_all(summaries, show_stage)
        summary = combine(parts)
        discovery = discovery_of(summary.metric)
        found = discover(
            summary,
            confidence=confidence,
            fdr=fdr,
            target=target,
            same_clients=not independent_clients,
            beam=beam,
            progress=show_stage,
        )
    if found.decoding is not None:
        found = replace(found, decoding=warn_of_repeated_inputs(found.decoding, summaries, parts))
    stderr.print(f"searched {describe(summary)}", highlight=False)
    periods = 1 if independent_clients else max(1, len(summary.periods))
    for text in _beam_warnings(summary.metric, discovery, summary.num_reports, periods, beam):
        stderr.print(text, style="yellow", highlight=False, markup=False)
    write_outputs(stderr, out, found.save)
    print_result(found, as_json=as_json, everything=everything, top=top)


def _beam_warnings(metric: Metric, discovery: Discovery, num_reports: int, periods: int, beam: int) -> Iterator[str]:
    """Yield a warning about a beam smaller than the default: the shares that are found with each, by the law of `hubbub plan`.

    num_reports : of all periods      periods : number of those in which the same clients report
    """
    import math
    from dataclasses import replace

    from hubbub_decoder.discovery.discover import DEFAULT_BEAM
    from hubbub_decoder.inference.intervals import DETECTION_POWER
    from hubbub_decoder.planning.description import describe
    from hubbub_decoder.planning.law.accuracy import DiscoveryAccuracy

    if beam >= DEFAULT_BEAM:
        return
    fewer = f"--beam {beam}: the search kept fewer than the default {DEFAULT_BEAM:,} prefixes after each group"
    remedy = "Leave out --beam to find rarer strings."
    law = describe(metric, num_reports=max(1, num_reports // periods), periods=periods).accuracy
    if not isinstance(law, DiscoveryAccuracy):
        return
    limits = [replace(law, beam=width).detection_limit() for width in (beam, DEFAULT_BEAM)]
    found, usual = (f"from {100 * limit:.3g} %" if math.isfinite(limit) else "of no size" for limit in limits)
    yield (
        f"{fewer}. A string of {discovery.longest} symbols is found with probability {DETECTION_POWER:g} if its share is {found}, "
        f"with the default {usual}. {remedy}"
    )
