"""No module, of the packages or the tests, imports a private name of another one."""

from __future__ import annotations

import ast

from tests.support.paths import REPOSITORY


def private_imports(source: str) -> list[str]:
    """Return the private names that a module imports from another one; modules of Python itself are not looked at.

    >>> private_imports("import _thread\\nfrom hubbub.text import _join, plural\\nfrom tests import _helpers")
    ['hubbub.text._join', 'tests._helpers']
    """
    return [
        f"{node.module}.{alias.name}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name.startswith("_") and not alias.name.startswith("__")
    ]


def test_no_module_imports_a_private_name() -> None:
    folders = ("client", "aggregator", "decoder", "tests")
    files = sorted(file for folder in folders for file in (REPOSITORY / folder).rglob("*.py"))
    assert len(files) > 400
    found = {str(file.relative_to(REPOSITORY)): private_imports(file.read_text(encoding="utf-8")) for file in files}
    assert {file: names for file, names in found.items() if names} == {}
