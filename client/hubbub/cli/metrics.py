"""`hubbub metrics`: check a definitions file, and show what it promises."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click

from hubbub.cli.output import PATH, json_option, print_json
from hubbub.words import counted

_DELTA = 1e-9


@click.group()
def command() -> None:
    """Check and show a file of metric definitions.

    \b
    Example:
      hubbub metrics show metrics.toml
    """


@command.command()
@click.argument("definitions", type=PATH)
@json_option
def check(definitions: Path, *, as_json: bool) -> None:
    """Say whether DEFINITIONS can be collected under, or why not.

    What they permit and nobody would expect is said beside: metrics that have expired, those that a client's default
    Policy refuses or soon silences, and those whose reports anybody can match who has them.

    \b
    Example:
      hubbub metrics check metrics.toml
    """
    from datetime import UTC, datetime

    from hubbub.definitions import load_definitions
    from hubbub.metric import has_expired
    from hubbub.policy import Policy
    from hubbub.privacy.matching import warning_of
    from hubbub.shares import doubts

    loaded = load_definitions(definitions)
    today = datetime.now(UTC).date()
    current = [loaded[name] for name in loaded]
    collected = [metric for metric in current if not has_expired(metric, today)]
    warnings = [
        f"{metric.name}: expired on {metric.expires}: neither clients nor aggregators take reports of it any more"
        for metric in current
        if metric not in collected
    ]
    warnings += (f"under the default Policy: {doubt}" for doubt in doubts(Policy(), collected, today))
    warnings += filter(None, map(warning_of, collected))
    if as_json:
        digests = {metric.name: metric.digest for metric in loaded.versions()}
        print_json({"metrics": digests, "warnings": warnings})
        return
    for each in warnings:
        click.echo(f"warning: {each}", err=True)
    versions = counted(len(list(loaded.versions())), "definition")
    click.echo(f"{definitions}: well formed: {versions}, {counted(len(loaded), 'metric')}")


@command.command()
@click.argument("definitions", type=PATH)
@click.argument("names", nargs=-1)
@click.option(
    "--reports",
    type=click.IntRange(min=1),
    metavar="N",
    help="Also show what a report reveals among so many of a period, to who sees their sums alone, once, when it is over.",
)
@json_option
def show(definitions: Path, names: tuple[str, ...], reports: int | None, *, as_json: bool) -> None:
    """Show each metric's parameters, and what it can reveal.

    \b
    Example:
      hubbub metrics show metrics.toml homepage --reports 1000000
    """
    from hubbub.cli.asked import definitions_with

    loaded = definitions_with(definitions, names)
    shown = [_about(metric, reports) for metric in loaded.versions() if not names or metric.name in names]
    if as_json:
        print_json(shown)
        return
    for about in shown:
        click.echo(_page(about))


def _about(metric: Any, reports: int | None) -> dict[str, Any]:
    from hubbub.privacy import central_epsilon, crowd_told_apart, epsilon, epsilon_forever

    crowd = {}
    if reports is not None:
        of_cohort = max(1, reports // metric.params.num_cohorts)
        crowd = {"epsilon_in_the_crowd": central_epsilon(metric.params, of_cohort, _DELTA), "delta": _DELTA}
        crowd["reports_of_a_cohort"] = of_cohort
    return {
        **metric.to_dict(),
        "p_star": metric.params.p_star,
        "q_star": metric.params.q_star,
        "epsilon_once": epsilon(metric.params),
        "epsilon_forever": epsilon_forever(metric.params),
        "told_apart_by_two_reports": 1.0 if metric.hold == 1 else crowd_told_apart(metric.params),
        **crowd,
    }


def _page(about: dict[str, Any]) -> str:
    forever, memoized = about["epsilon_forever"], about["prob_f"] > 0 and about["hold"] is None
    probabilities = f"p = {about['prob_p']:.6g}, q = {about['prob_q']:.6g}, f = {about['prob_f']:.6g}"
    lines = [
        f"{about['name']}  ({about['kind']}, a {about['period']}, until {about['expires']})",
        f"  {about['description']}  [{about['owner']}]",
        f"  k = {about['num_bits']}, h = {about['num_hashes']}, m = {about['num_cohorts']}, {about['hash_scheme']}; {probabilities}",
        f"  eps = {about['epsilon_once']:.3f} a report, "
        + ("without bound over many" if math.isinf(forever) else f"{forever:.3f} for ever while the value stays"),
        f"  two reports of the same value tell one of {about['told_apart_by_two_reports']:,.3g} people by their permanent noise"
        + ("; that a value changed is not hidden: no hold" if memoized else ""),
        f"  digest {about['digest']}",
    ]
    if "epsilon_in_the_crowd" in about:
        lines.insert(
            -1,
            f"  eps = {about['epsilon_in_the_crowd']:.3g}, delta = {about['delta']:g} for one report among the "
            f"{about['reports_of_a_cohort']:,} of an average cohort, all honest, to who sees their sums alone, once, when the period is over; "
            "never to the operator",
        )
    if about["categories"]:
        lines.insert(3, f"  categories: {', '.join(about['categories'])}")
    return "\n".join(lines)
