"""docs/how-to/rehearsing.md: a metric with a group is simulated, decoded, watched, published and explored, as the page says."""

from __future__ import annotations

from pathlib import Path

import pytest
import urllib3

from tests.support.pages import PageRun
from tests.support.paths import DOCS

PAGE = (DOCS / "how-to" / "rehearsing.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_commands_of_the_page(tmp_path: Path) -> None:
    with PageRun(PAGE, tmp_path) as page:
        output = page.run()
        front = urllib3.request("GET", page.explored).data.decode()
    assert len(list((tmp_path / "rehearsal").iterdir())) == 24
    assert "8 periods, 2026-03-02 .. 2026-04-20, 640,000 reports" in output
    assert "2 arms, a, b, 640,000 reports" in output
    assert "24 published" in output
    assert "theme" in front
    assert "cannot be used" not in output + front
