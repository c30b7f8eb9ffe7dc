"""The `hubbub` command: its subcommands are entry points, loaded when they are asked for.

Each part registers its own under `hubbub.commands`. A subcommand's module imports click only and takes what is
heavy inside the command, so that `hubbub --help` lists all of them from a bare install.
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
_EXTRA_OF_COMMAND = {"doctor": "aggregator"}  # its checks of an aggregator; `--state` needs none


class Commands(click.Group):
    """A group whose commands are entry points; what goes wrong on purpose is one sentence and exit code 1."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click calls it so)
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
            click.echo(f"Error: the output cannot be written: {problem.strerror}", err=True)
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
    """Telemetry under local differential privacy: randomize before it leaves, estimate what the crowd says.

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
