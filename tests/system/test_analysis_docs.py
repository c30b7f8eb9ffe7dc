"""The Python blocks of docs/how-to/analysis.md run one after the other, and its filters keep every kind of metric; it names every public plot.

All code that asks whether something is detected, in the documents and the examples, is run by a test.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import matplotlib
import pytest
from matplotlib import pyplot

from hubbub_decoder import Decoding, plots
from tests.support.every_result import results
from tests.support.paths import DOCS, REPOSITORY

PAGE = (DOCS / "how-to" / "analysis.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
DETECTED = re.compile(r"\bdetected\b")
RUN = {
    "docs/how-to/exporting.md": 3,  # test_results_docs.py
    "docs/how-to/analysis.md": 2,
    "docs/how-to/discovery.md": 1,  # strings of a search, which are tested
    "examples/analysis.ipynb": 2,  # strings of a list, which are tested: test_notebook.py
    "deploy/grafana/make_results_dashboard.py": True,  # results_store/test_database.py, which runs what it makes:
    "deploy/grafana/results.json": True,
    "docs/reference/results-schema.md": 1,  # results_store/test_database.py
}
"""Number of blocks of code by file that ask whether something is detected."""


def test_code_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matplotlib.use("agg")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in BLOCKS:
        exec(block, names)  # noqa: S102
    pyplot.close("all")
    assert (tmp_path / "homepage.svg").exists()


def test_page_names_every_public_plot() -> None:
    assert {*re.findall(r"plots\.(plot_\w+)", PAGE)} == {name for name in plots.__all__ if name.startswith("plot_")}


@pytest.mark.parametrize("block", [block for block in BLOCKS if DETECTED.search(block)])
@pytest.mark.parametrize(
    "name", [name for name, result in results().items() if isinstance(result, Decoding) and result]
)
def test_filters_of_the_page_keep_what_was_not_tested(block: str, name: str) -> None:
    decoding = results()[name]
    *statements, last = ast.parse(block).body
    assert isinstance(last, ast.Expr)
    names: dict[str, object] = {"decoding": decoding}
    exec(compile(ast.Module(statements, []), "page", "exec"), names)  # noqa: S102
    shown = eval(compile(ast.Expression(last.value), "page", "eval"), names)  # noqa: S307
    kept = [estimate for estimate in decoding if estimate.detected is not False and estimate.share == estimate.share]
    assert kept
    assert sorted(shown["candidate"]) == sorted(estimate.candidate for estimate in kept)


def test_all_code_about_detection_is_run() -> None:
    found: dict[str, int] = {}
    for path in sorted(REPOSITORY.glob("docs/**/*.md")) + sorted(REPOSITORY.glob("*.md")):
        code = re.findall(r"```(?:python|sql|sh)\n(.*?)```", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        found[path.relative_to(REPOSITORY).as_posix()] = sum(bool(DETECTED.search(block)) for block in code)
    for path in sorted(REPOSITORY.glob("examples/**/*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        found[path.relative_to(REPOSITORY).as_posix()] = sum(bool(DETECTED.search(block)) for block in code)
    for path in (*REPOSITORY.glob("examples/**/*.py"), *(p for p in REPOSITORY.glob("deploy/**/*") if p.is_file())):
        found[path.relative_to(REPOSITORY).as_posix()] = bool(DETECTED.search(path.read_text(encoding="utf-8")))
    assert {name: number for name, number in found.items() if number} == RUN
