"""`hubbub audit`: measure the privacy of a client."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hubbub.cli.output import PATH, json_option, print_json

if TYPE_CHECKING:
    from hubbub.encoding.bloom import Value
    from hubbub.metrics.metric import Metric
    from hubbub_decoder.cli.shared import ShowStage


@click.command(short_help="Measure the privacy of a client.")
@click.argument("definitions", type=PATH, required=False)
@click.argument("names", nargs=-1)
@click.option(
    "--client",
    "function",
    metavar="MODULE:FUNCTION",
    help="Python function that makes reports. Default: the client of this project.",
)
@click.option("--command", "program", metavar="COMMAND", help="Command that prints reports.")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=600.0, show_default=True,
    help="Seconds of one call of --command.",
)  # fmt: skip
@click.option(
    "--reports",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Consecutive reports of each client.",
)
@click.option(
    "--hold", type=click.IntRange(min=1),
    help="Reports of one permanent response, for a client without DEFINITIONS. Default: all reports.",
)  # fmt: skip
@click.option(
    "--value", "values", multiple=True, metavar="JSON",
    help='Value to compare, as JSON: "text", true, or null for no value. Repeat for more. Default: values that set every bit.',
)  # fmt: skip
@click.option("--claim", type=float, help="Epsilon to test. Default: the declared epsilon of these reports.")
@click.option(
    "--trials",
    type=click.IntRange(min=1),
    help="Number of clients. Default: enough to measure 95 % of the claim, at most 2,000,000; 200,000 without DEFINITIONS.",
)
@click.option("--confidence", type=float, default=0.99, show_default=True, help="Confidence of each lower bound.")
@click.option("--seed", type=click.IntRange(min=0), help="Seed of the seeds that --client and --command receive.")
@click.option("--plot", type=PATH, help="Plot of the trade-off curve of one metric (.svg, .png or .pdf).")
@json_option
def command(
    definitions: Path | None,
    names: tuple[str, ...],
    function: str | None,
    program: str | None,
    timeout: float,
    reports: int,
    hold: int | None,
    values: tuple[str, ...],
    claim: float | None,
    trials: int | None,
    confidence: float,
    seed: int | None,
    plot: Path | None,
    *,
    as_json: bool,
) -> None:
    """Measure the privacy of a client for the metrics NAMES of the file DEFINITIONS, or all of its metrics.

    Runs many clients with two values, and computes a lower bound on epsilon from the best event that separates their reports.
    Then tests whether reports of different clients repeat. Without DEFINITIONS, a client is a black box: pass --claim and two or more --value.

    Exit code 1 if a claim is refuted: a bound exceeds it, or reports repeat.

    \b
    Examples:
      hubbub audit metrics.toml homepage --reports 7
      hubbub audit metrics.toml homepage --client mypackage.clients:encode
      hubbub audit --command ./client --claim 1.1 --value '"a"' --value '"b"'
    """
    from rich.console import Console

    from hubbub.cli.definitions_file import definitions_with
    from hubbub_decoder.audit.report import describe, to_dict
    from hubbub_decoder.audit.trade_off import write_plot
    from hubbub_decoder.cli.shared import elapsed_time
    from hubbub_decoder.data.output_files import check_plot_path

    if function is not None and program is not None:
        raise click.UsageError("Pass either --client or --command.")
    if definitions is None and (claim is None or len(values) < 2 or (function or program) is None):
        raise click.UsageError("Pass DEFINITIONS, or --client or --command with --claim and two or more --value.")
    if definitions is not None and hold is not None:
        raise click.UsageError("Leave out --hold: the definition has it.")
    metrics: list[Metric | None] = [None]
    if definitions is not None:
        loaded = definitions_with(definitions, names)
        metrics = [loaded[name] for name in names or loaded]
    if plot is not None:
        check_plot_path(plot)
        if len(metrics) > 1:
            raise click.UsageError("Name one metric with --plot.")
    parsed = [_parse_value(text) for text in values] or None
    audited = _client(function, program, timeout)
    results, refuted = [], False
    with elapsed_time(Console(stderr=True)) as show_stage:
        for index, metric in enumerate(metrics):
            name = metric.name if metric is not None else function or program or ""
            audit, replays = _run(
                metric, audited, parsed, claim, _stages_of(show_stage, name, index, len(metrics)),
                hold=hold, reports=reports, trials=trials, confidence=confidence, seed=seed,
            )  # fmt: skip
            refuted |= audit.refuted or any(test.refuted for test in replays)
            results.append({"metric": metric.name if metric is not None else None, **to_dict(audit, replays)})
            if not as_json:
                click.echo(describe(name, audit, replays))
            if plot is not None:
                write_plot(audit, name, plot)
    if as_json:
        print_json(results)
    if refuted:
        raise click.exceptions.Exit(1)


def _client(function: str | None, program: str | None, timeout: float) -> Any:
    """External client, or None for the client of this project."""
    import shlex

    from hubbub_decoder.audit.external_clients import CommandClient, FunctionClient

    if function is not None:
        return FunctionClient.load(function)
    return None if program is None else CommandClient(shlex.split(program), timeout)


def _stages_of(show_stage: ShowStage, name: str, index: int, number: int) -> ShowStage:
    """Return a function that shows the stages of one of several metrics, with the share of the work of all of them."""

    def show(stage: str, share: float | None = None) -> None:
        show_stage(f"{name}: {stage}", share if share is None and number == 1 else (index + (share or 0)) / number)

    return show


def _run(
    metric: Metric | None,
    client: Any,
    values: list[Value] | None,
    claim: float | None,
    show_stage: ShowStage,
    *,
    hold: int | None,
    reports: int,
    **options: Any,
) -> tuple[Any, Any]:
    """Bound on epsilon, then the replay tests, of one metric or of a black box."""
    from hubbub_decoder.audit.audit import audit_client, audit_metric
    from hubbub_decoder.audit.replay import replay_tests_of

    done = 0

    def count(trials: int) -> None:
        nonlocal done
        done += trials
        trials_wanted = options.get("trials")
        show_stage(f"{done:,} clients", min(done / trials_wanted, 1.0) if trials_wanted else None)

    if metric is not None:
        audit = audit_metric(
            metric, client=client, reports=reports, claim=claim, values=values, progress=count, **options
        )
    else:
        options = {name: option for name, option in options.items() if option is not None}
        audit = audit_client(client, values or [], claim or 0.0, reports=reports, hold=hold, progress=count, **options)
    show_stage("replay tests")
    return audit, replay_tests_of(client, metric, audit.values[0], audit.schedule, options.get("seed"))


def _parse_value(text: str) -> Value:
    import json

    try:
        value = json.loads(text)
    except ValueError:
        value = [text]
    if value is not None and not isinstance(value, str | bool):
        raise click.UsageError(
            f"--value must be a JSON string, true, false or null, got {text}. Quote a text twice: '\"text\"'."
        )
    return value
