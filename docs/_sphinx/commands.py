"""Append the reference of every `hubbub` command to the page docs/reference/cli.md, from the registered entry points."""

from __future__ import annotations

from importlib.metadata import entry_points

import click
from sphinx.application import Sphinx

from hubbub.cli import main

PAGE = "cli"


def directives() -> str:
    """Return a sphinx-click directive for each command, in the order of `hubbub --help`."""
    names = main.list_commands(click.Context(main))
    entries = sorted(entry_points(group="hubbub.commands"), key=lambda entry: names.index(entry.name))
    blocks = (f".. click:: {entry.value}\n   :prog: hubbub {entry.name}\n   :nested: full\n" for entry in entries)
    return "\n```{eval-rst}\n" + "\n".join(blocks) + "```\n"


def append_commands(_app: Sphinx, name: str, source: list[str]) -> None:
    """Handle `source-read`."""
    if name.rpartition("/")[2] == PAGE:
        source[0] += directives()


def setup(app: Sphinx) -> dict[str, bool]:
    app.setup_extension("sphinx_click")
    app.connect("source-read", append_commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
