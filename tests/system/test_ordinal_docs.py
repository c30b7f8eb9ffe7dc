"""The worked example of docs/ordinal.md: its definition, population and commands give the output that the page shows."""

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

PAGE = (REPOSITORY / "docs" / "ordinal.md").read_text()


def block(language: str) -> str:
    (text,) = re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)
    return str(text)


def test_example_prints_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("metrics.toml").write_text(block("toml"))
    Path("population.csv").write_text(block("csv"))
    lines = block("console").splitlines()
    commands = [shlex.split(line.removeprefix("$ hubbub ")) for line in lines if line.startswith("$ ")]
    printed = [CliRunner().invoke(main, command) for command in commands]
    assert [done.exit_code for done in printed] == [0, 0]
    shown = [line for line in lines if not line.startswith("$ ")]
    assert [line.rstrip() for line in printed[1].stdout.splitlines()] == shown
    assert Path("start_time.svg").stat().st_size > 1000


def test_page_lists_every_field_of_buckets() -> None:
    table = PAGE.partition("## Recording")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE) == list(BUCKET_FIELDS)


def test_counters_edges_have_the_stated_representatives() -> None:
    edges, representatives = (
        [float(each) for each in found.split(",")]
        for found in re.search(r"`edges = \[([^]]*)\]` has.*?`representatives = \[([^]]*)\]`", PAGE, re.DOTALL).groups()  # type: ignore[union-attr]
    )
    assert Buckets(tuple(edges), representatives=tuple(representatives)).labels == (
        *("below 1", "1 to 2", "2 to 5", "5 to 10", "10 or more"),
    )
