"""`hubbub plan`: choose the parameters of a metric, or show what a definition buys."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hubbub.cli.help_sections import SectionedCommand, section
from hubbub.cli.output import PATH, json_option, print_json, print_toml
from hubbub.errors import ParameterError
from hubbub.metrics.buckets import Buckets, Estimand
from hubbub.metrics.kinds import KINDS, MIN_STRING_BITS, BlockKind, KindWord
from hubbub.metrics.params import MAX_BITS
from hubbub.metrics.periods import PeriodKind
from hubbub_decoder.cli.shared import Share, ShowStage, elapsed_time

if TYPE_CHECKING:
    from hubbub_decoder.planning.description import Description
    from hubbub_decoder.planning.plan import Plan

_DEFAULT_REPORTS = 1_000_000
_COUNT = click.IntRange(min=1)
_EPSILON = click.FloatRange(min=0, min_open=True)
_KINDS = [str(word) for word in KindWord if issubclass(KINDS[word], BlockKind)]
"""Kinds that can be planned: each part of a joint metric is planned on its own."""
_OF_DESCRIPTION = ("num_reports", "share", "num_candidates", "periods", "retained")
_FIELD = re.compile(r"`(\w+)(?: = ([^`]+))?`")
"""Field of `Wishes`, with its value or without, in the text of an error."""


def _parse_days(_context: click.Context, _parameter: click.Parameter, text: str) -> int:
    found = re.fullmatch(r"([1-9]\d{0,4})d", text)
    if found is None:
        raise click.BadParameter(f"must be a number of days from 1d to 99999d, such as 30d, got {text!r}.")
    return int(found[1])


def _parse_sizes(
    _context: click.Context, _parameter: click.Parameter, text: str | None
) -> int | dict[int, float] | None:
    """Parse the number of items of clients: one number, or the part of the clients with each."""
    if text is None:
        return None
    if re.fullmatch(r"\d{1,5}", text):
        return int(text)
    found = [re.fullmatch(r"(\d{1,5})=(\d{1,3}(?:\.\d+)?)%", pair.strip()) for pair in text.split(",")]
    pairs = [(int(pair[1]), float(pair[2]) / 100) for pair in found if pair is not None]
    if len(pairs) < len(found):
        raise click.BadParameter(
            "must be the largest number of items of a client, such as 8, or the clients with each number, such as "
            f"2=30%,5=50%,20=20%, got {text!r}."
        )
    sizes = dict(pairs)
    if len(sizes) < len(pairs):
        repeated = next(size for size in sizes if sum(number == size for number, _ in pairs) > 1)
        raise click.BadParameter(f"names the clients with {repeated} items twice, got {text!r}. Add up their shares.")
    return sizes


_values_option = partial(click.option, cls=section("Values"))
_periods_option = partial(click.option, cls=section("Several periods"))
_report_option = partial(click.option, cls=section("Reports"))
_definition_option = partial(click.option, cls=section("Definition"))


@click.command(cls=SectionedCommand, short_help="Choose the parameters of a metric.")
@click.argument("definitions", type=PATH, required=False)
@click.argument("metric", required=False)
@click.option(
    "--epsilon", metavar="EPSILON", type=_EPSILON, help="Largest epsilon of one report. Required to choose parameters."
)
@click.option(
    "--longitudinal",
    metavar="EPSILON",
    type=_EPSILON,
    help="Largest longitudinal epsilon: of any number of reports of the distinct values, or of the epochs with --hold. Default: none, each report costs --epsilon again.",
)
@click.option(
    "--reports",
    "num_reports",
    type=_COUNT,
    metavar="N",
    help="Number of reports of a period. Default: as many as --share needs; of a definition without it, 1,000,000.",
)
@click.option(
    "--share",
    metavar="SHARE",
    type=Share(may_be_none=False),
    help="Smallest share that matters, such as 1%. With --reports: also the probability that they detect it.",
)
@_values_option("--kind", type=click.Choice(_KINDS), help="Kind of the values. Default: string.")
@_values_option(
    "--num-candidates",
    "num_candidates",
    type=_COUNT,
    metavar="M",
    help="Number of strings to look for, all taken for present, of categories, of buckets, or of items.",
)
@_values_option(
    "--category",
    multiple=True,
    metavar="NAME",
    help="Name of a category, or of an item of a set; repeat it. Replaces --num-candidates.",
)
@_values_option(
    "--candidates",
    "candidates_path",
    type=PATH,
    help="Strings to look for: a file of the names of categories, items or strings, one a line, as in `decode`. Replaces --num-candidates and --category.",
)
@_values_option(
    "--own",
    metavar="N",
    callback=_parse_sizes,
    help="Largest number of items of a client, for a set, or the clients with each number, such as 2=30%,5=50%,20=20%: reports may then stand for whole sets.",
)
@_values_option(
    "--edges",
    metavar="E0,E1,...",
    help="Edges of the buckets of an ordinal metric, such as 0,10,20,50. Replaces --num-candidates.",
)
@_values_option(
    "--estimate",
    type=click.Choice([*map(str, Estimand)]),
    help="Purpose of an ordinal metric; mean: one bit, and --edges has its smallest and largest number. Default: distribution.",
)
@_values_option(
    "--longest", type=_COUNT, metavar="L", help="Find strings of up to L symbols without a list (discover)."
)
@_values_option("--alphabet", metavar="CHARACTERS", help="Characters of the strings of --longest. Default: bytes.")
@_periods_option("--periods", type=_COUNT, metavar="N", help="Number of periods that are decoded together. Default: 1.")
@_periods_option(
    "--values-per-client",
    "values",
    type=_COUNT,
    metavar="V",
    help='Distinct values of a client, "no value" among them. Default: 1. With --longitudinal-periods, --hold is chosen.',
)
@_periods_option(
    "--hold",
    type=_COUNT,
    metavar="PERIODS",
    help="Length of an epoch, in which a client keeps its value. Each epoch costs epsilon.",
)
@_periods_option(
    "--longitudinal-periods",
    type=_COUNT,
    metavar="N",
    help="Number of periods whose epochs --longitudinal bounds, with --hold or several --values-per-client. Default: that of --periods.",
)
@_periods_option(
    "--lifetime-epsilon",
    metavar="EPSILON",
    type=_EPSILON,
    help="Largest epsilon of all reports of a client, under all its secrets: lifetime_epsilon of the definition.",
)
@_periods_option(
    "--central",
    metavar="EPSILON",
    type=_EPSILON,
    help="Largest central epsilon of the decoded periods, at delta = 1e-9.",
)
@_report_option(
    "--difference",
    metavar="DIFFERENCE",
    type=Share(may_be_none=False),
    help="Smallest difference between two groups that matters, such as 2%, as in an A/B test: how many reports of each show it. With --share, from this share on.",
)
@_report_option("--retained", is_flag=True, default=None, help="Decode retained reports instead of their counts.")
@_report_option(
    "--bits",
    type=click.IntRange(MIN_STRING_BITS, MAX_BITS),
    metavar="K",
    help="Largest number of bits of a report of strings. Default: 256; with --longest, 1024.",
)
@_report_option(
    "--reporting-period", "period", type=click.Choice([*map(str, PeriodKind)]), help="Length of a period. Default: day."
)
@_definition_option("--name", default="metric", show_default=True, help="Name of the metric.")
@_definition_option(
    "--description", metavar="TEXT", help="What the planned metric collects, for its users. Default: a placeholder."
)
@_definition_option(
    "--owner", metavar="ADDRESS", help="Person or team that answers questions about it. Default: a placeholder."
)
@click.option(
    "--compare", nargs=2, type=PATH, metavar="A B", help="Compare the definitions of two files, side by side."
)
@_periods_option(
    "--unit",
    "num_days",
    metavar="DAYS",
    default="30d",
    show_default=True,
    callback=_parse_days,
    help="Days in a row whose reports have the epsilon of the first figure.",
)
@click.option("--explain", is_flag=True, help="Show all figures, their curves, and the reasons of the choice.")
@click.option("--html", "html_path", metavar="FILE", type=PATH, help="HTML page to write: the figures and curves.")
@json_option
def command(
    *,
    definitions: Path | None,
    metric: str | None,
    compare: tuple[Path, Path] | None,
    explain: bool,
    html_path: Path | None,
    as_json: bool,
    name: str,
    num_days: int,
    options: Mapping[str, Any],
) -> None:
    """Choose the parameters of a metric, or show what the METRIC of a file DEFINITIONS buys.

    Prints the chosen definition as TOML on stdout, and what it buys on stderr, in six figures. All metrics of a file are shown
    without METRIC. --explain shows all figures, with their curves and the reasons of the choice.

    \b
    Examples:
      hubbub plan --epsilon 2 --longitudinal 8 --num-candidates 1000 --reports 1000000 --share 0.005 > metrics.toml
      hubbub plan --epsilon 3 --longest 12 --alphabet abcdefghijklmnopqrstuvwxyz --reports 1000000
      hubbub plan metrics.toml homepage --reports 100000 --html homepage.html
      hubbub plan metrics.toml homepage --share 0.01
      hubbub plan metrics.toml homepage --share 0.01 --reports 50000
      hubbub plan metrics.toml theme --share 30% --difference 2%
      hubbub plan --compare old.toml new.toml
    """
    from rich.console import Console

    from hubbub_decoder.data.output_files import PAGE, check_table_path
    from hubbub_decoder.documents.finding import Severity
    from hubbub_decoder.planning.tables import DescriptionTables

    given = {option: value for option, value in options.items() if value not in (None, ())}
    difference = given.pop("difference", None)
    if html_path is not None:
        check_table_path(html_path, (PAGE,))
    stdout, stderr = (Console(stderr=stderr, highlight=False) for stderr in (False, True))
    if compare or definitions is not None:
        with _errors_in_options():
            described = _describe(compare, definitions, metric, given)
            found = [replace(one, num_days=num_days, difference=difference) for one in described]
        if as_json:
            print_json([description.to_dict() for description in found])
        else:
            stdout.print(DescriptionTables(found, explain=explain))
        _write_page(html_path, found)
        return
    with elapsed_time(stderr) as show_stage, _errors_in_options():
        planned = _plan(name, given, show_stage)
        asked = replace(planned.description, num_days=num_days, difference=difference)
        planned = replace(planned, description=asked)
    if as_json:
        print_json(planned.to_dict())
    else:
        print_toml(planned.toml())
        stderr.print(DescriptionTables([planned.description], explain=explain))
        for finding in planned.findings:
            if explain or finding.severity is not Severity.NOTE:
                style = "" if finding.severity is Severity.NOTE else "yellow"
                stderr.print(f"\n{finding.line}", style=style)
    _write_page(html_path, [planned.description], planned.toml(), planned.findings)


@contextmanager
def _errors_in_options() -> Iterator[None]:
    """Name the option in place of each field of `Wishes` in an error: "`hold = 3`" becomes "--hold 3"."""
    from hubbub_decoder.errors import PlanError

    try:
        yield
    except PlanError as problem:
        text = str(problem)
    except ParameterError as problem:
        text = re.sub(r"^\w+", r"`\g<0>`", str(problem))  # its rule begins with the field
    else:
        return
    options = {parameter.name: parameter.opts[0] for parameter in click.get_current_context().command.params}

    def spelled(found: re.Match[str]) -> str:
        field, value = found.groups()
        option = options.get(field, field)
        return f"{option} {value}" if value else option

    raise click.ClickException(_FIELD.sub(spelled, text))


def _describe(
    compare: tuple[Path, Path] | None, definitions: Path | None, metric: str | None, given: dict[str, Any]
) -> list[Description]:
    """Describe the metrics of one file, or of two files. Raises UsageError for options that only choose parameters."""
    from hubbub.cli.definitions_file import definitions_with
    from hubbub_decoder.planning.description import describe

    if compare and definitions is not None:
        raise click.UsageError("--compare and DEFINITIONS exclude each other. Pass one of them.")
    if other := [option for option in given if option not in _OF_DESCRIPTION]:
        names = {parameter.name: parameter.opts[0] for parameter in click.get_current_context().command.params}
        raise click.UsageError(
            f"{names[other[0]]} chooses parameters, and a definition has them. Leave it out, or leave out the file."
        )
    about = given if "share" in given else {"num_reports": _DEFAULT_REPORTS} | given
    found = []
    for path in compare or (definitions,):
        if path is not None:
            for name, planned in definitions_with(path, [metric] if metric else []).items():
                if metric in (None, name):
                    label = f"{name}, {path}" if compare else name
                    found.append(replace(describe(planned, **about), label=label))
    return found


def _plan(name: str, given: dict[str, Any], show_stage: ShowStage) -> Plan:
    """Plan the metric of these options. Raises UsageError without --epsilon, and for edges that are no numbers."""
    from datetime import UTC, datetime

    from hubbub_decoder.data.candidates import read_candidates
    from hubbub_decoder.planning.plan import plan
    from hubbub_decoder.planning.wishes import Wishes

    if "epsilon" not in given:
        raise click.UsageError(
            "Pass --epsilon to choose parameters, a definitions file to describe it, or --compare with two files."
        )
    of_plan = {option: given.pop(option) for option in ("description", "owner") if option in given}
    if "candidates_path" in given:
        names = read_candidates(given.pop("candidates_path"))
        lists_names = given.get("kind", KindWord.STRING) != KindWord.STRING
        given |= {"category": names} if lists_names else {"num_candidates": len(names)}
    categories, edges = (given.pop(option, None) for option in ("category", "edges"))
    buckets = None if edges is None else _parse_buckets(edges, given.get("estimate"))
    if categories is not None:
        given = {"kind": KindWord.CATEGORICAL, "num_candidates": len(categories)} | given
    if buckets is not None:
        given = {"kind": KindWord.ORDINAL, "num_candidates": len(buckets)} | given
    if "longest" in given:
        given = {"bits": MAX_BITS} | given
    today = datetime.now(UTC).date()
    show_stage("comparing parameters")
    expires = today.replace(year=today.year + 1, day=1)
    return plan(
        Wishes(**given),
        name=name,
        categories=categories,
        edges=buckets.edges if buckets else None,
        expires=expires,
        **of_plan,
    )


def _parse_buckets(text: str, estimate: str | None) -> Buckets:
    """Buckets with these edges; raises UsageError for anything but numbers, and DefinitionError for edges that do not increase."""
    try:
        edges = tuple(map(float, text.split(",")))
    except ValueError:
        raise click.UsageError(
            f"--edges must be numbers separated by commas, got {text!r}. Pass 0,10,20, for example."
        ) from None
    is_mean = estimate == Estimand.MEAN
    return Buckets(edges, default=edges[0], estimate=Estimand.MEAN) if is_mean else Buckets(edges)


def _write_page(path: Path | None, descriptions: list[Description], *about: Any) -> None:
    """Write the HTML page, if there is a path."""
    if path is None:
        return
    from hubbub_decoder.data.output_files import atomic_write
    from hubbub_decoder.planning.page import render_page

    page = render_page(descriptions, *about).encode()
    with atomic_write(path) as file:
        file.write(page)
    click.echo(f"wrote {path}", err=True)
