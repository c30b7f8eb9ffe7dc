"""A directory with three days of a string metric, and its pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.explored import DAYS, PAGE, Explored, write


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "summaries").mkdir()
    (tmp_path / "candidates").mkdir()
    (tmp_path / "candidates" / "page.txt").write_text("a\nb\nabsent\n")
    for seed, day in enumerate(DAYS):
        write(tmp_path, PAGE, day, {"a": 2_000 - 900 * (seed == 1), "b": 1_000, "unlisted": 500}, seed)
    return tmp_path


@pytest.fixture
def explored(place: Path) -> Iterator[Explored]:
    with Explored(place) as made:
        yield made
