"""`hubbub doctor`: health checks of a client's state directory or of an aggregator, with the next step for each problem.

The checks of a state directory belong to the client. The aggregator registers its checks and their options as an entry point of
the group `hubbub.checks`, which is loaded unless `--state` is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import click

from hubbub.cli.findings import Checks
from hubbub.cli.help_sections import SectionedCommand
from hubbub.cli.output import PATH, json_option, print_json
from hubbub.text import install_hint

_STATE_GIVEN = "hubbub.doctor.state"


class Doctor(SectionedCommand):
    """Command with the options of the registered checks, unless `--state` is given."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        own, checks = super().get_params(ctx), _registered()
        return own if checks is None or ctx.meta.get(_STATE_GIVEN) else [*own, *checks.options]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_STATE_GIVEN] = any(argument.partition("=")[0] == "--state" for argument in args)
        if _registered() is None and not ctx.meta[_STATE_GIVEN] and {*args}.isdisjoint(ctx.help_option_names):
            raise click.ClickException(
                f"without --state, `hubbub doctor` needs the aggregator: {install_hint('aggregator')}"
            )
        return super().parse_args(ctx, args)


@click.command(cls=Doctor, context_settings={"auto_envvar_prefix": "HUBBUB"})
@click.argument("definitions", required=False, type=PATH)
@click.option(
    "--state", type=PATH, allow_from_autoenv=False, help="State directory of a client, instead of DEFINITIONS."
)
@json_option
def command(definitions: Path | None, state: Path | None, as_json: bool, options: Mapping[str, Any]) -> None:
    """Check an aggregator or a client for problems.

    Prints each finding with its impact and the next step. Changes nothing. Exit code 1 if a finding is an error. With DEFINITIONS,
    pass the same options that the aggregator is started with (`hubbub serve`).

    \b
    Example:
      hubbub doctor metrics.toml --database reports.db --url https://telemetry.example.org
      hubbub doctor --state ~/.local/state/my-app/hubbub
    """
    import os
    from datetime import UTC, datetime

    from hubbub.cli.findings import Health, print_findings
    from hubbub.cli.state_checks import check_state

    now = datetime.now(UTC)
    if state is not None and definitions is None:
        findings = list(check_state(state, now, os.environ))
    elif definitions is not None and state is None and (checks := _registered()) is not None:
        findings = list(checks.run(definitions, now, options))
    else:
        raise click.UsageError("pass either the DEFINITIONS of an aggregator or the --state directory of a client")
    has_errors = any(finding.health is Health.ERROR for finding in findings)
    if as_json:
        print_json({"has_errors": has_errors, "findings": [asdict(finding) for finding in findings]})
    else:
        print_findings(findings)
    if has_errors:
        errors = [finding.observation for finding in findings if finding.health is Health.ERROR]
        raise click.ClickException("; ".join(errors))


def _registered() -> Checks | None:
    """Return the aggregator's checks, if it is installed."""
    for entry in entry_points(group="hubbub.checks"):
        checks: Checks = entry.load()
        return checks
    return None
