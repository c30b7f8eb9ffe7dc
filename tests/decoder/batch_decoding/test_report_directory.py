"""`hubbub report`: pages of a directory, their statuses, and what is written again."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hubbub import Metric
from hubbub.cli import main
from hubbub_decoder.batch_decoding.run import run_tasks
from hubbub_decoder.batch_decoding.tasks import find_tasks
from hubbub_decoder.options import Options
from tests.decoder.batch_decoding.test_run import DAYS, PAGE, PARAMS, name_of, write_day
from tests.support.report_pages import chart_data, visible_page_text

DARK = Metric.boolean("dark", prob_p=0.25, prob_q=0.75, prob_f=0.5)
UNLISTED = Metric.string("unlisted", PARAMS)


def report(place: Path) -> Result:
    arguments = ["report", str(place / "summaries"), "--candidates", str(place / "candidates"), "--jobs", "2", "--json"]
    return CliRunner().invoke(main, [*arguments, "--out-dir", str(place / "out")])


@pytest.mark.slow
def test_report_lists_statuses_and_writes_again_only_what_changed(tmp_path: Path) -> None:
    folder, out = tmp_path / "summaries", tmp_path / "out"
    (tmp_path / "candidates").mkdir()
    (tmp_path / "candidates" / "page.txt").write_text("a\nb\nc\n")
    for seed, day in enumerate(DAYS):
        write_day(folder, day, seed=seed)
    write_day(folder, DAYS[0], DARK)
    write_day(folder, DAYS[0], UNLISTED)
    (folder / "damaged.parquet").write_bytes(b"damaged")
    first = report(tmp_path)
    assert first.exit_code == 1  # a file is damaged
    assert json.loads(first.stdout)["counts"] == {"decoded": 4, "unchanged": 0, "skipped": 1, "failed": 1}
    index = visible_page_text(out / "index.html")
    assert re.search(r"Decoded periods 4 OK Skipped periods 1 .* Failures 1 ", index)
    assert "add unlisted.txt to the directory of --candidates" in index
    assert re.search(r"damaged\.parquet FAILED not a hubbub summary", index)
    metric = out / f"{name_of('index')}.html"
    trends = chart_data(metric)["trends"]
    assert trends["periods"] == [*DAYS]
    for t, day in enumerate(DAYS):
        saved = json.loads((out / f"{name_of(day)}.json").read_text())["estimates"]
        shares = {each["candidate"]: each["share"] for each in saved}
        drawn = {label: share[t] for label, share in zip(trends["labels"], trends["share"], strict=True)}
        assert drawn == pytest.approx(shares, abs=1e-8)
        assert f'href="{day}.html"' in metric.read_text()
        assert chart_data(out / f"{name_of(day)}.html")["residuals"]["cohorts"] == PARAMS.num_cohorts

    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.html")}
    write_day(folder, DAYS[1], seed=7)
    (folder / "damaged.parquet").unlink()
    (out / f"{name_of(DAYS[2])}.html").unlink()
    second = report(tmp_path)
    assert second.exit_code == 0, second.output
    assert json.loads(second.stdout)["counts"] == {"decoded": 2, "unchanged": 2, "skipped": 1, "failed": 0}
    written = {
        path.relative_to(out).as_posix() for path in out.rglob("*.html") if before.get(path) != path.stat().st_mtime_ns
    }
    assert written == {"index.html", *(f"{name_of(name)}.html" for name in (DAYS[1], DAYS[2], "index"))}
    assert PAGE.digest[:8] in visible_page_text(out / "index.html")


@pytest.mark.slow
def test_report_that_was_killed_before_its_pages_writes_them_in_the_next_run(tmp_path: Path) -> None:
    """Also a page that was truncated, and one that lists a period whose summary was deleted."""
    folder, out = tmp_path / "summaries", tmp_path / "out"
    (tmp_path / "candidates").mkdir()
    (tmp_path / "candidates" / "page.txt").write_text("a\nb\n")
    page = out / f"{name_of('index')}.html"

    def periods_of_page() -> list[str]:
        assert report(tmp_path).exit_code == 0
        periods: list[str] = chart_data(page)["trends"]["periods"]
        return periods

    write_day(folder, DAYS[0])
    assert periods_of_page() == [DAYS[0]]
    write_day(folder, DAYS[1], seed=1)
    found = find_tasks(folder, tmp_path / "candidates", Options(), (".json", ".html"))
    list(run_tasks(*found, out, 1))  # and then the kill
    assert periods_of_page() == [*DAYS[:2]]
    page.write_bytes(page.read_bytes()[:-1000])
    assert periods_of_page() == [*DAYS[:2]]
    before = page.stat().st_mtime_ns
    assert periods_of_page() == [*DAYS[:2]]
    assert page.stat().st_mtime_ns == before
    next(folder.rglob(f"*{DAYS[0]}*.parquet")).unlink()
    assert periods_of_page() == [DAYS[1]]
    (out / f"{name_of(DAYS[1])}.json").write_text("{")
    page.unlink()
    damaged = report(tmp_path)
    assert damaged.exit_code == 1
    assert f"{DAYS[1]}.json is damaged. Delete it, and run `hubbub report` again." in damaged.stderr


@pytest.mark.slow
def test_every_link_of_a_report_leads_to_a_file(tmp_path: Path) -> None:
    (tmp_path / "candidates").mkdir()
    (tmp_path / "candidates" / "page.txt").write_text("a\nb\n")
    write_day(tmp_path / "summaries", DAYS[0])
    assert report(tmp_path).exit_code == 0
    pages = sorted((tmp_path / "out").rglob("*.html"))
    assert len(pages) == 3
    for page in pages:
        links = re.findall(r'(?:href|src)="([^"#][^"]*)"', page.read_text())
        assert len(links) >= 2
        for link in links:
            assert link == "data:," or (page.parent / link).is_file(), (page, link)
