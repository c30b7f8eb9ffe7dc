"""The worked example of docs/how-to/trends.md: its code and commands run and print what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from hubbub.cli import main
from tests.support.paths import DOCS

PAGE = (DOCS / "how-to" / "trends.md").read_text(encoding="utf-8")
NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?(?:e-?\d+)?")


def test_example_of_the_page_prints_its_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers to .03, since the last digit depends on the order of sums; words exactly."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code, "docs/how-to/trends.md", "exec"), {})  # noqa: S102
    commands = re.findall(r"^    hubbub (\w+ .*)$", PAGE, re.MULTILINE)
    assert len(commands) == 2
    outputs = []
    for command in commands:
        result = CliRunner().invoke(main, command.split(), catch_exceptions=False)
        assert result.exit_code == 0, result.output
        outputs.append(result.stdout)
    (shown,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    assert NUMBER.sub("#", shown).split() == NUMBER.sub("#", outputs[0]).split()
    for expected, printed in zip(NUMBER.findall(shown), NUMBER.findall(outputs[0]), strict=True):
        assert float(printed) == pytest.approx(float(expected), abs=0.03)
    assert "Detected changes in 1 pair of successive periods: 2." in outputs[1]
