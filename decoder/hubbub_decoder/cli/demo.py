"""`hubbub demo`: run the whole pipeline on real flights."""

from __future__ import annotations

from pathlib import Path

import click

from hubbub.cli.output import json_option, print_json


@click.command(short_help="Run the whole pipeline on real flights.")
@click.option(
    "--reports",
    metavar="N",
    type=click.IntRange(100, 10_000_000),
    help="Number of reports: one of each flight. Default: all 336,776 flights.",
)
@click.option(
    "--out-dir",
    "out",
    metavar="DIRECTORY",
    type=click.Path(path_type=Path, file_okay=False, readable=False),
    default=Path("demo-out"),
    show_default=True,
    help="Output directory for the HTML pages and the estimates.",
)
@json_option
def command(reports: int | None, out: Path, *, as_json: bool) -> None:
    """Run the whole pipeline on 336,776 real flights (New York City, 2013).

    Starts an aggregator on this machine, and sends one report per flight and metric. Then downloads and decodes the
    summaries, and shows each estimate with the true share. Takes about a minute on two cores.

    \b
    Example:
      hubbub demo --reports 100000
    """
    import os
    import sys
    import time
    from datetime import UTC, datetime

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from hubbub_decoder.demo.comparison import privacy_document
    from hubbub_decoder.demo.flights import airlines, airports, sample_flights
    from hubbub_decoder.demo.page import write_pages
    from hubbub_decoder.demo.pipeline import run_demo
    from hubbub_decoder.documents.terminal import TerminalDocument

    started = time.monotonic()
    stderr = Console(stderr=True)
    population = sample_flights(reports)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal) as progress:
        task = progress.add_task("starting", total=len(population))

        def advance(step: str, flights: int) -> None:
            progress.update(task, description=step, advance=flights)

        comparisons = run_demo(population, datetime.now(UTC).date(), min(2, os.cpu_count() or 1), advance)

    names = airports() | airlines()
    out.mkdir(parents=True, exist_ok=True)
    for comparison in comparisons:
        comparison.decoding.save(out / f"{comparison.decoding.metric.name}.csv")
    page = write_pages(out, comparisons, names)
    if as_json:
        print_json({"flights": len(population), "metrics": [comparison.to_dict() for comparison in comparisons]})
    else:
        stdout = Console(highlight=False, width=None if sys.stdout.isatty() else 110)
        for comparison in comparisons:
            stdout.print(TerminalDocument(comparison.document(names)))
        stdout.print(TerminalDocument(privacy_document(comparisons)))
    stderr.print(
        f"\nProcessed {len(population):,} flights in {time.monotonic() - started:.0f} s. Pages: {page}",
        highlight=False,
    )
