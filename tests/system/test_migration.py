"""docs/how-to/migrating.md and surveys.md: their commands decode foreign files and print what the pages show."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest

from tests.support.pages import PageRun
from tests.support.paths import DATA, DOCS

PAGE = (DOCS / "how-to" / "migrating.md").read_text()
APP = DATA / "google_rappor"


@pytest.mark.slow
def test_page_decodes_the_files_of_the_analysis_app(tmp_path: Path) -> None:
    for name in ("params.csv", "counts.csv", "map.csv"):
        shutil.copy(APP / name, tmp_path)
    with PageRun(PAGE, tmp_path) as page:
        page.run()
    with (tmp_path / "estimates.csv").open() as file:
        shares = {row["candidate"]: float(row["share"]) for row in csv.DictReader(file)}
    with (APP / "r_decode.csv").open() as file:
        listed = [(row["string"], float(row["proportion"])) for row in csv.DictReader(file)]
    assert f"decoder lists {len(listed)} strings" in PAGE
    assert all(abs(shares[name] - share) < 0.002 for name, share in listed)


def test_page_of_surveys_prints_its_table(tmp_path: Path) -> None:
    with PageRun((DOCS / "how-to" / "surveys.md").read_text(), tmp_path) as page:
        page.run()
