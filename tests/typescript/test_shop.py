"""The shop in examples/web with a real aggregator: consent, records, reload, two tabs, offline, withdrawal, in both browsers."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import urllib3

from hubbub_decoder.data.pull import pull_summary
from tests.support.browsers import Browser, axe_violations, start_browser
from tests.support.free_ports import free_ports
from tests.support.http_server import HUBBUB
from tests.support.paths import REPOSITORY
from tests.typescript.conftest import Built

SHOP = REPOSITORY / "examples" / "web"
CLOCK = """
const days = () => Number(localStorage.getItem("days") ?? 0);
const now = Date.now;
Date.now = () => now() + 86400000 * days();
Object.defineProperty(Navigator.prototype, "webdriver", {get: () => false});
"""
"""A test drives the browser, and its days pass at once."""


class Files(SimpleHTTPRequestHandler):
    """Files of the shop."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Write nothing."""


@contextmanager
def shop(place: Path, bundle: Path, aggregator_port: int) -> Iterator[str]:
    """Serve a copy of the shop, whose clock a test sets; yield its address."""
    shutil.copytree(SHOP, place)
    shutil.copy(bundle, place / "hubbub.js")
    shown = subprocess.run(
        [HUBBUB, "metrics", "show", str(SHOP / "metrics.toml"), "--json"], capture_output=True, text=True, check=True
    )
    (place / "metrics.json").write_text(shown.stdout)
    (place / "clock.js").write_text(CLOCK)
    for name in ("index.html", "shop.js"):
        text = (place / name).read_text().replace("127.0.0.1:8000", f"127.0.0.1:{aggregator_port}")
        (place / name).write_text(
            text.replace('<script type="module"', '<script src="clock.js"></script><script type="module"', 1)
        )
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=str(place)))
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def aggregator(place: Path, port: int, origin: str) -> Iterator[str]:
    """Run a real aggregator; yield the address of its listener for reads."""
    log = place / "log"
    command = [str(HUBBUB), "serve", str(SHOP / "metrics.toml"), "--port", str(port), "--local-reads-without-token"]
    command += ["--local-port", "0", "--database", f"{place}/reports.db", "--create", "--cors-origin", origin]
    with log.open("ab") as errors, subprocess.Popen(command, stderr=errors) as serving:
        start = len(log.read_bytes())
        while not (found := re.search(r"without a token on (\S+)", log.read_bytes()[start:].decode())):
            assert serving.poll() is None, log.read_text()
            time.sleep(0.05)
        wait_until(lambda: is_ready(port))
        try:
            yield found.group(1)
        finally:
            serving.terminate()
            serving.wait(30)
            log.write_bytes(b"")


def is_ready(port: int) -> bool:
    with suppress(urllib3.exceptions.HTTPError):
        return urllib3.request("GET", f"http://127.0.0.1:{port}/readyz", retries=False).status == 200
    return False


def wait_until(condition: Callable[[], object]) -> None:
    assert is_true_within(60, condition)


def is_true_within(seconds: float, condition: Callable[[], object]) -> bool:
    end = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.1)
    return bool(found)


class Visitor:
    """A person with a browser, in front of the shop."""

    def __init__(self, browser: Browser, url: str) -> None:
        self._browser, self._url = browser, url

    def visit(self, days: float) -> None:
        """Open the page when the clock is some days ahead."""
        self._browser.open(self._url, 800, "light")
        self._browser.run(f"localStorage.setItem('days', '{days}')")
        self._browser.open(self._url, 800, "light")
        wait_until(self.state)

    def click(self, selector: str) -> None:
        self._browser.run(f"document.querySelector('{selector}').click()")

    def state(self) -> str:
        return str(self._browser.run("return document.querySelector('#state')?.textContent ?? ''"))

    def is_asked(self) -> bool:
        return bool(self._browser.run("return !document.querySelector('#question').hidden"))

    def stored(self) -> dict[str, Any]:
        """What the browser keeps."""
        state: dict[str, Any] = json.loads(self._browser.run_async(_STORED))
        return state

    def counts(self) -> dict[str, Any]:
        counts: dict[str, Any] = self.stored()["counts"]
        return counts


_STORED = """
const done = arguments[arguments.length - 1];
indexedDB.open("hubbub").onsuccess = (opened) => {
  const reading = opened.target.result.transaction("state").objectStore("state").get("client");
  reading.onsuccess = () => { opened.target.result.close(); done(JSON.stringify(reading.result ?? null)); };
};
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["chromium", "firefox"])
def test_a_visitor_of_the_shop(name: str, built: Built, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with shop(tmp_path / "shop", built("hubbub.js"), port) as url, start_browser(name, tmp_path / "profile") as browser:
        visitor = Visitor(browser, url)

        visitor.visit(days=-3)  # asked, and nothing is recorded before the answer
        assert visitor.is_asked()
        visitor.click("[data-department=books]")
        assert visitor.state() == "Nothing is recorded."
        assert visitor.stored() is None
        visitor.click("#agree")
        wait_until(lambda: "Recording." in visitor.state())
        visitor.click("[data-department=music]")
        visitor.click("#buy")
        wait_until(lambda: visitor.counts()["chosen"] == 2)

        browser.run("open(location.href, 'second')")  # two tabs are one client
        wait_until(lambda: browser.run("return open('', 'second').document.querySelector('#state')?.textContent"))
        assert not visitor.is_asked()
        for _ in range(5):
            browser.run("open('', 'second').document.querySelector('#buy').click()")
            visitor.click("#buy")
        wait_until(lambda: visitor.counts()["superseded"] == 10)
        assert len(visitor.stored()["drafts"]) == 2
        browser.run("open('', 'second').close()")

        visitor.visit(days=-2)  # the period has ended, and there is no aggregator
        wait_until(lambda: len(visitor.stored()["queue"]) == 2)
        visitor.visit(days=0)  # overdue: sent at a random time of the next hour
        wait_until(lambda: len(visitor.stored()["queue"]) == 6)
        visitor.visit(days=0.05)
        wait_until(lambda: visitor.stored()["failures"] > 0)
        assert visitor.counts()["acknowledged"] == 0

        with aggregator(tmp_path, port, url) as reads:
            for hours in range(5, 15):  # a page that is left while it sends delays the next one
                visitor.visit(days=hours / 24)
                if is_true_within(15, lambda: visitor.counts()["acknowledged"] > 0):
                    break
            complaints = [complaint for complaint in browser.complaints() if "due to page navigation" not in complaint]
            assert complaints == []
            acknowledged = visitor.counts()["acknowledged"]
            assert reports_at(reads) >= acknowledged

        visitor.click("#change")
        wait_until(lambda: visitor.state() == "Nothing is recorded.")
        left = visitor.stored()
        assert (left["secret"], left["drafts"], left["queue"], left["sent"]) == ("", {}, [], [])
        assert {(*account["tags"], account["sealed"]) for account in left["accounts"].values()} == {("",)}
        assert axe_violations(browser) == []
        for width, scheme in ((390, "dark"), (1280, "light")):
            browser.open(url, width, scheme)
            wait_until(visitor.state)
            browser.screenshot(tmp_path / f"{width}-{scheme}.png")
            assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
        visitor.visit(days=1)
        assert visitor.state() == "Nothing is recorded."
        assert not visitor.is_asked()


def reports_at(reads: str) -> int:
    """Number of reports that an aggregator has counted."""
    return sum(pull_summary(reads, metric).num_reports for metric in ("department", "basket"))
