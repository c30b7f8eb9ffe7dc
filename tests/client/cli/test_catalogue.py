"""`hubbub metrics catalogue`: every version with its registry fields and epsilons, hostile texts, and the page in Chromium."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from datetime import date
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner

from hubbub import Buckets, Definitions, Metric, UnaryResponse, load_definitions
from hubbub.cli import main
from hubbub.cli.catalogue import catalogue_pages, metric_path
from hubbub.cli.output import write_page
from hubbub.errors import HubbubError
from hubbub.privacy.lifetime import privacy_figures
from hubbub.privacy.policy import Policy
from hubbub.privacy.pricing import shown_epsilon
from tests.support.chromium import chromium, requested, require
from tests.support.html import without_word_spans
from tests.support.paths import DATA

TODAY = date(2026, 11, 23)
HOSTILE = "</style></title><script>alert(1)</script><img src=x onerror=alert(1)>\"'&"
SURVEY = Metric.boolean(
    "dark_mode",
    UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5),
    description="Whether the dark theme is on",
    owner="ui@example.org",
    purpose="Choose the default theme",
    review="https://example.org/reviews/1",
    expires=date(2027, 6, 1),
)
OLDER = replace(SURVEY, hold=30, review="https://example.org/reviews/0")
STARTUP = Metric.ordinal(
    "startup",
    Buckets((0, 1, 5), unit="s"),
    UnaryResponse(prob_p=0.1, prob_q=0.9, prob_f=0.5),
    owner="core@example.org",
    description="Time to the first window",
    expires=date(2026, 1, 1),
)
EVERY_KIND = Definitions(
    [
        OLDER,
        SURVEY,
        STARTUP,
        load_definitions(DATA / "metrics.toml")["homepage"],
        Metric.categorical(
            "os",
            ("linux", HOSTILE),
            UnaryResponse(prob_p=0.1, prob_q=0.9, prob_f=0.5),
            description=HOSTILE,
            owner=HOSTILE,
            purpose=HOSTILE,
            expires=date(2027, 1, 1),
        ),
    ]
)


class Reader(HTMLParser):
    """Tags, links, anchors and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.anchors: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [str(value) for name, value in attrs if name == "href"]
        self.anchors += [str(value) for name, value in attrs if name == "id"]

    def handle_data(self, data: str) -> None:
        self.text += data


def read(path: str) -> Reader:
    return Reader(without_word_spans(catalogue_pages(EVERY_KIND, TODAY)[path]))


def test_pages_state_registry_fields_and_epsilons_of_every_version() -> None:
    for metric in EVERY_KIND.versions():
        page = read(metric_path(metric.name))
        assert metric.digest[:12] in page.text
        for text in (metric.description, metric.owner, metric.purpose, metric.review):
            assert text in page.text
        for row in privacy_figures(metric, Policy()).rows():
            assert shown_epsilon(row.epsilon) + row.note.replace("`", "") in page.text
    assert "Older version" in read(metric_path("dark_mode")).text
    assert "Older version" not in read(metric_path("startup")).text
    assert "expired on 2026-01-01" in read(metric_path("startup")).text
    assert "4 metrics, 3 of them collected on 2026-11-23." in read("index.html").text


def test_index_links_the_page_of_every_metric() -> None:
    pages = catalogue_pages(EVERY_KIND, TODAY)
    assert pages.keys() == {"index.html", *map(metric_path, EVERY_KIND)}
    assert [link for link in read("index.html").links if link.startswith("metric/")] == [*map(metric_path, EVERY_KIND)]
    assert all("../index.html" in read(metric_path(name)).links for name in EVERY_KIND)


def test_pages_escape_texts_of_definitions() -> None:
    for path in catalogue_pages(EVERY_KIND, TODAY):
        page = read(path)
        assert {"img", "iframe"}.isdisjoint(page.tags)
        assert page.tags.count("script") == (path == "index.html")
        assert page.tags.count("title") == 1
        outside = [
            link for link in page.links if not link.startswith(("metric/", "../index.html", "data:image/svg+xml,"))
        ]
        assert all(link.startswith("https://example.org/") for link in outside)


def test_command_writes_the_pages_and_reports_a_bad_path(tmp_path: Path) -> None:
    out, arguments = tmp_path / "new" / "catalogue", ["metrics", "catalogue", str(DATA / "metrics.toml"), "--out-dir"]
    done = CliRunner().invoke(main, [*arguments, str(out), "--json"])
    index = out / "index.html"
    assert (done.exit_code, done.stderr) == (0, f"wrote {index}: 3 metrics\n")
    assert json.loads(done.stdout) == {"out": str(index), "metrics": ["homepage", "os", "dark_mode"]}
    assert "homepage" in index.read_text()
    assert {path.name for path in (out / "metric").iterdir()} == {"homepage.html", "os.html", "dark_mode.html"}
    refused = CliRunner().invoke(main, [*arguments, str(index)])
    assert refused.exit_code == 1
    assert "index.html/metric: Not a directory; give a directory" in refused.stderr


def test_failed_write_keeps_the_page_of_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "metrics.html"
    write_page(page, "before")

    def fail(path: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(HubbubError, match="No space left on device; give a file"):
        write_page(page, "afterwards")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("metrics.html", "before")]


@pytest.mark.slow
def test_search_in_chromium_finds_every_word(tmp_path: Path) -> None:
    require()
    for path, text in catalogue_pages(EVERY_KIND, TODAY).items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    with chromium(tmp_path / "profile") as browser:
        browser.get((tmp_path / "index.html").as_uri())
        find = browser.find_element("css selector", "input[type=search]")

        def shown() -> list[str]:
            rows = browser.find_elements("css selector", "tbody tr")
            return [row.find_element("css selector", "a").text for row in rows if row.is_displayed()]

        assert shown() == [*EVERY_KIND]
        for typed, found in (
            ("UI@example theme", ["dark_mode"]),
            ("default", ["dark_mode"]),
            ("ordinal", ["startup"]),
            ("nothing", []),
        ):
            find.clear()
            find.send_keys(typed)
            assert shown() == found
            assert browser.find_element("css selector", "output").text == f"{len(found)} of 4 metrics"
        find.clear()
        find.send_keys("startup")
        browser.find_element("css selector", "a[href='metric/startup.html']").click()
        assert browser.find_element("css selector", "h1").text == "startup"
        browser.find_element("css selector", "nav a").click()
        assert browser.current_url == (tmp_path / "index.html").as_uri()
        assert [url for url in requested(browser) if not url.startswith(("data:", "file:"))] == []
        assert [entry["message"] for entry in browser.get_log("browser")] == []
