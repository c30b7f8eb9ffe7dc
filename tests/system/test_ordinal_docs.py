"""The worked example of docs/how-to/ordinal.md: its definition, population and commands give the output that the page shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from hubbub import Buckets
from hubbub.cli import main
from hubbub.metrics.buckets import BUCKET_FIELDS
from tests.support.paths import REPOSITORY

PAGE = (REPOSITORY / "docs" / "how-to" / "ordinal.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.mark.parametrize("example", [0, 1], ids=["distribution", "mean"])
def test_example_prints_what_the_page_shows(example: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("metrics.toml").write_text(blocks("toml")[example])
    Path("population.csv").write_text(blocks("csv")[example])
    lines = blocks("console")[example].splitlines()
    commands = [shlex.split(line.removeprefix("$ hubbub ")) for line in lines if line.startswith("$ ")]
    printed = [CliRunner().invoke(main, command) for command in commands]
    assert [done.exit_code for done in printed] == [0, 0]
    shown = [line for line in lines if not line.startswith("$ ")]
    assert [line.rstrip() for line in printed[1].stdout.splitlines()] == shown
    assert Path("start_time.svg").exists() == (example == 0)


def test_example_of_the_mean_has_the_stated_mean() -> None:
    rows = [row.split(",") for row in blocks("csv")[1].splitlines()[1:]]
    numbers = [(min(float(value or 0), 240), int(count)) for value, count in rows]
    mean = sum(value * count for value, count in numbers) / sum(count for _, count in numbers)
    assert f"is {mean:.1f} minutes" in PAGE


def test_page_lists_every_field_of_buckets() -> None:
    table = PAGE.partition("## Recording")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE) == list(BUCKET_FIELDS)


def test_counters_edges_have_the_stated_representatives() -> None:
    edges, representatives = (
        [float(number) for number in found.split(",")]
        for found in re.search(r"`edges = \[([^]]*)\]` has.*?`representatives = \[([^]]*)\]`", PAGE, re.DOTALL).groups()  # type: ignore[union-attr]
    )
    assert Buckets(tuple(edges), representatives=tuple(representatives)).labels == (
        *("below 1", "1 to 2", "2 to 5", "5 to 10", "10 or more"),
    )
