"""`hubbub conformance`: check a client in another language against the format."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hubbub.cli.output import Program, json_option, print_json

if TYPE_CHECKING:
    from hubbub.conformance.results import RuleResult

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
    "--timeout",
    default=60.0,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Longest duration of one answer.",
)
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
      1  the adapter cannot be run, wrote something that is no answer, or claims no rule or not a rule that --rule names
      2  the arguments are wrong

    \b
    Example:
      hubbub conformance --command "python examples/conformance_adapter.py"
    """
    from hubbub.conformance.adapter import Adapter
    from hubbub.conformance.results import Verdict
    from hubbub.conformance.rules import all_rules
    from hubbub.text import format_names

    rules = {rule.number: rule for rule in all_rules()}
    unknown = next((number for number in numbers if number not in rules), None)
    if unknown is not None:
        raise click.UsageError(f"--rule {unknown}: rules are {', '.join(map(str, rules))}.")
    results = []
    with Adapter(program, timeout) as adapter:
        for number in numbers or rules:
            results.append(rules[number].run(adapter))
            if not as_json:
                _print(results[-1])
    if as_json:
        print_json({"rules": [result.to_dict() for result in results]})
    if any(result.verdict is Verdict.FAILED for result in results):
        raise SystemExit(_FAILED)
    unchecked = [result.number for result in results if result.verdict is Verdict.NOT_CLAIMED]
    if unchecked and (numbers or len(unchecked) == len(results)):
        raise click.ClickException(
            f"not checked, because the adapter does not claim them: {format_names([str(number) for number in unchecked])}. Answer their requests in the adapter"
        )


def _print(result: RuleResult) -> None:
    """Print a rule, and its smallest counterexample."""
    import json

    from hubbub.text import format_count

    number = f"{result.failed:,} of " if result.failed else ""
    cases = f" ({number}{format_count(result.cases, 'case')})" if result.cases > 1 else ""
    click.echo(f"{result.number:3} {result.verdict:12} {result.title}{cases}")
    for name, value in ({"rule": result.section} | dict(result.counterexample) if result.failed else {}).items():
        click.echo(f"{'':16} {name:8} {value if isinstance(value, str) else json.dumps(value)}")
