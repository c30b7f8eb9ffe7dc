"""`hubbub conformance`: check a client in another language against the format."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hubbub.cli.output import Program, json_option, print_json

if TYPE_CHECKING:
    from hubbub.conformance.run import RuleResult

_FAILED = 3


@click.command()
@click.option(
    "--command",
    "program",
    type=Program(),
    required=True,
    metavar="COMMAND",
    help="Command that answers for the client: its adapter.",
)
@click.option(
    "--rule", "numbers", multiple=True, type=int, metavar="NUMBER", help="Rule to check; repeatable. Default: all."
)
@click.option(
    "--timeout", default=60.0, show_default=True, type=click.FloatRange(0, min_open=True), metavar="SECONDS",
    help="Longest duration of one answer.",
)  # fmt: skip
@json_option
def command(program: tuple[str, ...], numbers: tuple[int, ...], timeout: float, *, as_json: bool) -> None:
    """Check a client in another language against the format.

    The adapter is a program that reads requests from its standard input, a JSON object on each line, and answers each by one line.
    docs/how-to/other-languages.md describes them. Each rule is passed, failed with its smallest counterexample, or not claimed,
    if the adapter answers {"unknown": true}.

    \b
    Exit codes:
      0  no rule failed
      3  a rule failed
      1  the adapter cannot be run, or wrote something that is no answer
      2  the arguments are wrong

    \b
    Example:
      hubbub conformance --command "python examples/conformance_adapter.py"
    """
    from hubbub.conformance.adapter import Adapter
    from hubbub.conformance.rules import all_rules
    from hubbub.conformance.run import Verdict, run_rules

    rules = {rule.number: rule for rule in all_rules()}
    unknown = next((number for number in numbers if number not in rules), None)
    if unknown is not None:
        raise click.UsageError(f"--rule {unknown}: rules are 1 to {max(rules)}.")
    results = []
    with Adapter(program, timeout) as adapter:
        for result in run_rules([rules[number] for number in numbers or rules], adapter.ask):
            results.append(result)
            if not as_json:
                _print(result)
    if as_json:
        print_json({"rules": [result.to_dict() for result in results]})
    if any(result.verdict is Verdict.FAILED for result in results):
        raise SystemExit(_FAILED)


def _print(result: RuleResult) -> None:
    """Print a rule, and its smallest counterexample."""
    import json

    from hubbub.text import escape_untrusted, format_count

    rule, found = result.rule, result.counterexample
    number = f"{result.num_failed:,} of " if found is not None else ""
    click.echo(f"{rule.number:3} {result.verdict:12} {rule.title} ({number}{format_count(len(rule.cases), 'case')})")
    if found is not None:
        click.echo(f"{'':16} docs/reference/format.md, {rule.section}")
        for name, value in (
            ("request", found.case.request),
            ("expected", found.case.expected),
            ("answer", found.answer),
        ):
            click.echo(f"{'':16} {name:8} {escape_untrusted(json.dumps(value))}")
