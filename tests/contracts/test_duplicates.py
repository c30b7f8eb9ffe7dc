"""No helper is defined twice in the three packages, and no file imports an object under two names."""

from __future__ import annotations

import ast
import subprocess
from collections import defaultdict

from tests.contracts.test_layers import MODULES
from tests.support.paths import REPOSITORY

MIN_NODES = 12
"""Functions with fewer nodes in their syntax tree are trivial: stubs of command groups, one-line conversions."""


def body_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.stmt]:
    """Return the statements of a function without its docstring.

    >>> ast.unparse(body_of(ast.parse("def f(x):\\n    'Return x + 1.'\\n    return x + 1").body[0]))
    'return x + 1'
    """
    return function.body[1:] if ast.get_docstring(function) is not None else function.body


def duplicates(sources: dict[str, str]) -> list[list[str]]:
    """Return the names of module-level functions with equal bodies, in groups; `sources` maps modules to their code.

    >>> add = "def {}(x):\\n    return (x + 1) * (x + 2) - x * 3"
    >>> duplicates({"a": add.format("f"), "b": add.format("g"), "c": "def h(x):\\n    return x"})
    [['a.f', 'b.g']]
    """
    names: dict[str, list[str]] = defaultdict(list)
    for module, source in sources.items():
        for function in ast.parse(source).body:
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                body = body_of(function)
                if sum(1 for statement in body for _ in ast.walk(statement)) >= MIN_NODES:
                    names["\n".join(map(ast.dump, body))].append(f"{module}.{function.name}")
    return [group for group in names.values() if len(group) > 1]


def test_no_two_functions_have_the_same_body() -> None:
    assert duplicates({module: file.read_text(encoding="utf-8") for module, file in MODULES.items()}) == []


def imported_twice(source: str) -> dict[str, set[str]]:
    """Return the objects that a file imports under several names.

    >>> imported_twice("from a import b as one\\nfrom a import b as two, c")["a.b"] == {"one", "two"}
    True
    """
    names: dict[str, set[str]] = defaultdict(set)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                names[module + alias.name].add(alias.asname or alias.name)
    return {name: given for name, given in names.items() if len(given) > 1}


def test_no_file_imports_an_object_under_two_names() -> None:
    """A test of two commands that imports one of them twice tests only that one."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    files = listed.stdout.splitlines()
    assert len(files) > 700
    found = {file: imported_twice((REPOSITORY / file).read_text(encoding="utf-8")) for file in files}
    assert {file: names for file, names in found.items() if names} == {}
