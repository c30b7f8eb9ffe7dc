"""Sections of `--help` for a command with many options."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

import click


class SectionOption(click.Option):
    """Option that `--help` lists in a section of its command."""

    section: ClassVar[str]


def section(name: str) -> type[SectionOption]:
    """Class of the options of a section, for `click.option(..., cls=section("Storage"))`."""

    class Option(SectionOption):
        section = name

    return Option


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
