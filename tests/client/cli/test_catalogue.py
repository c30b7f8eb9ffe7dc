"""`hubbub metrics catalogue`: every version with its registry fields and epsilons, hostile texts, and the page in Chromium."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from datetime import date
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hubbub import Buckets, Definitions, Metric, load_definitions
from hubbub.cli import main
from hubbub.cli.catalogue import catalogue_page
from hubbub.cli.output import write_page
from hubbub.errors import HubbubError
from hubbub.privacy.lifetime import privacy_figures
from hubbub.privacy.policy import Policy
from hubbub.privacy.pricing import shown_epsilon
from tests.support.chromium import chromium, requested, require
from tests.support.paths import DATA

TODAY = date(2026, 11, 23)
HOSTILE = "</style></title><script>alert(1)</script><img src=x onerror=alert(1)>\"'&"
SURVEY = Metric.boolean(
    "dark_mode",
    prob_p=0,
    prob_q=1,
    prob_f=0.5,
    description="Whether the dark theme is on",
    owner="ui@example.org",
    purpose="Choose the default theme",
    review="https://example.org/reviews/1",
    expires=date(2027, 6, 1),
)
OLDER = replace(SURVEY, hold=30, review="https://example.org/reviews/0")
STARTUP = Metric.ordinal(
    "startup", Buckets((0, 1, 5), unit="s"), prob_p=0.1, prob_q=0.9, prob_f=0.5, owner="core@example.org",
    description="Time to the first window", expires=date(2026, 1, 1),
)  # fmt: skip
EVERY_KIND = Definitions(
    [
        OLDER,
        SURVEY,
        STARTUP,
        load_definitions(DATA / "metrics.toml")["homepage"],
        Metric.categorical("os", ("linux", HOSTILE), prob_p=0.1, prob_q=0.9, prob_f=0.5, description=HOSTILE, owner=HOSTILE,
                           purpose=HOSTILE, expires=date(2027, 1, 1)),
    ]
)  # fmt: skip


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


def test_page_states_registry_fields_and_epsilons_of_every_version() -> None:
    read = Reader(catalogue_page(EVERY_KIND, TODAY))
    for metric in EVERY_KIND.versions():
        assert metric.digest[:12] in read.text
        for text in (metric.description, metric.owner, metric.purpose, metric.review):
            assert text in read.text
        for row in privacy_figures(metric, Policy()).rows():
            assert shown_epsilon(row.epsilon) + row.note in read.text
    assert "Older version" in read.text
    assert read.text.count("expired on 2026-01-01") == 1
    assert "4 metrics, 3 of them collected on 2026-11-23." in read.text


def test_every_metric_has_an_anchor_that_the_index_links() -> None:
    read = Reader(catalogue_page(EVERY_KIND, TODAY))
    for name in EVERY_KIND:
        assert read.anchors.count(f"metric-{name}") == 1
        assert f"#metric-{name}" in read.links
    assert {link[1:] for link in read.links if link.startswith("#")} <= {*read.anchors}


def test_page_without_script_escapes_texts_of_definitions() -> None:
    read = Reader(catalogue_page(EVERY_KIND, TODAY))
    assert {"script", "img", "iframe"}.isdisjoint(read.tags)
    assert read.tags.count("title") == 1
    assert all(link.startswith(("#", "https://example.org/", "data:image/svg+xml,")) for link in read.links)


def test_command_writes_the_page_and_reports_a_bad_path(tmp_path: Path) -> None:
    out = tmp_path / "metrics.html"
    done = CliRunner().invoke(main, ["metrics", "catalogue", str(DATA / "metrics.toml"), "--out", str(out), "--json"])
    assert (done.exit_code, done.stderr) == (0, f"wrote {out}: 3 metrics\n")
    assert json.loads(done.stdout) == {"out": str(out), "metrics": ["homepage", "os", "dark_mode"]}
    assert "homepage" in out.read_text()
    refused = CliRunner().invoke(
        main, ["metrics", "catalogue", str(DATA / "metrics.toml"), "--out", str(tmp_path / "no" / "m.html")]
    )
    assert refused.exit_code == 1
    assert "no/m.html" in refused.stderr


def test_command_keeps_a_file_that_is_no_page(tmp_path: Path) -> None:
    definitions = tmp_path / "metrics.toml"
    definitions.write_bytes((DATA / "metrics.toml").read_bytes())
    refused = CliRunner().invoke(main, ["metrics", "catalogue", str(definitions), "--out", str(definitions)])
    assert (refused.exit_code, refused.stderr) == (
        1, f"Error: cannot write {definitions}: the name of a page must end in .html\n",
    )  # fmt: skip
    assert definitions.read_bytes() == (DATA / "metrics.toml").read_bytes()


def test_failed_write_keeps_the_page_of_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "metrics.html"
    write_page(page, "before")

    def fail(path: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(HubbubError, match="No space left on device; give a file"):
        write_page(page, "afterwards")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("metrics.html", "before")]


def test_page_in_chromium_loads_nothing_and_fits_every_width(tmp_path: Path) -> None:
    require()
    out = tmp_path / "metrics.html"
    out.write_text(catalogue_page(EVERY_KIND, TODAY), encoding="utf-8")
    with chromium(tmp_path / "profile") as browser:
        browser.get(out.as_uri())
        assert [url for url in requested(browser) if not url.startswith(("data:", "file:"))] == []
        assert [entry["message"] for entry in browser.get_log("browser")] == []
        for width in (320, 800, 1280):
            assert overflow(browser, width) <= 0
        browser.find_element("css selector", "a[href='#metric-startup']").click()
        assert browser.current_url.endswith("#metric-startup")


def overflow(browser: Any, width: int) -> int:
    """Number of pixels by which the page is wider than a window."""
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    return int(browser.execute_script("return document.documentElement.scrollWidth")) - width
