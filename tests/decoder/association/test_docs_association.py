"""The worked example of docs/how-to/association.md runs as it is written."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from hubbub.cli import main
from hubbub.metrics.definitions import parse_definitions
from hubbub.privacy import epsilon, epsilon_permanent
from hubbub.privacy.policy import Policy
from hubbub.privacy.pricing import shown_epsilon
from tests.support.paths import DOCS

PAGE = (DOCS / "how-to" / "association.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """Return the code blocks of a language, in order."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_example_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "metrics.toml").write_text(blocks("toml")[0])
    (tmp_path / "population.csv").write_text(blocks("csv")[0])
    (tmp_path / "carriers.txt").write_text("UA\nB6\nDL\n")
    commands = [
        line
        for block in blocks("sh")
        for line in block.splitlines()
        if line.startswith(("hubbub simulate", "hubbub associate"))
    ]
    assert len(commands) == 2
    for command in commands:
        ran = CliRunner().invoke(main, shlex.split(command)[1:])
        assert ran.exit_code == 0, ran.output
    assert "carrier and origin depend on each other" in " ".join(ran.output.split())
    assert "UA x EWR" in ran.output
    assert (tmp_path / "flight.svg").stat().st_size > 1000
    assert len((tmp_path / "pairs.csv").read_text().splitlines()) == 1 + 5 * 4


def test_session_of_the_page_prints_its_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "metrics.toml").write_text(blocks("toml")[0])
    session = "".join(block for block in blocks("python") if ">>>" in block)
    test = doctest.DocTestParser().get_doctest(session, {}, "association.md", None, 0)
    assert doctest.DocTestRunner().run(test).failed == 0


def test_epsilon_of_the_page_is_that_of_its_definition() -> None:
    flight = parse_definitions(blocks("toml")[0])["flight"]
    (once, lasting), (both, both_lasting) = ((epsilon(p), epsilon_permanent(p)) for p in (flight.components[1], flight))
    assert (epsilon(flight.components[0]), epsilon_permanent(flight.components[0])) == (once, lasting)
    assert f"each part has epsilon {shown_epsilon(once)} per report and {shown_epsilon(lasting)} for any number" in PAGE
    assert f"the metric has {shown_epsilon(both)} and {shown_epsilon(both_lasting)}." in PAGE
    assert Policy().objection(flight) is None
