"""README, front page, limits and alternatives: their figures are those of the commands, and each claim has a source."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from hubbub.cli import main
from tests.support.paths import DOCS, REPOSITORY

README, FRONT = REPOSITORY / "README.md", DOCS / "index.md"
PLANNING = (DOCS / "how-to" / "planning.md").read_text()
ALTERNATIVES = (DOCS / "explanation" / "alternatives.md").read_text()
COMMAND = "hubbub plan --epsilon 2 --longitudinal 4 --num-candidates 200 --reports 10000"
REPORTS = 10_000, 100_000, 1_000_000
ROWS = {
    "yes or no": "a yes-or-no question",
    "one of 10 categories": "10 categories",
    "one of 200 strings": "200 strings",
    "one of 2,000 strings, such as a package that is drawn from those installed": "2,000 packages",
}
"""Rows of the guide, and their names on the first pages."""


def rows(text: str) -> dict[str, list[str]]:
    """Return the cells of each row of the tables of a text by the first cell."""
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return {first: others for first, *others in cells}


def percent(text: str) -> float:
    return float(text.removesuffix(" %"))


@pytest.mark.parametrize("question", ROWS)
def test_users_that_one_needs_are_those_that_plan_prints(question: str) -> None:
    assert f"    {COMMAND}\n" in PLANNING
    *limits, options = rows(PLANNING)[question]
    start = COMMAND.partition(" --num-candidates")[0].removeprefix("hubbub ")
    for reports, limit in zip(REPORTS, limits, strict=True):
        command = f"{start} {options.strip('`')} --reports {reports}"
        printed = CliRunner().invoke(main, shlex.split(command)).stderr
        assert re.search(r"^detection limit +([\d.]+ %)", printed, re.MULTILINE)[1] == limit, command  # type: ignore[index]


@pytest.mark.parametrize("page", [README, FRONT], ids=lambda page: page.name)
def test_figures_of_the_first_pages_are_those_of_the_guide(page: Path) -> None:
    shown = {name: cells for name, cells in rows(page.read_text()).items() if name in ROWS.values()}
    assert len(shown) >= 2
    guide = rows(PLANNING)
    for name, cells in shown.items():
        (question,) = (long for long, short in ROWS.items() if short == name)
        for cell, exact in zip(cells, guide[question], strict=False):
            digits = len(cell.partition(".")[2].split()[0])
            assert abs(percent(cell) - percent(exact)) <= 0.5 * 10**-digits + 1e-9, name


def test_first_sentence_has_no_word_of_the_mathematics() -> None:
    sentences = {page: page.read_text().splitlines()[2] for page in (README, FRONT)}
    assert len(set(sentences.values())) == 1
    for sentence in sentences.values():
        assert not re.search(r"epsilon|privacy|RAPPOR|randomiz|[α-ω]", sentence)


def test_each_alternative_has_sources_and_a_cell_in_each_row() -> None:
    tools = re.search(r"^\| topic \| hubbub \| (.+) \|$", ALTERNATIVES, re.MULTILINE)
    assert tools
    names = tools[1].split(" | ")
    table, _, sources = ALTERNATIVES.partition("## Sources")
    for row in rows(table).values():
        assert len(row) == 1 + len(names)
    assert all(len(re.findall(r"\]\(https://", rows(sources)[name][0])) >= 3 for name in names)
