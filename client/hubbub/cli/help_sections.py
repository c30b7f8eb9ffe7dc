"""Sections of `--help` for a command with many options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


class SectionOption(click.Option):
    """Option that `--help` lists in a section."""

    def __init__(self, *args: Any, section: str = "Options", **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.section = section


def section(name: str) -> Callable[..., Callable[[F], F]]:
    """`click.option` of a section."""
    return partial(click.option, cls=SectionOption, section=name)


class SectionedCommand(click.Command):
    """Command whose `--help` lists its options by section, in the order in which the sections begin.

    Its function may have a parameter `options`: the values of the options that are no parameters themselves, by name.
    """

    def invoke(self, ctx: click.Context) -> Any:
        """Call the function with the values of the options."""
        parameters = () if self.callback is None else inspect.signature(self.callback).parameters
        if "options" in parameters:
            others = [name for name in ctx.params if name not in parameters]
            ctx.params["options"] = {name: ctx.params.pop(name) for name in others}
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections; an option without one is in the section Options."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for parameter in self.get_params(ctx):
            row = parameter.get_help_record(ctx)
            if row is not None and isinstance(parameter, click.Option):
                section = parameter.section if isinstance(parameter, SectionOption) else "Options"
                sections.setdefault(section, []).append(row)
        for section, rows in sections.items():
            with formatter.section(section):
                formatter.write_dl(rows)
