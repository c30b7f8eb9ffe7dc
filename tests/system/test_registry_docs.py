"""The worked example of docs/how-to/registry.md: its commands print the output that the page shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from hubbub.cli import main
from hubbub.metrics.changes import ChangeKind
from tests.support.paths import REPOSITORY

PAGE = (REPOSITORY / "docs" / "how-to" / "registry.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


def test_example_prints_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (old,) = blocks("toml")
    edited = old.replace("prob_f = 0.5", "prob_f = 0.75")
    reviewed = edited.replace("reviews/12", "reviews/15")
    for name, text in {"old": old, "edited": edited, "metrics": f"{old}\n{reviewed}"}.items():
        Path(f"{name}.toml").write_text(text)
    exit_codes = []
    for block in blocks("console"):
        command, _, shown = block.partition("\n")
        printed = CliRunner().invoke(main, shlex.split(command.removeprefix("$ hubbub ")))
        assert printed.stdout + printed.stderr == shown
        exit_codes.append(printed.exit_code)
    assert exit_codes == [1]
    printed = CliRunner().invoke(main, ["metrics", "diff", "old.toml", "metrics.toml"])
    assert (printed.exit_code, "f1ddd7b68b2e: new version" in printed.stdout) == (0, True)


def test_page_lists_every_kind_of_change() -> None:
    table = PAGE.partition("## Changes")[2].partition("## Worked example")[0]
    rows = [row.split(" | ")[0] for row in table.splitlines() if row.startswith("| `")]
    assert sorted(re.findall(r"`([\w ]+)`", " ".join(rows))) == sorted(ChangeKind)
