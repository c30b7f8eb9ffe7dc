"""Names in the documents: links, headings, Python files, and members of public classes exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import hubbub
import hubbub_decoder
from tests.support.paths import DOCS, REPOSITORY

DOCUMENTS = sorted([*REPOSITORY.glob("*.md"), *DOCS.rglob("*.md")])
SOURCE_FOLDERS = [
    REPOSITORY / folder
    for folder in (
        "client/hubbub",
        "aggregator/hubbub_aggregator",
        "decoder/hubbub_decoder",
        "tests",
        "benchmarks",
        "examples",
        "deploy",
        "docs/_sphinx",
        "docs/reference",
    )
]
SOURCE_FILES = {path for folder in SOURCE_FOLDERS for path in folder.rglob("*.py")}


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


def missing_python_files(text: str) -> list[str]:
    """Return the Python paths in a text that name no file.

    A path starts at the repository or at a source folder; a bare file name may be in any source folder.

    >>> missing_python_files("`store/clock_state.py`, `tests/conftest.py`, `clock_state.py` and `store/credible_clock.py`")
    ['store/credible_clock.py']
    """
    names = {path.name for path in SOURCE_FILES}
    return [
        path
        for path in re.findall(r"[\w./-]+\.py\b", text)
        if path not in names and SOURCE_FILES.isdisjoint(folder / path for folder in (REPOSITORY, *SOURCE_FOLDERS))
    ]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_python_paths_exist(document: Path) -> None:
    assert missing_python_files(document.read_text(encoding="utf-8")) == []


def missing_paths(source: str) -> list[str]:
    """Return the paths of this repository in a module's text, comments and docstrings included, that name no file or folder.

    A path starts at the repository or at a package; paths that start elsewhere may be of another project. A decision record is named
    by its number.

    >>> missing_paths("See docs/how-to/client.md, docs/format.md and hubbub_decoder/pipelines.py.")
    ['docs/format.md', 'hubbub_decoder/pipelines.py']
    """
    roots = (REPOSITORY, *(REPOSITORY / package for package in ("client", "aggregator", "decoder")))
    named = re.findall(
        r"(?<![\w./-])(?:docs|deploy|benchmarks|examples|client/hubbub|hubbub_decoder|hubbub_aggregator)/[\w./-]*\w",
        source,
    )
    return [path for path in named if not any(next(root.glob(f"{path}*"), None) for root in roots)]


def test_paths_in_docstrings_exist() -> None:
    """One named docs/explanation/format.md, which had moved."""
    modules = {path for path in SOURCE_FILES if not path.is_relative_to(REPOSITORY / "tests")}
    assert len(modules) > 300
    found = {str(path.relative_to(REPOSITORY)): missing_paths(path.read_text(encoding="utf-8")) for path in modules}
    assert {path: missing for path, missing in found.items() if missing} == {}


def missing_members(text: str) -> list[str]:
    """Return the members `Class.member` of public classes in a text that do not exist.

    >>> missing_members("`Client.record`, `Decoding.fit_tests`, `Decoding.fit`, `Other.member`")
    ['Decoding.fit']
    """
    public = {name: getattr(module, name) for module in (hubbub, hubbub_decoder) for name in module.__all__}
    return [
        f"{name}.{member}"
        for name, member in re.findall(r"`([A-Z]\w+)\.(\w+)", text)
        if name in public and not (hasattr(public[name], member) or member in public[name].__annotations__)
    ]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_members_of_public_classes_exist(document: Path) -> None:
    assert missing_members(document.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_links_lead_to_existing_files_and_headings(document: Path) -> None:
    assert broken_links(document) == []


def test_decisions_index_lists_every_record() -> None:
    index = (DOCS / "decisions" / "README.md").read_text(encoding="utf-8")
    records = {path.name for path in (DOCS / "decisions").glob("0*.md")}
    assert len(records) > 40
    assert set(re.findall(r"\]\((0[^)]+\.md)\)", index)) == records
