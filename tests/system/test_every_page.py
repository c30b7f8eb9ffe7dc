"""Every HTML page in Chromium and Firefox: no complaint in the console, no number on two lines, no backtick, no horizontal scrolling.

In Chromium also no violation that axe-core finds.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.browsers import Browser, Chromium, axe_violations, start_browser
from tests.support.every_page import EXPLORED, SERVED, STATIC, explored_pages, served_pages, write_static_pages

_BROKEN_NUMBERS = r"""
const found = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const text = walker.currentNode;
  if (text.parentElement.closest("script, style, svg, pre, .bits") || !text.parentElement.checkVisibility()) continue;
  for (const number of text.data.matchAll(/(?<![\w.,\/&=-])[-+]?\d[\d.,-]*\d%?(?![\w-])/g)) {
    const range = document.createRange();
    range.setStart(text, number.index);
    range.setEnd(text, number.index + number[0].length);
    const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.bottom / 4)));
    if (lines.size > 1) found.push(number[0]);
  }
}
return found;
"""
_BACKTICKS = """
const text = document.body.cloneNode(true);
text.querySelectorAll("script, style, pre, textarea, bdi").forEach((each) => each.remove());
return text.textContent.match(/[^\\n]{0,40}`[^\\n]{0,40}/g) ?? [];
"""
_EXPECTED = "Failed to load resource: the server responded with a status of 4"


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """URLs of the pages by name."""
    files = write_static_pages(tmp_path_factory.mktemp("pages"))
    assert files.keys() == {*STATIC}
    with (
        served_pages(tmp_path_factory.mktemp("served")) as url,
        explored_pages(tmp_path_factory.mktemp("explored")) as explored,
    ):
        yield {name: file.as_uri() for name, file in files.items()} | {path: url + path for path in SERVED} | explored


@pytest.fixture(scope="module", params=["chromium", "firefox"])
def browser(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with start_browser(request.param, tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.mark.slow
# Marionette leaves pipes of Firefox open
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", [*STATIC, *SERVED, *(f"explore {path}" for path in EXPLORED)])
def test_page_is_accessible_at_every_width(browser: Browser, addresses: dict[str, str], name: str) -> None:
    for width, scheme in ((390, "dark"), (1280, "light")):
        where = (name, width, scheme)
        browser.open(addresses[name], width, scheme)
        browser.run("document.querySelectorAll('details').forEach((each) => (each.open = true))")
        complaints = [complaint for complaint in browser.complaints() if _EXPECTED not in complaint]
        assert (where, complaints) == (where, [])
        if isinstance(browser, Chromium):  # axe-core reads the document and its styles, which are the same in Firefox
            assert (where, axe_violations(browser)) == (where, [])
        assert (where, browser.run(_BROKEN_NUMBERS)) == (where, [])
        assert (where, browser.run(_BACKTICKS)) == (where, [])
        wider = browser.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert (where, wider) == (where, 0)
