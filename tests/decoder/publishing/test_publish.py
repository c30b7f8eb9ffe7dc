"""`hubbub publish`: what a site has, what is withheld, and what stays the same over nights, changes, damage and kills."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import fromstring

import numpy as np
import pytest
from click.testing import CliRunner

from hubbub import Metric, Params, UnaryResponse
from hubbub.cli import main
from hubbub.privacy import epsilon
from hubbub.privacy.central import release_epsilon
from hubbub.privacy.pricing import shown_epsilon
from hubbub.summary import BitCounts, read_collected, read_summary, write_summary
from hubbub_decoder import decode, simulate
from hubbub_decoder.batch_decoding import run as batch_run
from hubbub_decoder.batch_decoding import tasks
from hubbub_decoder.batch_decoding.tasks import counts_hash
from hubbub_decoder.data.events import Event
from hubbub_decoder.errors import OutputError
from hubbub_decoder.options import Options
from hubbub_decoder.publishing import pages
from hubbub_decoder.publishing import site as publishing
from hubbub_decoder.publishing.pages import site_files
from hubbub_decoder.publishing.plan import PeriodResult, PeriodStatus, Terms
from hubbub_decoder.publishing.site import Inputs, publish
from hubbub_decoder.results_store import store as results_store
from hubbub_decoder.results_store.schema import open_database
from hubbub_decoder.results_store.store import ResultsStore
from tests.support.atom import atom_problems
from tests.support.every_kind import METRICS
from tests.support.report_pages import chart_data, visible_page_text

PARAMS = Params(num_bits=32, num_hashes=2, num_cohorts=8, prob_p=0.25, prob_q=0.75, prob_f=0.0)
PAGE = Metric.string("page", PARAMS, description="First page", owner="web")
DARK = Metric.boolean("dark", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.25))
DAYS = "2026-03-02", "2026-03-03"
COLUMNS = (
    "metric digest group period num_reports confidence fdr central_epsilon delta releases composed_epsilon candidate indistinguishable_from share std_error low high "
    "selection_adjusted_low selection_adjusted_high simultaneous_low simultaneous_high q_value detected forged_reports_needed"
)
"""Of a CSV file of version 1: more may be added at the end."""


def write_day(
    place: Path, day: str, metric: Metric = PAGE, *, seed: int = 1, people: int = 3_000, closed: bool = True
) -> BitCounts:
    values = {"a": people // 2, "unlisted": people // 3} if metric.name == "page" else {"true": people}
    counts = simulate(metric, values, np.random.default_rng(seed), no_value=people // 6, periods=[day])
    (place / "summaries").mkdir(exist_ok=True)
    write_summary(replace(counts, closed=closed), place / "summaries" / f"{metric.name}-{day}.parquet")
    return counts


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(
        batch_run, "map_in_processes", lambda function, items, _: ((item, function(item)) for item in items)
    )
    for seed, day in enumerate(DAYS):
        write_day(tmp_path, day, seed=seed)
    write_day(tmp_path, DAYS[0], DARK)
    (tmp_path / "candidates").mkdir()
    (tmp_path / "candidates" / "page.txt").write_text("a\nb\n=1+1\n")
    return tmp_path


def run(place: Path, *, to: str = "site", min_reports: int = 1_000, **terms: Iterable[str]) -> dict[str, PeriodResult]:
    """Results by metric, value of its group, and period."""
    sets = {name: frozenset(names) for name, names in terms.items()}
    inputs = Inputs(place / "summaries", place / "candidates", Options())
    results = publish(inputs, place / to, Terms(min_reports, **sets))
    return {re.sub("@[0-9a-f]{8}(.*)/", r"\1 ", result.name): result for result in results}


def statuses(results: dict[str, PeriodResult]) -> dict[str, str]:
    return {name: result.status.value for name, result in results.items()}


def files(site: Path) -> dict[str, bytes]:
    """All files by their relative paths."""
    version = site.resolve()
    return {path.relative_to(version).as_posix(): path.read_bytes() for path in version.rglob("*") if path.is_file()}


def document(place: Path, name: str = "page") -> dict[str, Any]:
    read: dict[str, Any] = json.loads((place / "site" / "v1" / f"{name}.json").read_text())
    return read


def test_a_change_of_the_events_changes_the_pages_of_metrics_alone(place: Path) -> None:
    """Also if no summary is new; and the same events change nothing."""
    inputs = Inputs(place / "summaries", place / "candidates", Options())
    released = replace(inputs, events=(Event(DAYS[1], "<b>2.1"), Event("2020-01-01", "1.0")))
    terms, site = Terms(1_000), place / "site"
    publish(inputs, site, terms)
    before = files(site)
    publish(released, site, terms)
    after = files(site)
    changed = {name for name in after if after[name] != before[name]}
    assert after.keys() == before.keys()
    assert changed == {f"page@{PAGE.digest[:8]}/index.html"}
    page = site / changed.pop()
    assert "<bdi>&lt;b&gt;2.1</bdi>" in page.read_text()
    assert chart_data(page)["events"] == [{"period": DAYS[1], "labels": ["<b>2.1"]}]
    version = site.readlink()
    publish(released, site, terms)
    assert site.readlink() == version
    publish(inputs, site, terms)
    assert files(site) == before


def test_a_site_has_pages_and_files_with_the_numbers_of_decode(place: Path) -> None:
    assert set(statuses(run(place)).values()) == {"published"}
    folder = f"page@{PAGE.digest[:8]}"
    assert {name for name in files(place / "site") if "dark" not in name} == {
        "feed.xml",
        "index.html",
        "report.js",
        "v1/index.json",
        "v1/page.json",
        "v1/page.csv",
        *(f"{folder}/{name}.html" for name in ("index", *DAYS)),
    }
    counts = read_summary(place / "summaries" / f"page-{DAYS[1]}.parquet")
    assert isinstance(counts, BitCounts)
    decoding = decode(counts, ["a", "b", "=1+1"])
    period = document(place)["periods"][1]
    assert [estimate["share"] for estimate in period["estimates"]] == [estimate.share for estimate in decoding]
    assert period["central_epsilon"] == period["composed_epsilon"] == release_epsilon(PAGE, int(counts.reports.min()))
    assert (period["period"], period["num_reports"], period["releases"]) == (DAYS[1], decoding.num_reports, 1)
    assert document(place)["definitions"] == {PAGE.digest: PAGE.to_dict()}
    rows = list(csv.DictReader(io.StringIO((place / "site" / "v1" / "page.csv").read_text())))
    assert [float(row["share"]) for row in rows if row["period"] == DAYS[1]] == [
        estimate.share for estimate in decoding
    ]
    assert "'=1+1" in {row["candidate"] for row in rows}
    assert " ".join(rows[0]) == COLUMNS
    front = visible_page_text(place / "site" / "index.html")
    assert "First page" in front
    assert f"{decoding.num_reports:,} reports" in front
    assert atom_problems((place / "site" / "feed.xml").read_bytes()) == []
    entries = fromstring((place / "site" / "feed.xml").read_bytes()).findall("{http://www.w3.org/2005/Atom}entry")  # noqa: S314  (our file)
    assert len(entries) == 3
    assert "hubbub decode" not in visible_page_text(place / "site" / folder / "index.html")  # readers have no summaries


def test_the_same_inputs_give_the_same_bytes_at_any_place(place: Path) -> None:
    run(place)
    run(place, to="other")
    assert files(place / "site") == files(place / "other")
    before = (place / "site").readlink()
    run(place)
    assert (place / "site").readlink() == before  # nothing has changed


def test_counts_of_an_open_period_are_not_published_by_any_clock(place: Path) -> None:
    """A summary of 1,800 reports that was pulled while the period was open was published for good, because its name and the clock said so."""
    write_day(place, DAYS[0], people=1_800, closed=False)
    assert statuses(run(place)) == {
        f"page {DAYS[0]}": "waiting",
        f"page {DAYS[1]}": "published",
        f"dark {DAYS[0]}": "published",
    }
    assert "does not say that the period was closed" in run(place)[f"page {DAYS[0]}"].reason
    write_day(place, DAYS[0], people=2_400)
    assert set(statuses(run(place)).values()) == {"published"}
    assert {entry["num_reports"] for entry in document(place)["periods"]} == {2_400, 3_000}


def test_a_published_period_needs_no_mark_of_the_same_counts(place: Path) -> None:
    """Earlier versions wrote no mark into their summaries."""
    run(place)
    before = files(place / "site")
    write_day(place, DAYS[0], seed=0, closed=False)
    assert set(statuses(run(place)).values()) == {"published"}
    assert files(place / "site") == before


def test_two_files_of_one_period_are_not_added_up(place: Path) -> None:
    """Each has all reports of the period, so the sum would count them twice."""
    shutil.copy(place / "summaries" / f"page-{DAYS[0]}.parquet", place / "summaries" / "copy.parquet")
    result = run(place)[f"page {DAYS[0]}"]
    assert result.status is PeriodStatus.FAILED
    assert "keep one of" in result.reason
    assert "copy.parquet" in result.reason


def test_small_withheld_and_multiple_periods_are_not_published(place: Path) -> None:
    write_day(place, "2026-03-01", people=900)
    write_summary(
        BitCounts(PAGE, [0] * 8, np.zeros((8, 32), np.int64), ["2026-02-28"], closed=True),
        place / "summaries" / "empty.parquet",
    )
    both = simulate(DARK, {"true": 5_000}, np.random.default_rng(1), periods=[*DAYS])
    write_summary(both, place / "summaries" / "both.parquet")
    results = run(place, withheld={"dark"})
    assert results["page 2026-02-28"].reason == results["page 2026-03-01"].reason
    assert results["page 2026-03-01"] == PeriodResult(
        f"page@{PAGE.digest[:8]}/2026-03-01", PeriodStatus.WAITING, "fewer than 1,000 reports"
    )
    assert results[f"dark {DAYS[0]}"].reason == "--withhold names it"
    shown = files(place / "site")
    assert not any("dark" in name or "2026-03-01" in name for name in shown)
    assert b"dark@" not in shown["index.html"] + shown["feed.xml"] + shown["v1/index.json"]
    results = run(place)
    assert results[f"dark {DAYS[0]}..{DAYS[1]}"].status is PeriodStatus.FAILED
    assert "adds up 2 periods" in results[f"dark {DAYS[0]}..{DAYS[1]}"].reason
    assert f"dark@{DARK.digest[:8]}/{DAYS[0]}.html" in files(place / "site")


def test_what_is_withheld_returns_and_what_is_withdrawn_does_not(place: Path) -> None:
    """A withheld period needs no summary to return. The result of a withdrawn one is deleted, and the store remembers its name."""
    run(place)
    before, store = files(place / "site"), place / "site.files" / "private" / "results.sqlite"
    with closing(sqlite3.connect(store, isolation_level=None)) as opened:
        (document,) = opened.execute(
            "SELECT decoding FROM results WHERE period = ? AND digest = ?", (DAYS[0], PAGE.digest)
        ).fetchone()
    text = document[-1_000:-900].encode()
    assert text in store.read_bytes()
    (place / "summaries" / f"page-{DAYS[0]}.parquet").unlink()
    run(place, withheld={"page", f"dark/{DAYS[0]}"})
    assert not any("@" in name for name in files(place / "site"))
    results = run(place)
    assert files(place / "site") == before
    assert results[f"page {DAYS[0]}"].reason.startswith("its summary is missing")
    results = run(place, withdrawn={f"page/{DAYS[0]}", "dark"})
    assert {result.status for name, result in results.items() if DAYS[0] in name} == {PeriodStatus.WITHDRAWN}
    for _ in range(2):
        shown = files(place / "site")
        with closing(sqlite3.connect(store, isolation_level=None)) as opened:
            assert opened.execute("SELECT digest, period FROM results").fetchall() == [(PAGE.digest, DAYS[1])]
            assert opened.execute("SELECT DISTINCT period FROM estimates").fetchall() == [(DAYS[1],)]
        assert text not in store.read_bytes()
        assert not any(DAYS[0] in name or "dark@" in name for name in shown)
        assert DAYS[0].encode() not in shown["feed.xml"] + shown["v1/page.json"]
        write_day(place, DAYS[0])
        results = run(place)
        assert results[f"page {DAYS[0]}"].reason == "--withdraw named it, which is for good"


def test_a_damaged_result_stops_the_run_that_needs_it(place: Path) -> None:
    run(place)
    before = files(place / "site")
    with closing(sqlite3.connect(place / "site.files" / "private" / "results.sqlite", isolation_level=None)) as store:
        store.execute("UPDATE results SET decoding = replace(decoding, 'share', 'sharf') WHERE period = ?", DAYS[:1])
    (place / "summaries" / f"page-{DAYS[0]}.parquet").unlink()
    write_day(place, "2026-03-01", seed=5)
    with pytest.raises(OutputError, match=rf"{DAYS[0]} .* is missing or damaged, and the site stays as it was"):
        run(place)
    assert files(place / "site") == before
    run(place, withdrawn={DARK.name, f"page/{DAYS[0]}"})
    assert f"page@{PAGE.digest[:8]}/{DAYS[1]}.html" in files(place / "site")


@pytest.mark.parametrize("store", ["missing", "empty", "older", "older, also than a withdrawal of what was withheld"])
def test_a_store_that_knows_less_than_the_site_is_refused(place: Path, store: str) -> None:
    """A withdrawn metric was back, and replaced counts were the only release."""
    path, record = (place / "site.files" / "private" / name for name in ("results.sqlite", "published.json"))
    run(place)
    terms: dict[str, Any] = {"withheld": {"dark"}} if "withheld" in store else {"replaced": {"page"}}
    if "withheld" in store:
        run(place, **terms)
    backup = path.read_bytes()
    write_day(place, DAYS[0], seed=9)
    run(place, withdrawn={"dark"}, **terms)
    shown, newest = files(place / "site"), path.read_bytes()
    path.unlink()
    if store != "missing":
        path.write_bytes(b"" if store == "empty" else backup)
    inputs = Inputs(place / "summaries", place / "candidates", Options())
    for function in (publish, publishing.preview):
        with pytest.raises(OutputError, match="Restore the newest backup"):
            function(inputs, place / "site", Terms(1_000))
    assert files(place / "site") == shown
    record.unlink()
    if "older" in store:
        run(place, withdrawn={"dark"}, **terms)
        assert files(place / "site") == shown
    else:
        with pytest.raises(OutputError, match="Restore the newest backup"):
            run(place)
    path.write_bytes(newest)
    run(place)
    assert not any("dark" in name for name in files(place / "site"))


def test_a_store_with_other_releases_than_the_site_is_refused(place: Path) -> None:
    """Two stores went apart after a backup, by different counts; each has as many releases and withdrawals as the other."""
    run(place)
    shutil.copytree(place / "site.files", place / "other.files")
    (place / "other").symlink_to(Path("other.files", (place / "site").readlink().name))
    for seed, site in enumerate(("site", "other")):
        write_day(place, DAYS[0], seed=20 + seed)
        run(place, to=site, replaced={"page"})
    own, others = (place / f"{site}.files" / "private" / "results.sqlite" for site in ("site", "other"))
    shown, kept = files(place / "site"), own.read_bytes()
    own.write_bytes(others.read_bytes())
    inputs = Inputs(place / "summaries", place / "candidates", Options())
    for function in (publish, publishing.preview):
        with pytest.raises(OutputError, match="has other releases than those with which"):
            function(inputs, place / "site", Terms(1_000))
    write_day(place, "2026-03-09", seed=1)
    run(place, to="other")  # also if it has more by now
    own.write_bytes(others.read_bytes())
    with pytest.raises(OutputError, match="has other releases than those with which"):
        run(place)
    assert files(place / "site") == shown
    own.write_bytes(kept)
    write_day(place, DAYS[0], seed=20)
    assert set(statuses(run(place)).values()) == {"published"}


def test_a_site_without_releases_is_published_again(place: Path) -> None:
    for _ in range(2):
        assert set(statuses(run(place, min_reports=9_999)).values()) == {"waiting"}


def test_a_site_is_made_again_from_the_store_alone(place: Path) -> None:
    run(place)
    before, version = files(place / "site"), (place / "site").readlink()
    shutil.rmtree(place / version)
    run(place)
    assert files(place / "site") == before
    shutil.rmtree(place / version)
    (place / "site").unlink()
    shutil.rmtree(place / "summaries")
    (place / "summaries").mkdir()
    assert {result.status for result in run(place).values()} == {PeriodStatus.FAILED}
    assert files(place / "site") == before
    assert (place / "site").readlink() == version


def test_changed_counts_of_a_published_period_are_refused_until_they_replace_it(place: Path) -> None:
    run(place)
    before, counts = files(place / "site"), write_day(place, DAYS[0], seed=9)
    results = run(place)
    assert results[f"page {DAYS[0]}"].status is PeriodStatus.FAILED
    assert "--replace" in results[f"page {DAYS[0]}"].reason
    assert files(place / "site") == before
    assert set(statuses(run(place, replaced={"page"})).values()) == {"published"}
    period = document(place)["periods"][0]
    assert period["releases"] == 2
    assert period["central_epsilon"] == release_epsilon(PAGE, int(counts.reports.min()))
    assert period["composed_epsilon"] == epsilon(PAGE) > period["central_epsilon"]
    assert set(statuses(run(place)).values()) == {"published"}  # the replaced counts are now those that stay


def shown_guarantees(place: Path, name: str) -> dict[str, dict[str, Any]]:
    """Guarantees of all published periods together, by the folder of their page."""
    return {row["page"]: row["guarantee"] for row in document(place, name)["all_periods"]}


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("hold", [None, 1, 2])
def test_a_site_states_the_central_epsilon_of_a_person_over_all_periods(place: Path, hold: int | None) -> None:
    """Epochs of two days begin on even days since 1970: 2 March 2026, the 20,514th, begins one, and no period touches half of another."""
    metric = replace(DARK, name="held", hold=hold)
    days = [f"2026-03-{day:02}" for day in (2, 3, 4, 5, 8)]
    counts = [write_day(place, day, metric, seed=seed, people=3_000 + 500 * seed) for seed, day in enumerate(days)]
    run(place)
    cohort = int(counts[0].reports.min())
    epochs = {None: (5,), 1: (1,) * 5, 2: (2, 2, 1)}[hold]
    person, of_last = release_epsilon(metric, cohort, epochs), release_epsilon(metric, int(counts[-1].reports.min()))
    assert person > 2 * of_last
    folder = f"held@{metric.digest[:8]}"
    (guarantee,) = shown_guarantees(place, "held").values()
    assert guarantee["epsilon"] == person
    assert (guarantee["observer"], guarantee["unit"]) == (
        "reader of the published site",
        "all published periods, under one secret",
    )
    assert (guarantee["num_clients"], guarantee["is_unconditional"]) == (cohort, False)
    assert ("unchanging" in guarantee["condition"]) == (hold is None)
    text = " ".join(visible_page_text(place / "site" / folder / "index.html").split())
    assert f"Central epsilon of all 5 published periods together {shown_epsilon(person)}, with delta 1e-09" in text
    assert "one person who reports in each of them under one secret" in text
    assert (
        f"if the {cohort:,} clients of the smallest cohort report in each of them, too, each under one secret" in text
    )
    assert ("and their values do not change either" in text) == (hold is None)
    front = " ".join(visible_page_text(place / "site" / "index.html").split())
    assert f"{shown_epsilon(of_last)} {shown_epsilon(person)}" in front
    assert "one person" in front


def test_replaced_counts_leave_a_person_the_local_epsilon_of_all_periods(place: Path) -> None:
    write_day(place, DAYS[1], DARK)
    run(place)
    (before,) = shown_guarantees(place, "dark").values()
    write_day(place, DAYS[0], DARK, seed=9)
    run(place, replaced={"dark"})
    (after,) = shown_guarantees(place, "dark").values()
    assert after["epsilon"] == epsilon(DARK, 2) > before["epsilon"]
    assert (after["num_clients"], after["delta"]) == (1, 0)
    text = " ".join(visible_page_text(place / "site" / f"dark@{DARK.digest[:8]}" / "index.html").split())
    assert (
        f"Local epsilon of all 2 published periods together {shown_epsilon(after['epsilon'])}. Different counts" in text
    )


def test_a_period_that_was_taken_off_still_counts_for_a_person(place: Path) -> None:
    """Readers may have kept it."""
    run(place)
    before = shown_guarantees(place, "page")
    for taken in ("withheld", "withdrawn"):
        run(place, to="site", min_reports=1_000, **{taken: {f"page/{DAYS[0]}"}})
        assert [period["period"] for period in document(place)["periods"]] == [DAYS[1]]
        assert shown_guarantees(place, "page") == before
    text = " ".join(visible_page_text(place / "site" / f"page@{PAGE.digest[:8]}" / "index.html").split())
    assert "epsilon of all 2 published periods together" in text


def test_one_published_period_has_no_condition_on_values(place: Path) -> None:
    run(place)
    (guarantee,) = shown_guarantees(place, "dark").values()
    assert guarantee["condition"].startswith("whatever is recorded")
    (period,) = document(place, "dark")["periods"]
    assert guarantee["epsilon"] == period["central_epsilon"]


def test_the_bits_of_unlisted_strings_are_not_published(place: Path) -> None:
    counts = read_summary(place / "summaries" / f"page-{DAYS[0]}.parquet")
    assert decode(counts, ["a", "b"]).unlisted_strings[0].signature
    run(place)
    assert not any(
        b"signature" in data or b"unlisted_strings" in data
        for name, data in files(place / "site").items()
        if name.startswith("v1/")
    )


def test_suggested_spellings_are_not_published(place: Path) -> None:
    """The approved list has "Unlisted"; nobody approved "unlisted", which the clients report."""
    (place / "candidates" / "page.txt").write_text("a\nUnlisted\n")
    counts = read_summary(place / "summaries" / f"page-{DAYS[0]}.parquet")
    assert [found.spelling for found in decode(counts, ["a", "Unlisted"]).suggestions] == ["unlisted"]
    run(place)
    assert not any(b"probably reported" in data for name, data in files(place / "site").items())


def test_each_file_of_a_site_has_one_path(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The JSON file of a metric "index" was overwritten by the list of metrics."""
    names = "index", "index.json", "index.html", "feed", "feed.xml", "report", "v1", "dark.csv", "dark-a"
    for name in names:
        write_day(place, DAYS[0], replace(DARK, name=name))
    results = run(place)
    failed = {name: result.reason for name, result in results.items() if result.status is not PeriodStatus.PUBLISHED}
    assert list(failed) == [f"index {DAYS[0]}"]
    assert "--withhold index" in failed[f"index {DAYS[0]}"]
    listed = {row["metric"]: row["json"] for row in document(place, "index")["metrics"]}
    assert listed.keys() == {"page", "dark", *names} - {"index"}
    for name, address in listed.items():
        assert json.loads((place / "site" / "v1" / address).read_text())["metric"] == name
    monkeypatch.setattr(pages, "METRICS_FILE", "dark")
    write_day(place, DAYS[1], DARK)
    before = files(place / "site")
    with pytest.raises(OutputError, match=r"v1/dark\.json would be of two pages"):
        run(place)
    assert files(place / "site") == before


def test_a_table_of_results_is_no_list_of_approved_strings(place: Path) -> None:
    (place / "candidates" / "page.txt").unlink()
    decode(read_summary(place / "summaries" / f"page-{DAYS[0]}.parquet"), ["a", "b"]).save(
        place / "candidates" / "page.csv"
    )
    results = run(place)
    assert "list the strings that may be published" in results[f"page {DAYS[0]}"].reason.lower()
    assert results[f"dark {DAYS[0]}"].status is PeriodStatus.PUBLISHED


def test_the_site_is_private_where_it_must_be_and_keeps_two_versions(place: Path) -> None:
    for names in ((), ("dark",), ("page",), (f"page/{DAYS[0]}",)):
        before = (place / "site").readlink() if names else None
        run(place, withheld=names)
    assert stat.S_IMODE((place / "site.files" / "private").stat().st_mode) == 0o700
    assert before is not None
    versions = {before.name, (place / "site").readlink().name}
    assert {path.name for path in (place / "site.files").iterdir()} == {*versions, "private"}
    manifests = {path.stem for path in (place / "site.files" / "private").glob("*.json")} - {"published"}
    assert len(versions) == 2
    assert versions == manifests


def test_modes_are_private_in_each_run(place: Path) -> None:
    """Also those of a directory that somebody made before, and of a store that was copied back."""
    private = place / "site.files" / "private"
    private.mkdir(parents=True)
    for _ in range(2):
        private.chmod(0o755)
        run(place)
        assert [stat.S_IMODE(path.stat().st_mode) for path in (private, private / "results.sqlite")] == [0o700, 0o600]
        (private / "results.sqlite").chmod(0o644)
    run(place)
    assert stat.S_IMODE((private / "results.sqlite").stat().st_mode) == 0o600


@pytest.mark.parametrize("is_shown_first", [False, True])
def test_no_version_keeps_a_withdrawn_page(
    place: Path, monkeypatch: pytest.MonkeyPatch, *, is_shown_first: bool
) -> None:
    """Also if the run ended after the site had changed."""

    def ended(*_: object) -> None:
        raise KeyboardInterrupt

    run(place)
    if is_shown_first:
        with monkeypatch.context() as patched:
            patched.setattr(publishing, "_has_page", ended)
            with pytest.raises(KeyboardInterrupt):
                run(place, withdrawn={"dark"})
    run(place, withdrawn={"dark"})
    assert not list((place / "site.files").rglob("dark*"))


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Grows with each plan that a run makes."""
    plans: list[object] = []

    def found(*arguments: Any, **options: Any) -> Any:
        plans.append(None)
        return tasks.find_tasks(*arguments, **options)

    monkeypatch.setattr(publishing, "find_tasks", found)
    return plans


def test_an_unchanged_night_is_a_query(place: Path, planned: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    """It makes no plan, and as many statements for 2 periods of a metric as for 12; the only file that it opens is the lock."""
    counts = []
    for days in ((), (f"2026-02-{day:02}" for day in range(1, 11))):
        for seed, day in enumerate(days):
            write_day(place, day, DARK, seed=seed)
        results, before = run(place), len(planned)
        statements: list[str] = []

        def opened(path: Path | None, found: list[str] = statements) -> sqlite3.Connection:
            connection = open_database(path)
            connection.set_trace_callback(found.append)
            return connection

        with monkeypatch.context() as patched:
            patched.setattr(results_store, "open_database", opened)
            patched.setattr(os, "open", lambda path, *_: pytest.fail(f"{path} is read"))
            assert run(place) == results
        assert len(planned) == before
        counts.append(len(statements))
    assert counts[0] == counts[1]


def withdraw_a_name(path: Path) -> None:
    with ResultsStore(path) as store:
        store.withdraw(["x"], [])


CHANGES: dict[str, Callable[[Path], object]] = {
    "a new summary": lambda place: write_day(place, "2026-03-01", DARK),
    "other counts": lambda place: write_day(place, DAYS[0], DARK, seed=9),
    "the same counts": lambda place: write_day(place, DAYS[0], DARK),
    "a summary less": lambda place: (place / "summaries" / f"dark-{DAYS[0]}.parquet").unlink(),
    "other candidates": lambda place: (place / "candidates" / "page.txt").write_text("a\n"),
    "candidates less": lambda place: (place / "candidates" / "page.txt").unlink(),
    "a link to nothing": lambda place: (place / "candidates" / "other.txt").symlink_to("nothing"),
    "a time": lambda place: os.utime(place / "summaries" / f"dark-{DAYS[0]}.parquet", (1, 1)),
    "the version deleted": lambda place: shutil.rmtree((place / "site").resolve()),
    "another link": lambda place: (place / "site").unlink(),
    "the store": lambda place: withdraw_a_name(place / "site.files" / "private" / "results.sqlite"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_night_with_a_change_is_planned(place: Path, planned: list[object], change: str) -> None:
    run(place)
    CHANGES[change](place)
    run(place)
    assert len(planned) == 2


def test_other_options_and_another_release_are_planned(
    place: Path, planned: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(place)
    run(place, min_reports=999)
    run(place, withheld={"dark"})
    monkeypatch.setattr(publishing, "releases", lambda: ("hubbub of another release",))
    run(place, withheld={"dark"})
    assert len(planned) == 4
    (place / "summaries" / "damaged.parquet").write_bytes(b"x")
    for _ in range(2):  # a failure is tried again
        assert "failed" in statuses(run(place)).values()
    assert len(planned) == 6


def test_a_directory_that_cannot_be_listed_is_no_unchanged_one(
    place: Path, planned: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files can be read by their names, so they may have changed."""

    def denied(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Inputs, "_candidate_files", denied)
    for number in (1, 2):
        assert set(statuses(run(place)).values()) == {"published"}
        assert len(planned) == number


def test_only_what_changed_is_read_decoded_and_written(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(place)
    inodes = {
        path.relative_to((place / "site").resolve()): path.stat().st_ino
        for path in (place / "site").resolve().rglob("*.*")
    }
    write_day(place, "2026-03-01", DARK)
    read: list[str] = []

    def recorded(path: Path) -> Any:
        read.append(path.name)
        return read_collected(path)

    monkeypatch.setattr(tasks, "read_collected", recorded)
    run(place)
    assert set(read) == {"dark-2026-03-01.parquet"}
    written = {
        path.relative_to((place / "site").resolve()).as_posix()
        for path in (place / "site").resolve().rglob("*.*")
        if inodes.get(path.relative_to((place / "site").resolve())) != path.stat().st_ino
    }
    folder = f"dark@{DARK.digest[:8]}"
    assert written == {
        "index.html",
        "feed.xml",
        "v1/index.json",
        "v1/dark.json",
        "v1/dark.csv",
        f"{folder}/index.html",
        f"{folder}/2026-03-01.html",
    }


def test_a_preview_says_what_changes_and_why(place: Path) -> None:
    arguments = [
        "publish",
        str(place / "summaries"),
        "--candidates",
        str(place / "candidates"),
        "--out-dir",
        str(place / "site"),
        "--check",
    ]
    page, dark = f"page@{PAGE.digest[:8]}", f"dark@{DARK.digest[:8]}"
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0
    assert done.stdout == (
        f"appears: {dark}/{DAYS[0]}: its 3,500 reports are complete\n"
        f"appears: {page}/{DAYS[0]}: its 3,000 reports are complete\n"
        f"appears: {page}/{DAYS[1]}: its 3,000 reports are complete\n"
        f"3 published after 3 changes of {place / 'site'}\n"
    )
    assert sorted(path.name for path in place.iterdir()) == ["candidates", "summaries"]
    run(place)
    assert CliRunner().invoke(main, arguments).stdout.startswith("3 published after 0 changes of")
    write_day(place, DAYS[0], seed=9)
    (place / "candidates" / "page.txt").write_text("a\n")
    write_day(place, "2026-03-04", closed=False)
    done = CliRunner().invoke(main, [*arguments, "--replace", f"page/{DAYS[0]}", "--withdraw", "dark"])
    assert done.exit_code == 0
    assert done.stdout.splitlines()[:-1] == [
        f"disappears: {dark}/{DAYS[0]}: --withdraw named it, which is for good",
        f"changes: {page}/{DAYS[0]}: --replace accepts its changed counts",
        f"changes: {page}/{DAYS[1]}: its candidates, the options, the bytes of its summary or the release of hubbub changed",
    ]
    assert f"waiting: {page}/2026-03-04" in done.stderr
    found = json.loads(CliRunner().invoke(main, [*arguments, "--json"]).stdout)
    assert {change["kind"] for change in found["changes"]} == {"changes"}
    assert [period["status"] for period in found["periods"]] == ["published", "failed", "published", "waiting"]


def test_a_preview_names_the_pages_of_a_run_that_did_not_end(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(place)
    write_day(place, DAYS[0], seed=9)

    def fail(*_: object) -> str:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(publishing, "_show", fail)
        with pytest.raises(OutputError, match="No space left"):
            run(place, replaced={"page"})
    inputs = Inputs(place / "summaries", place / "candidates", Options())
    (change,) = publishing.preview(inputs, place / "site", Terms(1_000))[1]
    assert (change.name, change.kind) == (f"page@{PAGE.digest[:8]}/{DAYS[0]}", "changes")
    assert "a run recorded it and did not end" in change.reason


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")  # of Python 3.12 and later, with threads
def test_a_preview_writes_nothing_after_a_kill(place: Path) -> None:
    """It rolled back the journal of the killed run, while another process might have been writing it."""
    run(place)
    store = place / "site.files" / "private" / "results.sqlite"
    if not (child := os.fork()):
        connection = sqlite3.connect(store, isolation_level=None)
        connection.execute("PRAGMA cache_size = 1")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("CREATE TABLE other (a)")
        connection.executemany("INSERT INTO other VALUES (?)", [("x" * 3_000,)] * 400)
        os._exit(9)
    os.waitpid(child, 0)
    before = {path: path.read_bytes() for path in store.parent.iterdir()}
    assert Path(f"{store}-journal") in before
    inputs = Inputs(place / "summaries", place / "candidates", Options())
    with pytest.raises(OutputError, match="left of a run that was killed"):
        publishing.preview(inputs, place / "site", Terms(1_000))
    assert {path: path.read_bytes() for path in store.parent.iterdir()} == before
    run(place)
    assert publishing.preview(inputs, place / "site", Terms(1_000))[1] == []
    with publishing._files_of(place / "site"), pytest.raises(OutputError, match="by another process"):
        publishing.preview(inputs, place / "site", Terms(1_000))


def test_a_preview_of_what_cannot_be_read_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by another user, whom the private directory keeps out: there was a traceback."""
    run(place)

    def denied(path: Path, **_: object) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", denied)
    with pytest.raises(OutputError, match=r"site.files.* cannot be read: Permission denied"):
        publishing.preview(Inputs(place / "summaries", place / "candidates", Options()), place / "site", Terms(1_000))


def test_other_files_beside_the_versions_stay(place: Path) -> None:
    """A directory was deleted, and a file ended each run."""
    run(place)
    (place / "site.files" / "backup").mkdir()
    others = place / "site.files" / "backup" / "results.sqlite", place / "site.files" / ".htaccess"
    for path in others:
        path.write_text("other")
    run(place, withheld={"dark"})
    run(place, withheld={"page"})
    assert [path.read_text() for path in others] == ["other", "other"]


def test_two_files_of_one_path_are_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(place)
    monkeypatch.setattr(
        publishing, "site_files", lambda *arguments: [file for file in site_files(*arguments) for _ in "12"]
    )
    before = files(place / "site")
    with pytest.raises(OutputError, match="cannot be written: File exists"):
        run(place, withheld={"dark"})
    assert files(place / "site") == before


def test_only_its_own_site_is_replaced_and_by_one_process(place: Path) -> None:
    (place / "site").mkdir()
    with pytest.raises(OutputError, match="is not a site that `hubbub publish` made"):
        run(place)
    (place / "site").rmdir()
    (place / "site").symlink_to(place / "candidates")
    with pytest.raises(OutputError, match="did not make"):
        run(place)
    (place / "site").unlink()
    with publishing._files_of(place / "site"), pytest.raises(OutputError, match="by another process"):
        run(place)
    with pytest.raises(OutputError, match="No such file or directory"):
        run(place, to="missing/site")


def test_hashes_are_equal_for_equal_counts_alone(place: Path) -> None:
    counts = read_summary(place / "summaries" / f"page-{DAYS[0]}.parquet").bit_counts()
    again = read_summary(place / "summaries" / f"page-{DAYS[0]}.parquet").bit_counts()
    assert counts_hash(counts) == counts_hash(again)
    moved = counts.ones.copy()
    moved[0, 0] += 1
    assert counts_hash(counts) != counts_hash(BitCounts(PAGE, counts.reports, moved, [DAYS[0]]))


def test_a_night_of_mixed_definitions_exits_with_0(place: Path) -> None:
    """A metric that another command estimates, an open period and a small one were named as waiting, with exit code 3, every night."""
    for metric in METRICS:
        if metric.name in ("words", "os_and_page"):
            empty = replace(BitCounts.empty(metric), periods=(DAYS[0],), closed=True)
            write_summary(empty, place / "summaries" / f"{metric.name}.parquet")
    write_day(place, "2026-03-04", people=900)
    write_day(place, "2026-03-05", closed=False)
    arguments = ["publish", str(place / "summaries"), "--out-dir", str(place / "site")]
    for options in ([], ["--check"], []):
        done = CliRunner().invoke(main, [*arguments, "--candidates", str(place / "candidates"), *options])
        assert done.exit_code == 0, done.output
        assert done.stderr.count("\n") == 4
        for name, command in (("words", "discover"), ("os_and_page", "associate")):
            assert re.search(rf"^skipped: {name}@.*`hubbub {command}`", done.stderr, re.MULTILINE)
        assert done.stderr.count("waiting: page@") == 2
    (place / "candidates" / "page.txt").rename(place / "candidates" / "pgae.txt")
    done = CliRunner().invoke(main, [*arguments, "--candidates", str(place / "candidates")])
    assert done.exit_code == 1
    assert done.stderr.count("no candidates: add page.txt") == 2, done.stderr  # of the closed ones with enough reports


@pytest.mark.parametrize("too_few", [True, False])
def test_strings_without_candidates_fail_if_they_have_enough_reports(place: Path, too_few: bool) -> None:
    """A period that would not be published in any case asks for nothing. With one report less as the minimum, it does."""
    (place / "candidates" / "page.txt").unlink()
    (place / "summaries" / f"page-{DAYS[1]}.parquet").unlink()
    num_reports = read_summary(place / "summaries" / f"page-{DAYS[0]}.parquet").num_reports
    arguments = [str(place / "summaries"), "--candidates", str(place / "candidates"), "--out-dir", str(place / "site")]
    done = CliRunner().invoke(main, ["publish", *arguments, "--min-reports", str(num_reports + too_few)])
    of_page = next(line for line in done.stderr.splitlines() if " page@" in line)
    if too_few:
        assert of_page.startswith("waiting: ")
        assert of_page.endswith(f"fewer than {num_reports + 1:,} reports")
    else:
        assert of_page.startswith("failed: ")
        assert "no candidates: add page.txt" in of_page
    assert done.exit_code == (not too_few), done.output


def test_published_strings_that_lost_candidates_and_reports_fail(place: Path) -> None:
    """What was published stays, so a higher minimum does not make them wait."""
    run(place)
    (place / "candidates" / "page.txt").unlink()
    found = run(place, min_reports=9_999)[f"page {DAYS[0]}"]
    assert found.status is PeriodStatus.FAILED
    assert "What was published stays" in found.reason


def test_command(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # in processes
    arguments = [
        "publish",
        str(place / "summaries"),
        "--candidates",
        str(place / "candidates"),
        "--out-dir",
        str(place / "site"),
    ]
    done = CliRunner().invoke(main, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["counts"] == {
        "published": 3,
        "waiting": 0,
        "skipped": 0,
        "withheld": 0,
        "withdrawn": 0,
        "failed": 0,
    }
    write_day(place, DAYS[0], DARK, closed=False)
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0  # the same counts
    write_day(place, "2026-03-04", DARK, closed=False)
    done = CliRunner().invoke(main, arguments)
    assert (done.exit_code, done.stdout) == (0, f"3 published, 1 waiting in {place / 'site'}\n")
    done = CliRunner().invoke(main, [*arguments, "--withhold", "dark/2026-03-04"])
    assert (done.exit_code, done.stdout) == (0, f"3 published, 1 withheld in {place / 'site'}\n")
    (place / "summaries" / "dark-2026-03-04.parquet").write_bytes(b"x")
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 1
    assert "failed: " in done.stderr
    assert done.stdout.startswith("3 published, 1 failed in ")
    done = CliRunner().invoke(main, [*arguments, "--withhold", "pgae"])
    assert done.exit_code == 1
    assert "pgae. Did you mean 'page'?" in done.output
