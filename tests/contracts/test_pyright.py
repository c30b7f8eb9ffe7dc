"""Pyright, the checker inside Pylance, finds what mypy finds, and no error in the examples and the documents' programs.

It is a development dependency of the TypeScript client, so that one `npm ci` installs all that needs Node.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from doctest import script_from_examples
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.paths import DOCS, REPOSITORY
from tests.support.programs import installed

PYRIGHT = REPOSITORY / "clients" / "typescript" / "node_modules" / "pyright" / "index.js"
MISTAKES = REPOSITORY / "tests" / "contracts" / "typing_mistakes.py"
PUBLIC_API = REPOSITORY / "tests" / "contracts" / "typing_example.py"
EXAMPLES = REPOSITORY / "examples"
PAGES = [REPOSITORY / "README.md", *sorted(DOCS.rglob("*.md"))]


class Problem(NamedTuple):
    """An error that pyright reports; the line counts from one."""

    file: str
    line: int
    message: str


@pytest.fixture(scope="module")
def pyright() -> list[str]:
    """Command of pyright with this environment; without it the tests are skipped."""
    node = installed("node", "nodejs")
    if not PYRIGHT.exists():
        reason = "pyright is not installed: make typescript (it needs node and npm)"
        if "node" in os.environ.get("HUBBUB_TEST_REQUIRE", "").split(","):
            pytest.fail(reason)
        pytest.skip(reason)
    return [node, str(PYRIGHT), "--outputjson", "--pythonpath", sys.executable, "--project"]


def problems(pyright: list[str], folder: Path, files: dict[str, str], **options: bool) -> list[Problem]:
    """Write the files to the folder, check them with pyright, and return its errors."""
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "pyrightconfig.json").write_text(json.dumps({"include": [*files], **options}))
    # pandas has no types, and Pylance brings its own, so here a frame may be anything
    stubs = folder / "typings" / "pandas"
    stubs.mkdir(parents=True)
    (stubs / "__init__.pyi").write_text("from typing import Any\n\ndef __getattr__(name: str) -> Any: ...\n")
    report = json.loads(subprocess.run([*pyright, folder], capture_output=True, check=False, timeout=300).stdout)
    assert report["summary"]["filesAnalyzed"] == len(files)
    return [
        Problem(Path(found["file"]).name, found["range"]["start"]["line"] + 1, found["message"])
        for found in report["generalDiagnostics"]
        if found["severity"] == "error"
    ]


def app_files() -> dict[str, str]:
    """Return the text of each program that an app developer reads, by a file name; the last line of some sets options."""
    files = {
        PUBLIC_API.name: f"{PUBLIC_API.read_text()}\n# pyright: strict\n",
        "notebook.py": notebook_program(),
    }
    files |= {f"example_{file.name}": file.read_text() for file in EXAMPLES.glob("*.py")}
    for page in PAGES:
        if program := page_program(page.read_text(encoding="utf-8")):
            name = re.sub(r"\W", "_", str(page.relative_to(REPOSITORY).with_suffix("")))
            # a page uses names such as `summary`, which its text introduces
            files[f"page_{name}.py"] = f"{program}\n# pyright: reportUndefinedVariable=false\n"
    return files


def page_program(text: str) -> str:
    """Return the Python blocks of a page as one program, without excerpts of the examples, which are checked themselves."""
    blocks: list[str] = re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    whole = [block for block in blocks if not block.startswith("# examples/")]
    return "\n".join(script_from_examples(block) if block.startswith(">>>") else block for block in whole)


def notebook_program() -> str:
    cells = json.loads((EXAMPLES / "analysis.ipynb").read_text(encoding="utf-8"))["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")


def test_pyright_refuses_each_wrong_use(pyright: list[str], tmp_path: Path) -> None:
    text = MISTAKES.read_text(encoding="utf-8")
    lines = text.splitlines()
    marked = {line for line, code in enumerate(lines, start=1) if re.search(r"# type: ignore\[", code)}
    refused = {
        problem.line for problem in problems(pyright, tmp_path, {MISTAKES.name: text}, enableTypeIgnoreComments=False)
    }
    assert len(marked) > 20
    assert [lines[line - 1] for line in sorted(marked - refused)] == [], "pyright accepts these"
    assert [lines[line - 1] for line in sorted(refused - marked)] == [], "pyright refuses these, which are right"


@pytest.mark.slow
def test_apps_see_no_error(pyright: list[str], tmp_path: Path) -> None:
    assert problems(pyright, tmp_path, app_files()) == []


def test_programs_of_the_documents_are_found() -> None:
    pages = {"page_README.py", "page_docs_tutorial.py", "page_docs_how_to_association.py"}
    assert pages <= set(app_files())
