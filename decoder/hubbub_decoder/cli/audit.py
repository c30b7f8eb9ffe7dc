"""`hubbub audit`: measure the privacy of a client."""

from __future__ import annotations

from pathlib import Path

import click

from hubbub.cli.output import PATH, json_option, print_json


@click.command(short_help="Measure the privacy of a client.")
@click.argument("definitions", type=PATH)
@click.argument("names", nargs=-1)
@click.option(
    "--reports",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Consecutive reports of each client.",
)
@click.option("--claim", type=float, help="Epsilon to test. Default: the declared epsilon of these reports.")
@click.option(
    "--trials",
    type=click.IntRange(min=1),
    help="Number of clients. Default: enough to measure 95 % of the claim, at most 2,000,000.",
)
@click.option("--confidence", type=float, default=0.99, show_default=True, help="Confidence of the lower bound.")
@json_option
def command(
    definitions: Path,
    names: tuple[str, ...],
    reports: int,
    claim: float | None,
    trials: int | None,
    confidence: float,
    *,
    as_json: bool,
) -> None:
    """Measure the privacy of this project's client for the metrics NAMES of the file DEFINITIONS, or all of its metrics.

    Runs many clients with two values and computes a lower bound on epsilon from the best event that separates their reports.

    Exit code 1 if a bound exceeds its claim, so the claim is refuted.

    \b
    Example:
      hubbub audit metrics.toml homepage --reports 7
    """
    from rich.console import Console

    from hubbub.cli.definitions_file import definitions_with
    from hubbub_decoder.audit.audit import audit_metric
    from hubbub_decoder.audit.report import describe, to_dict
    from hubbub_decoder.cli.progress import elapsed_time

    loaded = definitions_with(definitions, names)
    chosen = [loaded[name] for name in names or loaded]
    stderr = Console(stderr=True)
    audits = {}
    with elapsed_time(stderr) as show_stage:
        for metric in chosen:
            done = 0

            def count(trials: int, name: str = metric.name) -> None:
                nonlocal done
                done += trials
                show_stage(f"{name}: {done:,} clients")

            audits[metric.name] = audit_metric(
                metric, reports=reports, claim=claim, trials=trials, confidence=confidence, progress=count
            )
            if not as_json:
                click.echo(describe(metric.name, audits[metric.name]))
    if as_json:
        print_json([{"metric": name, **to_dict(each)} for name, each in audits.items()])
    if any(each.refuted for each in audits.values()):
        raise click.exceptions.Exit(1)
