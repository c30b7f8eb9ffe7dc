"""Formulas of the documents: numbered equations and their citations in docstrings, and inline formulas as the site and GitHub read them."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

import pytest

from tests.support.paths import DOCS, REPOSITORY

CITATION = re.compile(r"docs/(?:[\w-]+/)?(\w+\.md),\s+equations?\s+(\([^)]*\)(?:(?:,| and| to)\s+\([^)]*\))*)")
PACKAGES = ("client/hubbub", "aggregator/hubbub_aggregator", "decoder/hubbub_decoder")


EXPLANATION = DOCS / "explanation"
PAGES = {
    "mathematics.md": [EXPLANATION / "mathematics.md", *sorted((EXPLANATION / "mathematics").glob("*.md"))],
    "privacy.md": [EXPLANATION / "privacy.md", EXPLANATION / "privacy-proofs.md"],
}
"""Pages by the name that docstrings cite: the sections of mathematics.md are on the pages that it lists, and proofs have a page."""
DOCUMENTS = sorted([*REPOSITORY.glob("*.md"), *DOCS.rglob("*.md")])
FORMULA = re.compile(r"(?<![\\$\w])\$(?=\S)([^$\n]*[^$\s\\])\$(?![\w$])")


def equations(page: Path) -> list[str]:
    """Return the numbers of a page's equations, in order."""
    return re.findall(r"\\tag\{([^}]+)\}", page.read_text(encoding="utf-8"))


def prose(document: Path) -> str:
    """Return the text of a document without blocks and spans of code."""
    text = re.sub(r"^( *)```.*?^\1```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^(?: {4}.*\n)+", "", text, flags=re.MULTILINE)
    return re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text, flags=re.DOTALL)


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


@pytest.mark.parametrize("pages", PAGES.values(), ids=PAGES)
def test_equations_are_numbered_in_order(pages: list[Path]) -> None:
    found = [number for page in pages for number in equations(page)]
    sections = [
        [int(number.partition(".")[2]) for number in section]
        for _, section in groupby(found, key=lambda number: number.partition(".")[0])
    ]
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in sections)


def test_equations_are_in_the_section_of_their_number() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES["mathematics.md"])
    parts = re.split(r"^## (\d+)\.", text, flags=re.MULTILINE)[1:]
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    assert sorted(map(int, sections)) == list(range(1, 26))
    for section, below in sections.items():
        assert {number.partition(".")[0] for number in re.findall(r"\\tag\{([^}]+)\}", below)} <= {section}


def test_cited_equations_exist() -> None:
    cited = citations()
    assert len(cited) > 30
    known = {name: {number for page in pages for number in equations(page)} for name, pages in PAGES.items()}
    assert {
        (path, *citation)
        for path, all_cited in cited.items()
        for citation in all_cited
        if citation[1] not in known[citation[0]]
    } == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_dollar_signs_and_tex_are_formulas(document: Path) -> None:
    """An amount of money or a formula that is not closed would show its dollar sign, or swallow the text up to the next one."""
    text = prose(document)
    rest = FORMULA.sub("", text)
    assert "$" not in rest
    assert re.findall(r"\\[a-zA-Z]+|[\^_]\{", rest) == []
    words = [re.sub(r"\\[a-z]+(\{[a-z ]*\})?", "", formula) for formula in FORMULA.findall(text)]
    assert [formula for formula in words if re.search(r"[A-Za-z]{3,} [A-Za-z]{3,}", formula)] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_formulas_survive_markdown(document: Path) -> None:
    """GitHub reads `*`, `\\,` and `\\{` in a formula between dollar signs as Markdown, and `|` as the end of a table's cell."""
    text = prose(document)
    formulas = FORMULA.findall(text)
    assert [formula for formula in formulas if re.search(r"\*|\\[^a-zA-Z ]|<[a-zA-Z]", formula)] == []
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert [formula for row in rows for formula in FORMULA.findall(row) if "|" in formula] == []
