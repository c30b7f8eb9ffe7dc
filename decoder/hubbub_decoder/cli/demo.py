"""`hubbub demo`: the whole road on real flights, in one process tree."""

from __future__ import annotations

from pathlib import Path

import click

from hubbub.cli.output import json_option, print_json


@click.command()
@click.option(
    "--reports", type=click.IntRange(100, 10_000_000), help="How many flights report; default: all 336,776 of 2013."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False, readable=False),
    default=Path("demo-out"),
    show_default=True,
    help="Folder for the page and the estimates.",
)
@json_option
def command(reports: int | None, out: Path, *, as_json: bool) -> None:
    """Let New York's flights report where they went without saying so.

    Starts an aggregator on this machine, reports over HTTP through the real client encoder, pulls the counts,
    decodes them, and shows the truth beside each estimate.

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

    from hubbub_decoder.demo.flights import airlines, airports, sample_flights
    from hubbub_decoder.demo.page import render_page
    from hubbub_decoder.demo.pipeline import run_demo
    from hubbub_decoder.demo.tables import comparison_table, privacy_table

    started = time.monotonic()
    talk = Console(stderr=True)
    population = sample_flights(reports)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=talk, transient=True, disable=not talk.is_terminal) as progress:
        task = progress.add_task("starting", total=len(population))

        def told(what: str, more: int) -> None:
            progress.update(task, description=what, advance=more)

        comparisons = run_demo(population, datetime.now(UTC).date(), min(2, os.cpu_count() or 1), told)

    names = airports() | airlines()
    out.mkdir(parents=True, exist_ok=True)
    for comparison in comparisons:
        comparison.decoding.save(out / f"{comparison.decoding.metric.name}.csv")
    page = out / "index.html"
    page.write_text(render_page(comparisons, names, len(population)), encoding="utf-8")
    if as_json:
        print_json({"people": len(population), "metrics": [comparison.to_dict() for comparison in comparisons]})
    else:
        show = Console(highlight=False, width=None if sys.stdout.isatty() else 110)
        for comparison in comparisons:
            show.print(comparison_table(comparison, names))
        show.print()
        show.print(privacy_table(comparisons))
    talk.print(
        f"\n{len(population):,} flights reported in {time.monotonic() - started:.0f} s; the page: {page}",
        highlight=False,
    )
