"""Tests use names that the packages, and the tests' own helpers, offer: none imports a private one."""

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


def test_no_test_imports_a_private_name() -> None:
    files = sorted((REPOSITORY / "tests").rglob("*.py"))
    assert len(files) > 200
    found = {str(file.relative_to(REPOSITORY)): private_imports(file.read_text(encoding="utf-8")) for file in files}
    assert {file: names for file, names in found.items() if names} == {}
