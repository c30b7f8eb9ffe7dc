"""`hubbub metrics`: validate a definitions file, compare two, show metrics with their epsilon, and write pages or a certificate of them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hubbub.cli.output import PATH, json_option, print_json
from hubbub.text import escape_control_characters, format_count

if TYPE_CHECKING:
    from hubbub.metrics.changes import VersionChange
    from hubbub.metrics.metric import Metric

_DELTA = 1e-9


def _reject_nan(context: click.Context, option: click.Parameter, number: float | None) -> float | None:
    """Raise BadParameter for nan, which is in every range of click, and which no epsilon exceeds."""
    if number is not None and math.isnan(number):
        raise click.BadParameter("nan is not a number: pass a number above 0.", context, option)
    return number


@click.group()
def command() -> None:
    """Check, compare, show, catalogue or certify definitions files.

    \b
    Example:
      hubbub metrics show metrics.toml
    """


@command.command()
@click.argument("definitions", type=PATH)
@click.option(
    "--max-epsilon",
    type=click.FloatRange(min=0, min_open=True),
    metavar="EPSILON",
    callback=_reject_nan,
    help="Largest epsilon that a value, an epoch or a report without permanent noise may cost. A metric above it is an error.",
)
@json_option
def check(definitions: Path, max_epsilon: float | None, *, as_json: bool) -> None:
    """Check the definitions file DEFINITIONS.

    Exit code 1 if the file is invalid, if a description, owner or purpose is still a placeholder, if no client reports a metric under the
    default Policy, or if a metric is above --max-epsilon. Also warns about expired metrics, metrics that soon exhaust the default Policy,
    metrics with reports that can be linked to one client, definitions that perhaps do not mean what they say, an expiry beyond a year, and
    missing reviews.

    \b
    Example:
      hubbub metrics check metrics.toml --max-epsilon 5
    """
    from datetime import UTC, datetime

    from hubbub.cli.definition_lint import (
        cap_problems,
        limit_problems,
        name_warnings,
        placeholder_problems,
        registry_warnings,
    )
    from hubbub.metrics.definitions import load_definitions
    from hubbub.metrics.metric import has_expired
    from hubbub.privacy.allocation import policy_problems, policy_warnings
    from hubbub.privacy.linkability import group_warning, linkability_warning
    from hubbub.privacy.policy import Policy

    loaded = load_definitions(definitions)
    today = datetime.now(UTC).date()
    current = [loaded[name] for name in loaded]
    collected = [metric for metric in current if not has_expired(metric, today)]
    warnings = [
        f"{metric.name}: expired on {metric.expires}: clients create no reports of it, and aggregators refuse them"
        for metric in current
        if metric not in collected
    ]
    warnings += (f"under the default Policy: {text}" for text in policy_warnings(Policy(), collected, today))
    warnings += filter(None, map(linkability_warning, collected))
    warnings += filter(None, map(group_warning, collected))
    warnings += (f"{metric.name}: {text}" for metric in collected for text in metric.kind.warnings())
    warnings += [*name_warnings(collected), *registry_warnings(collected, today)]
    accepted = [metric for metric in loaded.versions() if not has_expired(metric, today)]
    problems = [*placeholder_problems(accepted), *limit_problems(accepted)]
    problems += [f"under the default Policy: {text}" for text in policy_problems(Policy(), collected, today)]
    problems += [] if max_epsilon is None else cap_problems(accepted, max_epsilon)
    if as_json:
        versions = [
            {"name": metric.name, "digest": metric.digest, "current": metric in current} for metric in loaded.versions()
        ]
        print_json({"metrics": versions, "warnings": warnings, "problems": problems})
        raise SystemExit(bool(problems))
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    _exit_with(problems)
    number = format_count(len(list(loaded.versions())), "definition")
    click.echo(f"{definitions}: valid: {number}, {format_count(len(loaded), 'metric')}")


@command.command()
def schema() -> None:
    """Print the JSON Schema of a definitions file, for editors.

    An editor that knows it completes fields, shows what they mean, and marks mistakes. See "Writing metrics".

    \b
    Example:
      hubbub metrics schema > metrics.schema.json
    """
    from hubbub.metrics.json_schema import definitions_schema

    print_json(definitions_schema())


@command.command()
@click.argument("old", type=PATH)
@click.argument("new", type=PATH)
@json_option
def diff(old: Path, new: Path, *, as_json: bool) -> None:
    """Compare the definitions files OLD and NEW.

    Shows added, removed and changed metrics, with their epsilon before and after. Warns if clients that have reported the old version of a
    metric have no budget left for the new one. Exit code 1 if the meaning of a metric changes without a new version, or a reviewed metric
    changes without a new review.

    \b
    Example:
      git show main:metrics.toml > old.toml
      hubbub metrics diff old.toml metrics.toml
    """
    from datetime import UTC, datetime

    from hubbub.metrics.changes import compare_definitions
    from hubbub.metrics.definitions import load_definitions
    from hubbub.privacy.allocation import version_warning
    from hubbub.privacy.policy import Policy

    today = datetime.now(UTC).date()
    changes = compare_definitions(load_definitions(old), load_definitions(new))
    problems = [problem for change in changes for problem in change.problems()]
    pairs = ((change.before, change.after) for change in changes if change.before and change.after)
    found = (version_warning(Policy(), *pair, today) for pair in pairs if pair[0].digest != pair[1].digest)
    warnings = [f"under the default Policy: {warning}" for warning in found if warning is not None]
    if as_json:
        print_json({"changes": list(map(_change_dict, changes)), "warnings": warnings, "problems": problems})
        raise SystemExit(bool(problems))
    for change in changes:
        click.echo("\n".join(_change_lines(change)))
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    _exit_with(problems)


def _exit_with(problems: list[str]) -> None:
    """Print problems as errors, and exit with code 1 if there is one."""
    for problem in problems:
        click.echo(f"Error: {problem}", err=True)
    if problems:
        raise SystemExit(1)


def _change_dict(change: VersionChange) -> dict[str, Any]:
    from hubbub.privacy.lifetime import privacy_figures
    from hubbub.privacy.policy import Policy

    versions = {"before": change.before, "after": change.after}
    return {
        "metric": change.name,
        "change": str(change.kind),
        "fields": change.fields,
        **{
            side: metric and {"digest": metric.digest, "privacy": privacy_figures(metric, Policy()).to_dict()}
            for side, metric in versions.items()
        },
    }


def _change_lines(change: VersionChange) -> list[str]:
    """Return the lines of a change: digests, fields, and epsilon under the default Policy if the digest differs."""
    from hubbub.privacy.lifetime import privacy_figures
    from hubbub.privacy.policy import Policy

    versions = {side: metric for side, metric in (("before", change.before), ("after", change.after)) if metric}
    digests = dict.fromkeys(metric.digest for metric in versions.values())
    lines = [f"{change.name} {' -> '.join(digest[:12] for digest in digests)}: {change.kind}"]
    lines += [f"  {field}: {' -> '.join(_shown_pair(*values))}" for field, values in change.fields.items()]
    if len(versions) == 1 or len(digests) > 1:
        figures = {side: privacy_figures(metric, Policy()).sentence() for side, metric in versions.items()}
        lines += [f"  {side + ':':7} {sentence}" for side, sentence in figures.items()]
    return lines


def _shown_pair(old: Any, new: Any) -> tuple[str, str]:
    """Return two different values as text: probabilities with 6 digits, or as many as tell them apart.

    >>> _shown_pair(0.1719236969947815, 0.25), _shown_pair(0.5, 0.50000006), _shown_pair(None, ["a", "b"])
    (('0.171924', '0.25'), ('0.5', '0.5000001'), ('none', '[a, b]'))
    """
    for digits in range(6, 17):
        shown = _shown(old, digits), _shown(new, digits)
        if shown[0] != shown[1]:
            break
    return shown


def _shown(value: Any, digits: int) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_shown(item, digits) for item in value)}]"
    if isinstance(value, float):
        return f"{value:.{digits}g}"
    return "none" if value in (None, "") else escape_control_characters(str(value))


@command.command()
@click.argument("definitions", type=PATH)
@click.argument("names", nargs=-1)
@click.option(
    "--reports",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of reports of a period: also show the central epsilon if only their totals are published.",
)
@json_option
def show(definitions: Path, names: tuple[str, ...], reports: int | None, *, as_json: bool) -> None:
    """Show parameters and epsilon of metrics.

    Shows the metrics NAMES of the file DEFINITIONS, or all of its metrics.

    Epsilon is shown per report, per epoch or value, per enrollment (one secret of a client), and over a client's lifetime.

    \b
    Example:
      hubbub metrics show metrics.toml homepage --reports 1000000
    """
    from hubbub.cli.definitions_file import definitions_with

    loaded = definitions_with(definitions, names)
    shown = {metric: _describe(metric, reports) for metric in loaded.versions() if not names or metric.name in names}
    if as_json:
        print_json([about | {"privacy": about["privacy"].to_dict()} for about in shown.values()])
        return
    for metric, about in shown.items():
        click.echo(_format(metric, about))


@command.command()
@click.argument("definitions", type=PATH)
@click.option(
    "--out-dir",
    "out",
    type=PATH,
    metavar="DIRECTORY",
    default="catalogue",
    show_default=True,
    help="Output directory for the pages; created if it does not exist. Open index.html in it.",
)
@json_option
def catalogue(definitions: Path, out: Path, *, as_json: bool) -> None:
    """Write HTML pages of all metrics.

    index.html in --out-dir lists the metrics of the definitions file DEFINITIONS, and searches in them. Each metric has a page with every
    version: owner, purpose, review, expiry and epsilon. The pages need no network. Pages of metrics that are no longer in DEFINITIONS stay.

    \b
    Example:
      hubbub metrics catalogue metrics.toml --out-dir catalogue/
    """
    from datetime import UTC, datetime

    from hubbub.cli.catalogue import catalogue_pages
    from hubbub.cli.output import write_page
    from hubbub.errors import HubbubError
    from hubbub.metrics.definitions import load_definitions

    loaded = load_definitions(definitions)
    try:
        (out / "metric").mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise HubbubError(
            f"cannot make {out}/metric: {problem.strerror}; give a directory that you can write"
        ) from None
    for path, page in catalogue_pages(loaded, datetime.now(UTC).date()).items():
        write_page(out / path, page)
    index = out / "index.html"
    click.echo(f"wrote {index}: {format_count(len(loaded), 'metric')}", err=True)
    if as_json:
        print_json({"out": str(index), "metrics": list(loaded)})


@command.command()
@click.argument("definitions", type=PATH)
@click.argument("name")
@click.option("--out", required=True, type=PATH, metavar="FILE", help="Output file (.json) of the certificate.")
@click.option(
    "--reports",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of reports of one value in the statement about several, at most 1,000 and at most an epoch. Default: 30, or an epoch.",
)
@json_option
def certificate(definitions: Path, name: str, out: Path, reports: int | None, *, as_json: bool) -> None:
    """Write a certificate of the epsilon of a metric.

    The certificate has the canonical bytes of the current version of the metric NAME of the file DEFINITIONS, and e^epsilon of a report,
    of several reports, of a value or epoch, of an enrollment and of the lifetime as exact fractions, under the default Policy. A program
    of the documentation checks it without hubbub.

    \b
    Example:
      hubbub metrics certificate metrics.toml homepage --out homepage.json
    """
    from hubbub.cli.definitions_file import definitions_with
    from hubbub.cli.output import write_json_file
    from hubbub.privacy.certificates import certificate
    from hubbub.privacy.policy import Policy

    document = certificate(definitions_with(definitions, [name])[name], Policy(), num_reports=reports)
    write_json_file(out, document)
    number = format_count(len(document["statements"]), "statement")
    click.echo(f"wrote {out}: {number} about {name} {document['digest'][:12]}", err=True)
    if as_json:
        print_json({"out": str(out), "digest": document["digest"], "statements": document["statements"]})


def _describe(metric: Metric, reports: int | None) -> dict[str, Any]:
    from hubbub.privacy import central_epsilon, effective_group_size, privacy_figures
    from hubbub.privacy.policy import Policy

    central = {}
    if reports is not None:
        per_cohort = max(1, reports // (metric.num_cohorts * len(metric.collections)))
        central = {"central_epsilon": central_epsilon(metric, per_cohort, _DELTA), "delta": _DELTA}
        central["reports_per_cohort"] = per_cohort
    return {
        **metric.to_dict(),
        **(
            {"p_star": metric.params.mechanism.p_star, "q_star": metric.params.mechanism.q_star}
            if len(metric.blocks) == 1
            else {}
        ),
        "privacy": privacy_figures(metric, Policy()),
        "effective_group_size_2_reports": 1.0 if metric.hold == 1 else effective_group_size(metric),
        **central,
    }


def _one_line(text: str) -> str:
    """Return a text of a definitions file on one line that a terminal shows as it is.

    >>> _one_line("The page\\n\\tthat opens first \\x1b[8m")
    'The page that opens first \\\\x1b[8m'
    """
    return escape_control_characters(" ".join(text.split()))


def _format(metric: Metric, about: dict[str, Any]) -> str:
    from hubbub.privacy.policy import Policy
    from hubbub.privacy.pricing import shown_epsilon

    policy, figures = Policy(), about["privacy"]
    titles = {"lifetime": "lifetime epsilon"}
    limits = ("epsilon_enrollment", "epsilon_metric", "epsilon_total")
    group_size = f"{about['effective_group_size_2_reports']:,.3g}"
    linked = f"effective group size of two reports of one value: {group_size} client{'' if group_size == '1' else 's'}"
    lines = [
        f"{metric.name}  ({metric.kind}, expires {metric.expires})",
        f"  {_one_line(metric.description)}  [{_one_line(metric.owner)}]",
        *(f"  {field}: {_one_line(about[field])}" for field in ("purpose", "review") if field in about),
        *(f"  {fact.label}: {escape_control_characters(fact.line())}" for fact in metric.facts()),
        f"  epsilon under the default Policy ({', '.join(f'{name} = {getattr(policy, name):g}' for name in limits)}):",
        *(
            f"    {titles.get(row.label, row.label):17}  {shown_epsilon(row.epsilon):>8}  {row.note}"
            for row in figures.rows()
        ),
        f"  {linked}{'; without hold, changes of the value are visible in linked reports' if figures.unit == 'value' else ''}",
        f"  digest {metric.digest}",
    ]
    if "central_epsilon" in about:
        lines.insert(
            -1,
            f"  central epsilon = {shown_epsilon(about['central_epsilon'])} at delta = {about['delta']:g}, for {about['reports_per_cohort']:,} reports in an average "
            f"cohort{'' if metric.group is None else f' of an average {metric.group.name}'}. It holds for the final totals of one period if the other reports are genuine, and not against the operator "
            "of the aggregator",
        )
    return "\n".join(lines)


@command.command()
@click.argument("definitions", type=PATH)
@click.option("--app", required=True, metavar="NAME", help="Name of the app, as its users know it.")
@click.option("--recipient", required=True, metavar="NAME", help="Company or person that receives the reports.")
@click.option("--contact", default="", metavar="ADDRESS", help="Address for questions.  [default: none]")
@click.option("--short", is_flag=True, help="Leave out the details of each metric.")
@json_option
def notice(definitions: Path, app: str, recipient: str, contact: str, *, short: bool, as_json: bool) -> None:
    """Print a text that asks users for consent.

    The text names the metrics of the file DEFINITIONS, and says in words how much their reports reveal under the default Policy: in short
    for all of them together, then for each.

    \b
    Example:
      hubbub metrics notice metrics.toml --app "Example Editor" --recipient "Example Ltd"
    """
    from hubbub.metrics.definitions import load_definitions
    from hubbub.privacy.lifetime import privacy_figures
    from hubbub.privacy.policy import Policy
    from hubbub.sdk.transparency.consent_notice import consent_notice

    loaded = load_definitions(definitions)
    text = consent_notice(loaded, app=app, recipient=recipient, contact=contact, details=not short)
    blocked = [metric.name for metric in loaded.values() if privacy_figures(metric, Policy()).objection is not None]
    if as_json:
        print_json({"text": text, "blocked": blocked})
    else:
        click.echo(text, nl=False)
    _exit_with(
        [
            f"{name}: the default Policy blocks this metric, so the text does not name it. "
            "If the app's Policy permits it, write the text with consent_notice(..., policy=...)"
            for name in blocked
        ]
    )
