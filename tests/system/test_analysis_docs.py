"""The Python blocks of docs/analysis.md run one after the other, and the page names every public plot."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib
import pytest
from matplotlib import pyplot

from hubbub_decoder import plots
from tests.support.paths import DOCS

PAGE = (DOCS / "analysis.md").read_text()


def test_code_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matplotlib.use("agg")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL):
        exec(block, names)  # noqa: S102
    pyplot.close("all")
    assert (tmp_path / "homepage.svg").exists()


def test_page_names_every_public_plot() -> None:
    assert {*re.findall(r"plots\.(plot_\w+)", PAGE)} == {name for name in plots.__all__ if name.startswith("plot_")}
