"""Options that an error of a command names, and that the command does not have."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

_OF_ANOTHER_COMMAND = re.compile(r"`hubbub [^`]*`")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def missing_options(message: str, command: click.Command) -> set[str]:
    """Options in a message that neither a command nor one below it has; those of `hubbub OTHER ...`, in backticks, are another command's.

    >>> decode = click.Command("decode", params=[click.Option(["--by"])])
    >>> missing_options("Pass --by period or --map, or run `hubbub watch --band`.", decode)
    {'--map'}
    """
    return {*_OPTION.findall(_OF_ANOTHER_COMMAND.sub("", message))} - {*_options(command), "--help", "--version"}


def _options(command: click.Command) -> Iterator[str]:
    for parameter in command.params:
        yield from (*parameter.opts, *parameter.secondary_opts)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None:
                yield from _options(below)
