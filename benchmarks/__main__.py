"""The list of all benchmarks: each module, and the question of its first line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
USES_RUNNER = re.compile(r"^from benchmarks\.runner import .*\bBenchmark\b", re.MULTILINE)


def programs() -> Iterator[tuple[str, str]]:
    """Yield the name of each benchmark's module and the first line of its docstring."""
    for path in (*sorted(HERE.glob("*.py")), HERE / "peers" / "__main__.py", *sorted(HERE.glob("studies/*.py"))):
        source = path.read_text(encoding="utf-8")
        if USES_RUNNER.search(source):
            name = ".".join(path.relative_to(HERE.parent).with_suffix("").parts).removesuffix(".__main__")
            yield name, (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]


if __name__ == "__main__":
    for name, question in programs():
        print(f"python -m {name}\n    {question}")
