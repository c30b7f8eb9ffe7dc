"""`hubbub audit`: measure the privacy of a client."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hubbub.cli.output import PATH, Program, json_option, print_json
from hubbub_decoder.cli.shared import confidence_option, plot_option, seed_option

_REFUTED = 3
"""Exit code of a refutation. A failed program has 1 and a wrong argument 2, so neither is taken for a refutation."""

if TYPE_CHECKING:
    from hubbub.metrics.metric import Metric
    from hubbub_decoder.audit.clients import AuditedValue
    from hubbub_decoder.audit.evidence import NoiseTest
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
@click.option(
    "--grey-box",
    metavar="MODULE:FUNCTION",
    help="Python function that makes one report from a secret and a source of random bytes: it also runs with several values on the same coins.",
)
@click.option(
    "--command", "program", type=Program(), metavar="COMMAND", help="Command that answers for the client: its adapter."
)
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    default=600.0,
    show_default=True,
    help="Longest duration of one call of --command.",
)
@click.option(
    "--reports-per-client",
    "reports",
    metavar="N",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Consecutive reports of each client. With 1, a quarter of the clients sends seven.",
)
@click.option(
    "--hold",
    metavar="PERIODS",
    type=click.IntRange(min=1),
    help="Length of an epoch, for a client without DEFINITIONS; one report in each period. Default: all reports.",
)
@click.option(
    "--value",
    "values",
    multiple=True,
    metavar="JSON",
    help='Value to compare, as JSON: "text", true, 3, null for no value, or an array of the values of the parts. Repeat for more. '
    "Default: values that set every bit.",
)
@click.option(
    "--claim", metavar="EPSILON", type=float, help="Epsilon to test. Default: the declared epsilon of these reports."
)
@click.option(
    "--trials",
    metavar="N",
    type=click.IntRange(min=1),
    help="Largest number of clients. Default: enough to measure 95 % of the claim, at most 2,000,000; 200,000 without DEFINITIONS.",
)
@confidence_option("lower bounds", default=0.99)
@seed_option("--client receives seeds that are drawn from it, and --command secrets")
@plot_option("the trade-off curve of one metric")
@json_option
def command(
    definitions: Path | None,
    names: tuple[str, ...],
    function: str | None,
    grey_box: str | None,
    program: tuple[str, ...] | None,
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

    Runs many clients with several values, one report and seven reports each, and compares their reports with the declared law.
    Computes a lower bound on epsilon from the event that separates two values best.
    Then tests whether reports of different clients repeat, and whether the noise of values, epochs, parts and metrics is independent.
    Without DEFINITIONS, a Python function is a black box: pass --client, --claim and two or more --value.

    \b
    Exit codes:
      0  no test refutes a client
      3  a client is refuted: a bound exceeds its claim, or its reports do not have the declared law
      1  a metric could not be audited (the client failed, for example), and no claim is refuted
      2  the arguments are wrong, and nothing was audited

    \b
    Examples:
      hubbub audit metrics.toml homepage --reports-per-client 7
      hubbub audit metrics.toml homepage --client mypackage.clients:encode
      hubbub audit metrics.toml homepage --grey-box mypackage.clients:report
      hubbub audit metrics.toml homepage --command "python examples/conformance_adapter.py"
    """
    from rich.console import Console

    from hubbub.cli.definitions_file import definitions_with
    from hubbub.errors import HubbubError
    from hubbub_decoder.audit.evidence import LEVEL
    from hubbub_decoder.cli.shared import elapsed_time
    from hubbub_decoder.data.output_files import check_plot_path

    if sum(given is not None for given in (function, program, grey_box)) > 1:
        raise click.UsageError("Pass either --client, --grey-box or --command.")
    if definitions is None and (claim is None or len(values) < 2 or function is None):
        raise click.UsageError("Pass DEFINITIONS, or --client with --claim and two or more --value.")
    if definitions is not None and hold is not None:
        raise click.UsageError("Leave out --hold: the definition has it.")
    metrics: list[Metric] = []
    if definitions is not None:
        loaded = definitions_with(definitions, names)
        metrics = [loaded[name] for name in names or loaded]
    if plot is not None:
        check_plot_path(plot)
        if len(metrics) > 1:
            raise click.UsageError("Name one metric with --plot.")
    parsed = [_parse_value(text) for text in values] or None
    audited = _client(function, grey_box, program, metrics, timeout)
    results: list[dict[str, Any]] = []
    level = LEVEL / (1 if len(metrics) < 2 else len(metrics) + 1)

    def add(name: str, run: Callable[[], tuple[dict[str, Any], str]]) -> None:
        try:
            result, text = run()
        except HubbubError as problem:
            results.append({"metric": name, "error": str(problem)})
            click.echo(f"Error: {name} could not be audited: {problem}", err=True)
            return
        results.append(result)
        if not as_json:
            click.echo(text)

    with elapsed_time(Console(stderr=True)) as show_stage:
        for index, metric in enumerate(metrics or [None]):
            name = metric.name if metric is not None else str(function)
            stages = _stages_of(show_stage, name, index, max(1, len(metrics)))
            run = partial(
                _run, name, metric, _selected(audited, metrics, index), parsed, claim, stages, plot, hold, reports
            )
            add(name, partial(run, trials=trials, confidence=confidence, seed=seed, level=level))
        if len(metrics) > 1 and not any("error" in result for result in results):
            clients = max(result["trials"] for result in results) // 4
            show_stage("noise of all metrics")
            add(
                "several metrics",
                partial(_run_together, _selected(audited, metrics, None), metrics, clients, seed, level),
            )
    if as_json:
        print_json(results)
    if any(result.get("refuted") for result in results):
        raise click.exceptions.Exit(_REFUTED)
    if any("error" in result for result in results):
        raise click.exceptions.Exit(1)


def _client(
    function: str | None,
    grey_box: str | None,
    program: tuple[str, ...] | None,
    metrics: list[Metric],
    timeout: float,
) -> Any:
    """External client, or None for the client of this project."""
    from hubbub_decoder.audit.external_clients import AdapterClient, FunctionClient
    from hubbub_decoder.audit.grey_box import ReportFunctionClient

    if grey_box is not None:
        report: Any = FunctionClient.load(grey_box).function
        return ReportFunctionClient(report, tuple(metrics))
    if function is not None:
        return FunctionClient.load(function)
    return None if program is None else AdapterClient(program, tuple(metrics), timeout)


def _selected(client: Any, metrics: list[Metric], number: int | None) -> Any:
    """External client of several metrics, of which one is audited (None: all together)."""
    from dataclasses import replace

    from hubbub_decoder.audit.external_clients import AdapterClient, Selection
    from hubbub_decoder.audit.grey_box import ReportFunctionClient

    if client is None or len(metrics) < 2:
        return client
    if isinstance(client, AdapterClient | ReportFunctionClient):
        return client if number is None else replace(client, metrics=(metrics[number],))
    ends = [sum(metric.num_bits for metric in metrics[:at]) for at in range(len(metrics) + 1)]
    of_bits = (0, ends[-1]) if number is None else (ends[number], ends[number + 1])
    return replace(client, selection=Selection(len(metrics), number, of_bits))


def _stages_of(show_stage: ShowStage, name: str, index: int, number: int) -> ShowStage:
    """Return a function that shows the stages of one of several metrics, with the share of the work of all of them."""

    def show(stage: str, share: float | None = None) -> None:
        show_stage(f"{name}: {stage}", share if share is None and number == 1 else (index + (share or 0)) / number)

    return show


def _run(
    name: str,
    metric: Metric | None,
    client: Any,
    values: list[AuditedValue] | None,
    claim: float | None,
    show_stage: ShowStage,
    plot: Path | None,
    hold: int | None,
    reports: int,
    trials: int | None,
    confidence: float,
    seed: int | None,
    level: float,
) -> tuple[dict[str, Any], str]:
    """Bound on epsilon, then the tests of the noise, of one metric or of a black box: as JSON values and in words."""
    from dataclasses import replace

    from hubbub_decoder.audit.audit import DEFAULT_TRIALS, audit_client, audit_metric
    from hubbub_decoder.audit.independence import independence_tests
    from hubbub_decoder.audit.replay import replay_tests_of
    from hubbub_decoder.audit.report import describe, to_dict, write_plot
    from hubbub_decoder.kinds.operations import operations_of

    if metric is not None:
        audit = audit_metric(
            metric,
            client=client,
            num_reports=reports,
            claim=claim,
            trials=trials,
            confidence=confidence,
            seed=seed,
            values=values,
            progress=show_stage,
        )
    else:
        audit = audit_client(
            client,
            values or [],
            claim or 0.0,
            num_reports=reports,
            hold=hold,
            trials=trials or DEFAULT_TRIALS,
            confidence=confidence,
            seed=seed,
            progress=show_stage,
        )
    show_stage("tests of the noise")
    tests = replay_tests_of(client, metric, audit.values[0], audit.schedule, seed)
    if metric is not None:
        tests += independence_tests(client, metric, values, audit.trials // 4, seed)
        tests += _grey_box_tests(client, metric, values or operations_of(metric).audited_values(), seed)
    audit = replace(audit, tests=tuple(replace(test, level=level) for test in audit.tests))
    tests = [replace(test, level=level) for test in tests]
    if plot is not None:
        write_plot(audit, name, plot)
    return {"metric": None if metric is None else name, **to_dict(audit, tests)}, describe(name, audit, tests)


def _grey_box_tests(client: Any, metric: Metric, values: list[AuditedValue], seed: int | None) -> list[NoiseTest]:
    """Grey-box test of the client of this project, and of a function that makes one report."""
    from hubbub_decoder.audit.grey_box import RUNS, ReportFunctionClient, encoder_client, grey_box_test

    if client is None:
        return [grey_box_test(encoder_client, metric, values, runs=RUNS // 10, seed=seed)]
    return (
        [grey_box_test(client.function, metric, values, seed=seed)] if isinstance(client, ReportFunctionClient) else []
    )


def _run_together(
    client: Any, metrics: list[Metric], clients: int, seed: int | None, level: float
) -> tuple[dict[str, Any], str]:
    """Tests of all metrics of one client together: as JSON values and in words."""
    from dataclasses import asdict, replace

    from hubbub_decoder.audit.independence import compare_metrics

    names = [metric.name for metric in metrics]
    tests = [replace(test, level=level) for test in compare_metrics(client, metrics, clients, seed)]
    shown = [{**asdict(test), "refuted": test.refuted} for test in tests]
    result = {"metrics": names, "refuted": any(test.refuted for test in tests), "noise_tests": shown}
    return result, "\n".join(f"{', '.join(names)}: {test.name}: {test.finding}" for test in tests)


def _parse_value(text: str) -> AuditedValue:
    import json

    from hubbub_decoder.audit.external_clients import value_of_json

    try:
        value = json.loads(text)
    except ValueError:
        value = {}
    if isinstance(value, dict):
        raise click.UsageError(
            f"--value must be JSON: a string, a number, true, false, null, or an array of the parts' values, got {text}. "
            "Quote a text twice: '\"text\"'."
        )
    return value_of_json(value)
