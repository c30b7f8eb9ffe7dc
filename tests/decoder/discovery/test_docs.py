"""The worked example of docs/how-to/discovery.md runs and finds its strings."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hubbub.metrics.definitions import load_definitions
from hubbub_decoder.discovery.discover import discovery_of
from tests.support.paths import DOCS


def blocks(language: str) -> list[str]:
    text = (DOCS / "how-to" / "discovery.md").read_text(encoding="utf-8")
    return list(re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL))


@pytest.mark.slow
def test_example_of_the_discovery_page_finds_its_strings(tmp_path: Path) -> None:
    """Each share is above 20 standard errors of each group: 300,000 reports in 6 groups at epsilon 3."""
    (tmp_path / "metrics.toml").write_text(blocks("toml")[0])
    done = subprocess.run(
        [sys.executable, "-c", blocks("python")[0]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert {line.split()[0] for line in done.stdout.splitlines()} >= {"push", "pull", "commit", "re-base", "log"}


def test_groups_of_the_discovery_page_are_those_of_its_definition(tmp_path: Path) -> None:
    (tmp_path / "metrics.toml").write_text(blocks("toml")[0])
    discover = discovery_of(load_definitions(tmp_path / "metrics.toml")["command"])
    assert discover.lengths == (2, 4, 6, 8, 9)
    assert "prefixes of 2, 4, 6, 8 and 9 characters" in (DOCS / "how-to" / "discovery.md").read_text(encoding="utf-8")
