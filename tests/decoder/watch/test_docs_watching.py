"""docs/how-to/watching.md: its code and commands run, and those of the example print what the page shows."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from hubbub.cli import main
from hubbub_decoder.data.events import read_events
from tests.decoder.watch.test_notifications import webhook
from tests.support.paths import DOCS

PAGE = (DOCS / "how-to" / "watching.md").read_text(encoding="utf-8")
DATE = re.compile(r"\d{4}-\d\d-\d\d")
NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?%")


def test_example_of_the_page_prints_its_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Percentages to .03, since the last digit depends on the order of sums; other words exactly, but days, which are those before today."""
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code, "docs/how-to/watching.md", "exec"), {})  # noqa: S102
    commands = re.findall(r"^    hubbub (.*)$", PAGE, re.MULTILINE)
    outputs = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    files = sorted(path.name for path in tmp_path.glob("theme-*.parquet"))
    for command, shown, exit_code in zip(commands, outputs, (3, 0), strict=True):
        words = [word for part in command.split() for word in (files if part == "theme-*.parquet" else [part])]
        result = CliRunner().invoke(main, words, catch_exceptions=False)
        assert result.exit_code == exit_code
        expected, printed = (DATE.sub("DAY", text) for text in (shown, result.stdout))
        assert NUMBER.sub("#", expected).split() == NUMBER.sub("#", printed).split()
        for number, other in zip(NUMBER.findall(expected), NUMBER.findall(printed), strict=True):
            assert float(number[:-1]) == pytest.approx(float(other[:-1]), abs=0.03)


def test_commands_of_a_nightly_run_end_without_an_error_at_an_alarm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each in a database of its own; the mail is a file, and the webhook answers 200."""
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code, "docs/how-to/watching.md", "exec"), {})  # noqa: S102
    folder = tmp_path / "summaries" / "theme@1234"
    folder.mkdir(parents=True)
    for path in tmp_path.glob("theme-*.parquet"):
        path.rename(folder / path.name)
    scripts = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    start = f'set -eu; hubbub() {{ "{sys.executable}" -m hubbub "$@" --open-after 0; }}; mail() {{ cat > mail.txt; }}\n'
    with webhook(200) as server:
        for number, script in enumerate(scripts):
            text = script.replace("watch.sqlite", f"{number}.sqlite").replace(
                "https://chat.example.org/hooks/KEY", server.url
            )
            subprocess.run(["bash", "-c", start + text], check=True)
    assert json.loads((tmp_path / "watch.json").read_text())["new_alarms"] == 2
    assert (tmp_path / "mail.txt").read_text().count("ALARM") == 2
    (body,) = server.bodies
    assert body["text"].count("changed by") == len(body["alarms"]) == 2
    assert (tmp_path / "alarms.atom").read_text().count("<entry>") == 2
    assert [(event.metric, event.label.split()[0]) for event in read_events([tmp_path / "alarms.csv"])] == [
        ("theme", "alarm:")
    ] * 2
