"""Draw docstrings and messages of the three packages for a fresh reader, by the commit's hash.

    python -m tests.contracts.draw_texts 40 [SEED]

Half are docstrings of public modules, classes and functions; half are messages: errors, warnings, log lines, CLI help.
The reader states the meaning and, for a message, the next step. SEED defaults to the hash of HEAD and is printed.
"""

from __future__ import annotations

import ast
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import REPOSITORY

PACKAGES = ("client/hubbub", "aggregator/hubbub_aggregator", "decoder/hubbub_decoder")
MIN_WORDS = 5


def docstrings(tree: ast.Module, place: str) -> Iterator[tuple[str, str]]:
    """Yield (place, text) of each public docstring."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = getattr(node, "name", "module")
            text = ast.get_docstring(node)
            if text and not name.startswith("_"):
                yield f"{place}: {name}", text


def text_of(node: ast.AST) -> str | None:
    """Return the text of a string literal, with `{...}` for each value of an f-string, or None.

    >>> text_of(ast.parse("f'{count} reports'", mode="eval").body)
    '{...} reports'
    """
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{...}" for part in node.values)
    return None


def messages(tree: ast.Module, place: str) -> Iterator[tuple[str, str]]:
    """Yield (place, text) of each call with a text of some words: errors, log lines, warnings, help.

    The texts of one call are one message, as a finding is printed with its observation, impact and next step.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            arguments = (*node.args, *(keyword.value for keyword in node.keywords))
            texts = [text for text in map(text_of, arguments) if text]
            if any(len(text.split()) >= MIN_WORDS for text in texts):
                yield f"{place}:{node.lineno}", "\n".join(texts)


def main() -> None:
    count = int(sys.argv[1])
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    seed = sys.argv[2] if len(sys.argv) > 2 else head.stdout.strip()
    files = sorted(file for package in PACKAGES for file in (REPOSITORY / package).rglob("*.py"))
    trees = {str(file.relative_to(REPOSITORY)): ast.parse(Path(file).read_text(encoding="utf-8")) for file in files}
    draw = random.Random(seed)  # noqa: S311  a sample for a reader, no secret
    sys.stdout.write(f"seed {seed}\n")
    for kind in (docstrings, messages):
        population = [text for place, tree in trees.items() for text in kind(tree, place)]
        for number, (place, text) in enumerate(draw.sample(population, count // 2), 1):
            sys.stdout.write(f"\n[{kind.__name__} {number}] {place}\n{text}\n")


if __name__ == "__main__":
    main()
