"""Write a page for each command and each public name before Sphinx reads the pages. They are not in the repository.

reference/commands/NAME.rst           a command with its options, by sphinx-click
reference/python/MODULE.rst           a public module: its names, and its type aliases and constants
reference/python/MODULE.NAME.rst      a public class or function, by autodoc
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from importlib.metadata import entry_points
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import click
from docutils import nodes
from sphinx.application import Sphinx

from hubbub.cli import SECTIONS, main
from hubbub.mechanisms.mechanism import Mechanism

MODULES = (
    "hubbub",
    "hubbub.testing",
    "hubbub.privacy",
    "hubbub.summary",
    "hubbub.typing",
    "hubbub_decoder",
    "hubbub_decoder.plots",
    "hubbub_decoder.typing",
    "hubbub_aggregator",
    "hubbub_aggregator.typing",
)
INDEX_OF_COMMANDS, INDEX_OF_NAMES = "reference/cli", "reference/api"
WRITTEN = ".. Written by docs/_sphinx/reference.py; it is deleted when its name is gone.\n\n"
"""First line of each page."""
BASES_WITHOUT_MEMBERS = "BaseException, Enum, Mapping, Sequence, int, str, tuple"
"""Members of these bases are those of Python, which a page of hubbub does not repeat."""


def title(text: str) -> str:
    """Return a heading.

    >>> title("plan")
    'plan\\n====\\n'
    """
    return f"{text}\n{'=' * len(text)}\n"


def is_on_its_own_page(thing: object) -> bool:
    """Whether a public name is a class or a function, and not a type alias or a constant."""
    return inspect.isclass(thing) or inspect.isroutine(thing)


def pages() -> dict[str, str]:
    """Return the text of each page by its name."""
    written = {f"commands/{name}": page_of_command(name, target) for name, target in commands()}
    for module in map(import_module, MODULES):
        written[f"python/{module.__name__}"] = page_of_module(module)
        for name in module.__all__:
            thing = getattr(module, name)
            if is_on_its_own_page(thing):
                written[f"python/{module.__name__}.{name}"] = page_of_name(module.__name__, name, thing)
    return written


def commands() -> Iterator[tuple[str, str]]:
    """Yield the name of each command, and where its code is."""
    names = main.list_commands(click.Context(main))
    for entry in sorted(entry_points(group="hubbub.commands"), key=lambda entry: names.index(entry.name)):
        yield entry.name, entry.value


def page_of_command(name: str, target: str) -> str:
    return f".. click:: {target}\n   :prog: hubbub {name}\n   :nested: full\n"


def page_of_name(module: str, name: str, thing: object) -> str:
    """Return the page of a class or function. It is an orphan, because a navigation with all names makes each page large."""
    lines = [
        ":orphan:\n",
        title(f"{module}.{name}"),
        f"In the module :py:mod:`{module}`.\n",
        f".. currentmodule:: {module}\n",
    ]
    if inspect.isclass(thing):
        lines.append(f".. autoclass:: {name}")
        # The names of these types, and the parameters of a mechanism, are public, and their members are not.
        if not module.endswith(".typing") and not issubclass(thing, Mechanism):
            lines += ["   :members:", f"   :inherited-members: {BASES_WITHOUT_MEMBERS}"]
    else:
        lines.append(f".. autofunction:: {name}")
    return "\n".join([*lines, ""])


def page_of_module(module: ModuleType) -> str:
    """Return the page of a module: its docstring, the names that have pages, and the definitions of the others."""
    things = {name: getattr(module, name) for name in module.__all__}
    own = [name for name, thing in things.items() if is_on_its_own_page(thing)]
    lines = [title(module.__name__), f".. automodule:: {module.__name__}\n"]
    lines += [".. list-table::", "   :widths: auto", "   :header-rows: 1", "", "   * - name", "     - description"]
    for name in own:
        summary = (inspect.getdoc(things[name]) or "").partition("\n")[0]
        lines += [f"   * - :py:obj:`~{module.__name__}.{name}`", f"     - {summary}"]
    for name in things:
        if name not in own:
            value, text = definition(module, name)
            lines += [
                "",
                f".. py:data:: {name}",
                f"   :module: {module.__name__}",
                f"   :value: {value}",
                "",
                f"   {text}",
            ]
    return "\n".join([*lines, ""])


def definition(module: ModuleType, name: str) -> tuple[str, str]:
    """Return the value of a type alias or constant as its code, and the string below its assignment."""
    body = ast.parse(inspect.getsource(module)).body
    for node, after in pairwise(body):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and target.id == name and isinstance(after, ast.Expr):
            assigned: Any = getattr(node, "value", None)
            text = assigned.value if isinstance(assigned, ast.Constant) else ast.unparse(assigned)
            return str(text), inspect.cleandoc(ast.literal_eval(after.value)).replace("\n", " ")
    source = next(
        node.module for node in body if isinstance(node, ast.ImportFrom) if name in {alias.name for alias in node.names}
    )
    return definition(import_module(str(source)), name)


def write_pages(app: Sphinx) -> None:
    """Handle `builder-inited`: write the pages that changed, and delete those of names that are gone. Other files stay."""
    folder = Path(app.srcdir) / "reference"
    if not (folder / "api.md").exists():
        return
    texts = {folder / f"{name}.rst": WRITTEN + text for name, text in pages().items()}
    for path in {*folder.glob("commands/*.rst"), *folder.glob("python/*.rst")} - texts.keys():
        if path.read_text(encoding="utf-8").startswith(WRITTEN):
            path.unlink()
    for path, text in texts.items():
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def link_pages(_app: Sphinx, name: str, source: list[str]) -> None:
    """Handle `source-read`: add links to the generated pages to the two pages that list them."""
    if name == INDEX_OF_COMMANDS:
        source[0] += index_of_commands()
    elif name == INDEX_OF_NAMES:
        source[0] = linked_names(source[0]) + toctree([f"python/{module}" for module in MODULES])


def index_of_commands() -> str:
    """Return a table of the commands by their user, as `hubbub --help` has them, and the toctree of their pages."""
    context = click.Context(main)
    text = ""
    for section, names in SECTIONS.items():
        text += f"\n## {section}\n\n| command | what it does |\n|---|---|\n"
        for name in names:
            if command := main.get_command(context, name):
                text += f"| [`hubbub {name}`](commands/{name}.rst) | {command.get_short_help_str(limit=200)} |\n"
    return text + toctree([f"commands/{name}" for name, _ in commands()])


def linked_names(text: str) -> str:
    """Return docs/reference/api.md with a link from each name to its page, or to its definition on the module's page.

    >>> linked_names("## `hubbub`\\n\\n| `Client` | Telemetry client. |\\n")
    '## [`hubbub`](python/hubbub.rst)\\n\\n| {py:obj}`~hubbub.Client` | Telemetry client. |\\n'
    """
    linked, module = [], ""
    for line in text.split("\n"):
        if heading := re.fullmatch(r"## `([\w.]+)`", line):
            module = heading[1]
            linked.append(f"## [`{module}`](python/{module}.rst)")
        else:
            linked.append(re.sub(r"^\| `(\w+)` \|", rf"| {{py:obj}}`~{module}.\1` |", line))
    return "\n".join(linked)


def toctree(documents: list[str]) -> str:
    return "\n".join(["", "```{toctree}", ":hidden:", "", *documents, "```", ""])


def hide_constructor_of_result(
    _app: Sphinx, what: str, _name: str, thing: object, _options: object, signature: str, returned: str
) -> tuple[str, str] | None:
    """Handle `autodoc-process-signature`: a class without the section Parameters is a result, which users do not make."""
    is_result = what == "class" and "Parameters\n---" not in (inspect.getdoc(thing) or "")
    return ("", returned) if is_result and signature else None


def add_types_of_attributes(
    _app: Sphinx, what: str, _name: str, thing: Any, _options: object, lines: list[str]
) -> None:
    """Handle `autodoc-process-docstring`, after napoleon: add the type of each attribute, or the value of an Enum's member."""
    if what != "class":
        return
    annotations = {
        name: annotation
        for base in reversed(thing.__mro__)
        for name, annotation in inspect.get_annotations(base).items()
    }
    for number, line in reversed([*enumerate(lines)]):
        name = line.removeprefix(".. attribute:: ")
        if name == line:
            continue
        if issubclass(thing, Enum) and name in thing.__members__:
            lines.insert(number + 1, f"   :value: {thing[name].value!r}")
        elif name in annotations:
            lines.insert(number + 1, f"   :type: {linked_type(str(annotations[name]))}")


def linked_type(annotation: str) -> str:
    """Return an annotation in which each public name has its module, so that it is a link.

    >>> linked_type("ClassVar[tuple[Estimate, ...] | None]")
    'tuple[~hubbub_decoder.Estimate, ...] | None'
    """
    bare = re.sub(r"^ClassVar\[(.*)\]$", r"\1", annotation)
    modules = {name: module.__name__ for module in map(import_module, MODULES) for name in module.__all__}
    return re.sub(
        r"(?<![\w.'])[A-Z]\w+", lambda name: f"~{modules[name[0]]}.{name[0]}" if name[0] in modules else name[0], bare
    )


def make_examples_literal(_app: Sphinx, _context: click.Context, lines: list[str]) -> None:
    """Handle `sphinx-click-process-description`: the examples of a help text are code, a line each."""
    in_examples = False
    for number, line in enumerate(lines):
        if re.fullmatch(r"\| Examples?:", line):
            in_examples, lines[number] = True, f"{line[2:]}:\n"
        elif in_examples and line.startswith("|   "):
            lines[number] = line[2:]
    lines[:] = "\n".join(lines).split("\n")


def set_dashes(_app: Sphinx, doctree: nodes.document) -> None:
    """Handle `doctree-read`: a dash between a parameter and its description, where Sphinx puts two hyphens."""
    for text in list(doctree.findall(nodes.Text)):
        if text == " -- ":
            text.parent.replace(text, nodes.Text(" \N{EN DASH} "))


def skip_field_of_tuple(
    _app: Sphinx, _what: str, _name: str, member: object, _skip: bool, _options: object
) -> bool | None:
    """Handle `autodoc-skip-member`: the fields of a NamedTuple are in its docstring."""
    return True if (inspect.getdoc(member) or "").startswith("Alias for field number") else None


def setup(app: Sphinx) -> dict[str, bool]:
    for extension in ("sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_click"):
        app.setup_extension(extension)
    app.config.autodoc_type_aliases = {
        name: f"~{module.__name__}.{name}"
        for module in map(import_module, MODULES)
        for name in module.__all__
        if not is_on_its_own_page(getattr(module, name))
    }
    app.connect("builder-inited", write_pages)
    app.connect("source-read", link_pages)
    app.connect("autodoc-process-signature", hide_constructor_of_result)
    app.connect("autodoc-process-docstring", add_types_of_attributes, priority=600)
    app.connect("sphinx-click-process-description", make_examples_literal)
    app.connect("doctree-read", set_dashes)
    app.connect("autodoc-skip-member", skip_field_of_tuple)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
