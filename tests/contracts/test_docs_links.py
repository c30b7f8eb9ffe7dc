"""Links between the documents: the file and the heading of each link exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.paths import DOCS, REPOSITORY

DOCUMENTS = sorted([*REPOSITORY.glob("*.md"), *DOCS.rglob("*.md")])


def anchors_of(markdown: str) -> set[str]:
    """Return the anchors of a document's headings, as GitHub makes them.

    >>> sorted(anchors_of("# Problem types\\n\\n## `hubbub doctor`: checks"))
    ['hubbub-doctor-checks', 'problem-types']
    """
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", markdown, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(document: Path) -> list[str]:
    text = document.read_text(encoding="utf-8")
    broken = []
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", text):
        if "://" in target or target.startswith("mailto:"):
            continue
        file = document.parent / target if target else document
        if not file.exists() or (
            anchor and file.suffix == ".md" and anchor not in anchors_of(file.read_text(encoding="utf-8"))
        ):
            broken.append(f"{target}#{anchor}")
    return broken


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_links_lead_to_existing_files_and_headings(document: Path) -> None:
    assert broken_links(document) == []


def test_decisions_index_lists_every_record() -> None:
    index = (DOCS / "decisions" / "README.md").read_text(encoding="utf-8")
    records = {path.name for path in (DOCS / "decisions").glob("0*.md")}
    assert len(records) > 40
    assert set(re.findall(r"\]\((0[^)]+\.md)\)", index)) == records
