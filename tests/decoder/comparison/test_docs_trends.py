"""The worked examples of docs/how-to/trends.md: their code and commands run and print what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from hubbub.cli import main
from tests.support.paths import DOCS
from tests.support.report_pages import chart_data

PAGE = (DOCS / "how-to" / "trends.md").read_text(encoding="utf-8")
NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?(?:e-?\d+)?")


def test_examples_of_the_page_print_their_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers to .03, since the last digit depends on the order of sums; words exactly."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(code, "docs/how-to/trends.md", "exec"), {})  # noqa: S102
    (releases,) = re.findall(r"```\n(date,label\n.*?)```", PAGE, re.DOTALL)
    Path("releases.csv").write_text(releases)
    commands = re.findall(r"^    hubbub (\w+ .*)$", PAGE, re.MULTILINE)
    assert len(commands) == 4
    outputs = []
    for command in commands:
        result = CliRunner().invoke(main, command.split(), catch_exceptions=False)
        assert result.exit_code == 0, result.output
        outputs.append(result.stdout)
    comparison, pair, weeks, _ = outputs
    for shown, output in zip(re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL), (comparison, weeks), strict=True):
        assert NUMBER.sub("#", shown).split() == NUMBER.sub("#", output).split()
        for expected, printed in zip(NUMBER.findall(shown), NUMBER.findall(output), strict=True):
            assert float(printed) == pytest.approx(float(expected), abs=0.03)
    events = [{"period": "2026-03-09", "labels": ["2.1"]}, {"period": "2026-03-23", "labels": ["2.2, beta"]}]
    assert chart_data(Path("trend.html"))["events"] == events
    assert "Detected changes in 1 pair of successive periods: 2." in pair
