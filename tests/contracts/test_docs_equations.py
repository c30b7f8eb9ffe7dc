"""Numbered equations of docs/mathematics.md and docs/privacy.md, and their citations in docstrings."""

from __future__ import annotations

import re
from itertools import groupby

import pytest

from tests.support.paths import DOCS, REPOSITORY

CITATION = re.compile(r"docs/(?:[\w-]+/)?(\w+\.md),\s+equations?\s+(\([^)]*\)(?:(?:,| and| to)\s+\([^)]*\))*)")
PACKAGES = ("client/hubbub", "aggregator/hubbub_aggregator", "decoder/hubbub_decoder")


def equations(page: str) -> list[str]:
    """Return the numbers of a page's equations, in order."""
    (path,) = DOCS.rglob(page)
    return re.findall(r"\\tag\{([^}]+)\}", path.read_text(encoding="utf-8"))


def citations() -> dict[str, list[tuple[str, str]]]:
    """Return the cited (page, number) of each Python file that cites any."""
    found = {}
    for package in PACKAGES:
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            cited = [
                (page, number)
                for page, numbers in CITATION.findall(path.read_text(encoding="utf-8"))
                for number in re.findall(r"\(([^)]*)\)", numbers)
            ]
            if cited:
                found[str(path.relative_to(REPOSITORY))] = cited
    return found


@pytest.mark.parametrize("page", ["mathematics.md", "privacy.md"])
def test_equations_are_numbered_in_order(page: str) -> None:
    sections = [
        [int(number.partition(".")[2]) for number in section]
        for _, section in groupby(equations(page), key=lambda number: number.partition(".")[0])
    ]
    assert sections
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in sections)


def test_equations_are_in_the_section_of_their_number() -> None:
    parts = re.split(r"^## (\d+)\.", (DOCS / "mathematics.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    for section, text in zip(parts[::2], parts[1::2], strict=True):
        assert {number.partition(".")[0] for number in re.findall(r"\\tag\{([^}]+)\}", text)} <= {section}


def test_cited_equations_exist() -> None:
    cited = citations()
    assert len(cited) > 30
    known = {page: set(equations(page)) for page in ("mathematics.md", "privacy.md")}
    assert {
        (path, *each) for path, all_cited in cited.items() for each in all_cited if each[1] not in known[each[0]]
    } == set()
