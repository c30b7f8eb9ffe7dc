"""`hubbub plan`: choose the parameters of a metric."""

from __future__ import annotations

from typing import Any

import click

from hubbub.cli.output import json_option, print_json


@click.command(short_help="Choose the parameters of a metric.")
@click.option("--epsilon", type=float, required=True, help="Largest epsilon of one report.")
@click.option(
    "--lifetime",
    type=float,
    help="Largest epsilon of all reports of a client. Default: no bound, each report costs epsilon again.",
)
@click.option("--reports", type=int, metavar="N", help="Reports of a period. Default: as many as --share needs.")
@click.option("--share", type=float, help="Smallest share that matters.")
@click.option(
    "--kind",
    type=click.Choice(["string", "categorical", "boolean"]),
    default="string",
    show_default=True,
    help="Kind of the values.",
)
@click.option("--candidates", type=int, metavar="M", help="Number of strings to look for, or of categories.")
@click.option("--category", "categories", multiple=True, help="Name of a category; repeat it. Replaces --candidates.")
@click.option(
    "--periods", type=int, default=1, show_default=True, metavar="T", help="Periods that are decoded together."
)
@click.option(
    "--values",
    type=int,
    default=1,
    show_default=True,
    metavar="V",
    help='Distinct values of a client over its lifetime; "no value" is one.',
)
@click.option(
    "--hold",
    type=int,
    metavar="E",
    help="Length of an epoch in periods: a client keeps its value, and each epoch costs epsilon.",
)
@click.option(
    "--lifetime-periods",
    type=int,
    metavar="L",
    help="Periods that --lifetime must last for, with --hold. Default: --periods.",
)
@click.option("--central", type=float, help="Largest central epsilon of the decoded periods, at delta = 1e-9.")
@click.option("--retained", is_flag=True, help="Individual reports are retained, and decoded instead of their counts.")
@click.option(
    "--period", type=click.Choice(["day", "week", "month"]), default="day", show_default=True, help="Reporting period."
)
@click.option("--name", default="metric", show_default=True, help="Name of the metric.")
@json_option
def command(*, as_json: bool, name: str, categories: tuple[str, ...], candidates: int | None, **wishes: Any) -> None:
    """Choose the parameters of a metric, and print its definition as TOML.

    \b
    Example:
      hubbub plan --epsilon 2 --lifetime 8 --candidates 1000 --reports 1000000 --share 0.005 > metrics.toml
    """
    from datetime import UTC, datetime

    from hubbub_decoder.planning.plan import plan
    from hubbub_decoder.planning.wishes import Wishes

    today = datetime.now(UTC).date()
    number = candidates if candidates is not None else len(categories) or 1
    planned = plan(
        Wishes(candidates=number, **wishes),
        name=name,
        categories=categories or None,
        expires=today.replace(year=today.year + 1, day=1),
    )
    if as_json:
        print_json({"definition": planned.metric.to_dict(), "toml": planned.toml()})
    else:
        click.echo(planned.toml(), nl=False)
