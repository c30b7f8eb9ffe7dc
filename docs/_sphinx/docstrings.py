"""Turn the plain docstrings of this project into reStructuredText for autodoc.

A docstring has paragraphs, lists of parameters (`name : text`), indented formulas, lists with `- ` and doctests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module

from sphinx.application import Sphinx

LAZY_PACKAGES = ("hubbub", "hubbub_aggregator", "hubbub_decoder")
_PARAMETER = re.compile(r"(\*{0,2}\w[\w, *./|-]*?) +: (.*)")
_TWO_IN_A_LINE = re.compile(r" {2,}(?=\w+ +: )")
_CODE = re.compile(r"`([^`]+)`")
_MARKUP = re.compile(r"([\\*|_])")


def escaped(text: str) -> str:
    r"""Return a line of plain text as reStructuredText: inline code stays code, and no other character is markup.

    >>> escaped("`x_` is *not* a_")
    '``x_`` is \\*not\\* a\\_'
    """
    parts = _CODE.split(text)
    return "".join(f"``{part}``" if i % 2 else _MARKUP.sub(r"\\\1", part) for i, part in enumerate(parts))


def blocks(lines: list[str]) -> Iterator[list[str]]:
    """Yield the groups of lines between empty lines; an indented block continues over empty lines."""
    block: list[str] = []
    for line in [*lines, ""]:
        if line.strip():
            block.append(line)
        elif block:
            yield block
            block = []


def restructured(lines: list[str]) -> list[str]:
    r"""Return the lines of a docstring as reStructuredText.

    >>> restructured(["Share of v.", "", "level : of the interval,", "        in (0, 1)", "", "    y = x", "", ">>> 1", "1"])
    ['Share of v.', '', '``level``', '   of the interval,', '   in (0, 1)', '', '::', '', '    y = x', '', '>>> 1', '1', '']
    """
    result: list[str] = []
    for block in blocks(lines):
        if block[0].startswith(">>>"):
            result += block
        elif all(line.startswith("    ") for line in block):
            result += ["::", "", *block]
        elif _PARAMETER.match(block[0]):
            result += parameters(block)
        elif block[0].startswith("- "):
            result += [
                f"  {escaped(line.strip())}" if line.startswith(" ") else f"- {escaped(line[2:])}" for line in block
            ]
        else:
            result += [f"| {escaped(line.strip())}" if line.startswith(" ") else escaped(line) for line in block]
        result.append("")
    return result


def parameters(block: list[str]) -> list[str]:
    """Return a list of parameters as a definition list. A line may have two parameters, with a wide gap between them.

    >>> parameters(["a : first    b : second"])
    ['``a``', '   first', '``b``', '   second']
    """
    result = []
    for line in (part for wide in block for part in _TWO_IN_A_LINE.split(wide)):
        if (found := _PARAMETER.match(line)) and not line.startswith(" "):
            result += [f"``{found[1]}``", f"   {escaped(found[2])}"]
        else:
            result.append(f"   {escaped(line.strip())}")
    return result


def process(_app: Sphinx, _what: str, _name: str, _thing: object, _options: object, lines: list[str]) -> None:
    """Handle `autodoc-process-docstring`: replace the lines in place."""
    lines[:] = restructured(lines)


def load_lazy_names(_app: Sphinx) -> None:
    """Handle `builder-inited`: set the names that a package imports on first use, because autodoc reads its `__dict__`."""
    for package in LAZY_PACKAGES:
        module = import_module(package)
        for name in module.__all__:
            setattr(module, name, getattr(module, name))


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", load_lazy_names)
    app.connect("autodoc-process-docstring", process)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
