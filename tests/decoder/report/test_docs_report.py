"""docs/how-to/report.md: its code runs, and its commands exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from hubbub.cli import main
from tests.support.paths import DOCS
from tests.support.report_pages import chart_data

PAGE = (DOCS / "how-to" / "report.md").read_text(encoding="utf-8")


def test_example_writes_a_page_with_residuals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code, "docs/how-to/report.md", "exec"), {})  # noqa: S102
    assert "residuals" in chart_data(tmp_path / "homepage.html")


def test_options_of_the_commands_exist() -> None:
    commands = re.findall(r"^    hubbub (.*)$", PAGE, re.MULTILINE)
    assert len(commands) == 4
    for command in commands:
        name, *words = command.split()
        usage = CliRunner().invoke(main, [name, "--help"]).output
        assert all(word in usage for word in words if word.startswith("--"))
