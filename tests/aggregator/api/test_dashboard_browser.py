"""Dashboard in Chromium: sign-in and sign-out, figures, 500 metrics, downloads, no scripts, no horizontal scrolling."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hubbub.summary import read_summary
from hubbub_aggregator.settings import Settings
from hubbub_aggregator.store.sql_store import SqlStore
from hubbub_aggregator.store.tokens import Scope
from tests.aggregator.api.test_tokens import given
from tests.aggregator.conftest import NOON, running
from tests.support.chromium import chromium, requested, require
from tests.support.databases import sql
from tests.support.many_metrics import fill, many_definitions

if TYPE_CHECKING:
    from tests.aggregator.conftest import MakeBatch, StartAggregator


pytestmark = pytest.mark.slow
_PATIENCE = 30.0  # seconds; a click returns before the next page is loaded


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
    require()
    with chromium(tmp_path / "profile") as started:
        started.implicitly_wait(_PATIENCE)
        yield started


def complaints(browser: Any) -> list[str]:
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] in ("WARNING", "SEVERE")]


def wait_for_page(browser: Any, url: str) -> None:
    """Wait until the browser shows this page completely."""
    from selenium.common.exceptions import WebDriverException
    from selenium.webdriver.support.wait import WebDriverWait

    def is_there(_: object) -> bool:
        return bool(browser.current_url == url and browser.execute_script("return document.readyState") == "complete")

    WebDriverWait(browser, _PATIENCE, ignored_exceptions=[WebDriverException]).until(is_there)


def horizontal_overflow(browser: Any, width: int) -> int:
    """Return the number of pixels by which the page exceeds a window of this width."""
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    return int(browser.execute_script("return document.documentElement.scrollWidth")) - width


def test_browser_signs_in_reads_the_pages_and_signs_out(
    browser: Any, start: StartAggregator, sqlite_store: SqlStore, make_batch: MakeBatch
) -> None:
    aggregator = start(sqlite_store, local_reads_without_token=False)
    homepage = aggregator.definitions["homepage"]
    for n, period in ((321, "2024-06-14"), (45, "2024-06-15")):
        assert aggregator.post(make_batch(homepage, n=n, period=period)).status == 202
    assert aggregator.post(make_batch(homepage, period="2024-01-01")).status == 410
    secret = given(sqlite_store, Scope.READ).removeprefix("Bearer ")

    def find(selector: str) -> Any:
        return browser.find_element("css selector", selector)

    browser.get(aggregator.url + "/metric/homepage")
    wait_for_page(browser, aggregator.url + "/sign-in?to=/metric/homepage")
    assert all(horizontal_overflow(browser, width) <= 0 for width in (320, 390, 1280))
    find("#token").send_keys(secret)
    find("form button").click()
    wait_for_page(browser, aggregator.url + "/metric/homepage")
    assert [title.get_attribute("textContent") for title in browser.find_elements("css selector", "svg title")] == [
        "2024-06-14: 321 reports, still open",
        "2024-06-15: 45 reports, still open",
    ]
    highest, lower = (float(bar.rect["height"]) for bar in browser.find_elements("css selector", "svg rect"))
    assert highest / lower == pytest.approx(321 / 45, rel=0.1)
    assert find("a[href='/problems/period-closed']").text == "period-closed"
    find("nav a").click()
    wait_for_page(browser, aggregator.url + "/")
    assert find("#reports").text == "366"
    find(".metrics a[href='/metric/homepage']").click()
    wait_for_page(browser, aggregator.url + "/metric/homepage")
    browser.execute_script("document.querySelectorAll('details').forEach(details => details.open = true)")
    assert all(horizontal_overflow(browser, width) <= 0 for width in (320, 390, 1280))
    assert browser.execute_script("return document.cookie") == ""
    [cookie] = browser.get_cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["value"] == secret) == (True, "Strict", False)
    colours = [_background(browser, scheme) for scheme in ("light", "dark")]
    assert colours[0] != colours[1]
    browser.refresh()
    find("form button").click()
    wait_for_page(browser, aggregator.url + "/sign-in")
    browser.get(aggregator.url + "/")
    assert browser.current_url == aggregator.url + "/sign-in"
    assert complaints(browser) == []
    elsewhere = [url for url in requested(browser) if not url.startswith((aggregator.url + "/", "data:"))]
    assert elsewhere == []


def test_browser_searches_and_downloads_among_500_metrics(browser: Any, sqlite_store: SqlStore, tmp_path: Path) -> None:
    definitions = many_definitions(500)
    fill(sqlite_store, definitions, NOON.date(), 2)
    silent = definitions["sync.device_3"]
    sql(
        str(tmp_path / "reports.db"), f"DELETE FROM collection WHERE metric = '{silent.name}' AND period > '2024-06-14'"
    )
    sql(str(tmp_path / "reports.db"), f"UPDATE collection SET period = '2024-06-01' WHERE metric = '{silent.name}'")
    secret = given(sqlite_store, Scope.READ).removeprefix("Bearer ")

    def rows() -> list[str]:
        found = "return [...document.querySelectorAll('.metrics tbody a')].map(a => a.textContent)"
        return list(browser.execute_script(found))

    def find(selector: str) -> Any:
        return browser.find_element("css selector", selector)

    with running(definitions, sqlite_store, Settings(fold_interval=1000.0)) as aggregator:
        browser.get(aggregator.url + "/sign-in")
        find("#token").send_keys(secret)
        find("form button").click()
        wait_for_page(browser, aggregator.url + "/")
        assert (len(rows()), rows()[0]) == (500, silent.name), "problems first"
        assert find(".metrics tbody .pill").text == "no reports since 2024-06-01"
        assert all(horizontal_overflow(browser, width) <= 0 for width in (320, 390, 1280))
        find("#q").send_keys("Device SYNC")
        find("form[role=search] button").click()
        wait_for_page(browser, aggregator.url + "/?q=Device+SYNC&sort=problems")
        assert sorted(rows()) == ["sync.device", *(f"sync.device_{n}" for n in range(2, 6))]
        assert find("#q").get_attribute("value") == "Device SYNC"
        assert find("#shown").text == "5 of 500 metrics. Show all"
        find("input[type=checkbox]").click()
        find("form[role=search] button").click()
        wait_for_page(browser, aggregator.url + "/?q=Device+SYNC&problems=1&sort=problems")
        assert rows() == [silent.name]
        assert all(horizontal_overflow(browser, width) <= 0 for width in (320, 390, 1280))
        find(".metrics tbody a").click()
        wait_for_page(browser, aggregator.url + f"/metric/{silent.name}")
        assert "There are no reports since 2024-06-01" in find(".note.problem").text
        assert all(horizontal_overflow(browser, width) <= 0 for width in (320, 390, 1280))
        folder = tmp_path / "downloads"
        folder.mkdir()
        browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})
        find("#downloads ~ ul a").click()
        while not (whole := [f for f in folder.glob(f"{silent.name}*.parquet") if f.read_bytes().endswith(b"PAR1")]):
            pass  # Chromium reserves the name with an empty file
        assert read_summary(whole[0]).num_reports == 20_000
        assert complaints(browser) == []
        assert [url for url in requested(browser) if not url.startswith((aggregator.url + "/", "data:"))] == []


def test_browser_shows_why_a_token_is_refused(browser: Any, start: StartAggregator, sqlite_store: SqlStore) -> None:
    aggregator = start(sqlite_store, local_reads_without_token=False)
    browser.get(aggregator.url + "/")
    browser.find_element("css selector", "#token").send_keys("hubbub_nonsense")
    browser.find_element("css selector", "form button").click()
    assert "token is unknown" in browser.find_element("css selector", "[role=alert]").text
    assert browser.get_cookies() == []


def _background(browser: Any, scheme: str) -> str:
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    return str(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))
