"""docs/questions.md: every question of a reader is answered within two clicks of the front page, and found by the site's search."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

import pytest

from tests.contracts.test_docs_links import broken_links
from tests.support.paths import DOCS

FRONT, QUESTIONS = DOCS / "index.md", DOCS / "questions.md"
SEARCHES = {
    "other languages": "how-to/other-languages.md",
    "retire metric delete data": "how-to/retention.md",
    "publish results every night": "how-to/nightly.md",
    "alarm changes": "how-to/watching.md",
    "share below 0 above 100": "how-to/reading-results.md",
    "most frequent smallest q value": "how-to/reading-results.md",
    "q value adjusted interval": "how-to/reading-results.md",
    "active users": "how-to/reading-results.md",
    "gdpr": "how-to/data-protection.md",
    "personal data": "how-to/data-protection.md",
    "legal basis": "how-to/data-protection.md",
    "rights": "how-to/data-protection.md",
    "epsilon acceptable": "explanation/acceptable-epsilon.md",
    "nist": "explanation/acceptable-epsilon.md",
    "traffic disk battery": "how-to/client.md",
    "sql": "how-to/exporting.md",
    "grafana": "how-to/exporting.md",
    "bi tools": "how-to/exporting.md",
    "uninstall": "how-to/uninstalling.md",
    "a/b tests": "how-to/groups.md",
    "reports do not arrive": "how-to/no-reports.md",
    "disk full": "how-to/disk-full.md",
    "upgrade": "how-to/upgrading.md",
    "back up restore": "how-to/backup.md",
    "rotate token": "how-to/tokens.md",
    "overload limits": "how-to/overload.md",
    "behind proxy": "how-to/proxy.md",
    "alerts": "how-to/alerts.md",
    "results in the browser": "how-to/exploring.md",
}
"""What a person types into the search, and the page that answers it."""


def linked_pages(page: Path) -> set[Path]:
    """Return the pages of the documentation to which a page links, without decision records."""
    targets = re.findall(r"\]\(([^)#\s]+\.md)[^)]*\)", page.read_text(encoding="utf-8"))
    found = {(page.parent / target).resolve() for target in targets if "://" not in target}
    return {path for path in found if "decisions" not in path.parts}


def headings(page: Path) -> list[str]:
    """Return the headings of a page in lower case, which the search ranks first."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [heading.lower() for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)]


@pytest.mark.parametrize("words", SEARCHES)
def test_a_heading_has_the_words_that_a_reader_searches(words: str) -> None:
    found = headings(DOCS / SEARCHES[words])
    assert any(all(word in heading for word in words.split()) for heading in found), found


@pytest.mark.parametrize("target", sorted(set(SEARCHES.values())))
def test_the_answer_is_two_clicks_from_the_front_page(target: str) -> None:
    first = linked_pages(FRONT)
    assert DOCS / target in first | set(chain.from_iterable(linked_pages(page) for page in first))


def test_each_question_leads_to_a_page_that_answers_it() -> None:
    text = QUESTIONS.read_text(encoding="utf-8")
    questions = text.split("\n### ")[1:]
    assert len(questions) >= 14
    for question in questions:
        title, _, answer = question.partition("\n")
        assert title.endswith("?"), title
        assert re.search(r"\]\([\w/-]+\.md", answer), title
    assert QUESTIONS in linked_pages(FRONT)
    assert broken_links(QUESTIONS) == []
