"""Tables of measured figures in the documents: they agree with the files of docs/explanation/data, and a page links every file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.pages import PAGES, PICTURE_OF, TABLES, with_tables
from benchmarks.tables import FOLDER, read_table
from tests.support.paths import DOCS

FILES = sorted(FOLDER.glob("*.csv"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_tables_are_those_of_the_files(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert with_tables(text) == text


def test_every_table_and_picture_is_on_a_page() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert sorted(re.findall(r"<!-- table: ([\w-]+) -->", text)) == sorted(TABLES)
    assert [name for name in PICTURE_OF if f"../images/{name})" not in text] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_file_is_a_table_that_a_page_links(file: Path) -> None:
    rows = read_table(file.stem)
    assert all(None not in row and None not in row.values() for row in rows), "a row has another number of cells"
    assert len({tuple(row.values()) for row in rows}) == len(rows) > 0
    assert any(f"data/{file.name})" in page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md"))
