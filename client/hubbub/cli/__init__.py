"""The `hubbub` command group. Subcommands are entry points, loaded on use.

Each package registers its subcommands in the group `hubbub.commands`. The module of a subcommand imports click only and imports
everything else inside the command, so `hubbub --help` is fast and works without the extras.
"""

from __future__ import annotations

import errno
import sys
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import click

from hubbub.errors import HubbubError
from hubbub.text import install_hint

_EXTRA_OF_PACKAGE = {"hubbub_aggregator": "aggregator", "hubbub_decoder": "decoder"}
_EXTRA_OF_COMMAND = {"doctor": "aggregator"}  # for the checks of an aggregator; `--state` needs no extra


class Commands(click.Group):
    """Command group with entry points as commands. A HubbubError is printed as one line, with exit code 1."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (signature of click)
        return sorted(_commands())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        entry = _commands().get(cmd_name)
        return None if entry is None else entry.load()

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().main(*args, **kwargs)
        except OSError as problem:
            if problem.errno != errno.ENOSPC:
                raise
            click.echo(f"Error: cannot write the output: {problem.strerror}", err=True)
            sys.exit(1)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except HubbubError as problem:
            raise click.ClickException(str(problem)) from None
        except ModuleNotFoundError as problem:
            extra = _extra_of(ctx.invoked_subcommand)
            if extra is None or (problem.name or "").partition(".")[0].startswith("hubbub"):
                raise
            raise click.ClickException(
                f"`hubbub {ctx.invoked_subcommand}` needs {problem.name}: {install_hint(extra)}"
            ) from None


@click.group(cls=Commands)
@click.version_option(package_name="hubbub")
def main() -> None:
    """Collect telemetry with local differential privacy: randomize on the client, estimate frequencies on the server.

    \b
    Example:
      hubbub demo
    """


def _commands() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group="hubbub.commands")}


def _extra_of(name: str | None) -> str | None:
    entry = _commands().get(name or "")
    if entry is None:
        return None
    return _EXTRA_OF_COMMAND.get(entry.name) or _EXTRA_OF_PACKAGE.get(entry.module.partition(".")[0])
