"""No module imports a private name of another one, no variable is called `each`, and the formatter splits every line."""

from __future__ import annotations

import ast
import re
from functools import cache

from tests.support.paths import REPOSITORY

FOLDERS = ("client", "aggregator", "decoder", "tests", "benchmarks", "examples", "docs", "deploy")
NOT_FORMATTED = {"decoder/hubbub_decoder/estimators/reports/likelihood_ratios.py", "tests/system/test_exit_codes.py"}
"""Files with a formula that the formatter would tear into its factors, or a table that it would make twice as long."""


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


def unnamed_variables(source: str) -> list[int]:
    """Return the lines that bind `each`, which says of a value only that there are others.

    >>> unnamed_variables("for each in rows:\\n    print(each)\\nlongest = max(rows, key=lambda each: len(each))")
    [1, 3]
    >>> unnamed_variables("total = sum(each.size for number, each in files.items())")
    [1]
    """
    bound = (
        node
        for node in ast.walk(ast.parse(source))
        if (isinstance(node, ast.Name) and node.id == "each" and isinstance(node.ctx, ast.Store))
        or (isinstance(node, ast.arg) and node.arg == "each")
    )
    return sorted(node.lineno for node in bound)


def torn_comments(source: str) -> list[int]:
    """Return the lines with a comment behind a closing bracket. It was behind a line that the formatter has split.

    >>> torn_comments("found = decode(\\n    counts, names\\n)  # at 95 %\\nother = f(\\n    2\\n)  # noqa: S311")
    [3]
    """
    behind = re.compile(r"\s*[])}].*  #(?! *(noqa|type: ignore|fmt: ))")
    return [number for number, line in enumerate(source.splitlines(), start=1) if behind.match(line)]


@cache
def sources() -> dict[str, str]:
    files = sorted(file for folder in FOLDERS for file in (REPOSITORY / folder).rglob("*.py"))
    assert len(files) > 400
    return {str(file.relative_to(REPOSITORY)): file.read_text(encoding="utf-8") for file in files}


def test_no_module_imports_a_private_name() -> None:
    found = {file: private_imports(source) for file, source in sources().items()}
    assert {file: names for file, names in found.items() if names} == {}


def test_variables_are_named_for_what_they_hold() -> None:
    found = {file: unnamed_variables(source) for file, source in sources().items()}
    assert {file: lines for file, lines in found.items() if lines} == {}


def test_no_line_is_kept_from_the_formatter_but_formulas_and_tables() -> None:
    assert {file for file, source in sources().items() if re.search(r"# fmt: (skip|off)\b", source)} == NOT_FORMATTED


def test_comments_are_above_code_of_several_lines() -> None:
    found = {file: torn_comments(source) for file, source in sources().items()}
    assert {file: lines for file, lines in found.items() if lines} == {}
