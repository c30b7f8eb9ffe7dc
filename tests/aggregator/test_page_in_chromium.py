"""The page in a real browser: signing in and out, the numbers, nothing else loaded, no complaint, no sideways scrolling."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.aggregator.chromium import chromium, requested, require
from tests.aggregator.test_tokens import given

from hubbub_aggregator.sql_store import SqlStore
from hubbub_aggregator.tokens import Scope

if TYPE_CHECKING:
    from tests.aggregator.conftest import MakeBatch, StartAggregator


_PATIENCE = 30.0  # seconds; a click returns before the page that it asks for is there


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Any]:
    require()
    with chromium(tmp_path / "profile") as started:
        started.implicitly_wait(_PATIENCE)
        yield started


def complaints(browser: Any) -> list[str]:
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] in ("WARNING", "SEVERE")]


def arrive(browser: Any, url: str) -> None:
    """Wait until this is the page that is shown, and all of it is there."""
    from selenium.common.exceptions import WebDriverException
    from selenium.webdriver.support.wait import WebDriverWait

    def is_there(_: object) -> bool:
        return bool(browser.current_url == url and browser.execute_script("return document.readyState") == "complete")

    WebDriverWait(browser, _PATIENCE, ignored_exceptions=[WebDriverException]).until(is_there)


def sideways(browser: Any, width: int) -> int:
    """Return by how many pixels the page is wider than a window of this width."""
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    return int(browser.execute_script("return document.documentElement.scrollWidth")) - width


def test_a_reader_signs_in_sees_what_came_in_and_signs_out(
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

    browser.get(aggregator.url + "/")
    arrive(browser, aggregator.url + "/sign-in")
    assert all(sideways(browser, width) <= 0 for width in (320, 390, 1280))
    find("#token").send_keys(secret)
    find("form button").click()
    arrive(browser, aggregator.url + "/")
    assert find("#reports").text == "366"
    assert [
        title.get_attribute("textContent") for title in browser.find_elements("css selector", "#homepage title")
    ] == [
        "2024-06-14: 321 reports, still open",
        "2024-06-15: 45 reports, still open",
    ]
    highest, lower = (float(bar.rect["height"]) for bar in browser.find_elements("css selector", "#homepage rect"))
    assert highest / lower == pytest.approx(321 / 45, rel=0.1)
    assert find("a[href='/problems/period-closed']").text == "period-closed"
    browser.execute_script("document.querySelectorAll('details').forEach(details => details.open = true)")
    assert all(sideways(browser, width) <= 0 for width in (320, 390, 1280))
    assert browser.execute_script("return document.cookie") == ""
    [cookie] = browser.get_cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["value"] == secret) == (True, "Strict", False)
    colours = [_background(browser, scheme) for scheme in ("light", "dark")]
    assert colours[0] != colours[1]
    browser.refresh()
    find("form button").click()
    arrive(browser, aggregator.url + "/sign-in")
    browser.get(aggregator.url + "/")
    assert browser.current_url == aggregator.url + "/sign-in"
    assert complaints(browser) == []
    elsewhere = [url for url in requested(browser) if not url.startswith((aggregator.url + "/", "data:"))]
    assert elsewhere == []


def test_a_wrong_token_is_told_in_the_form(browser: Any, start: StartAggregator, sqlite_store: SqlStore) -> None:
    aggregator = start(sqlite_store, local_reads_without_token=False)
    browser.get(aggregator.url + "/")
    browser.find_element("css selector", "#token").send_keys("hubbub_nonsense")
    browser.find_element("css selector", "form button").click()
    assert "not known here" in browser.find_element("css selector", "[role=alert]").text
    assert browser.get_cookies() == []


def _background(browser: Any, scheme: str) -> str:
    asked = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", asked)
    return str(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))
