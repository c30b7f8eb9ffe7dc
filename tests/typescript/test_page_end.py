"""What a page records as it ends is counted, in both browsers, and nothing of it is readable in localStorage."""

from __future__ import annotations

import itertools
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from hubbub.conformance.scenarios import PAGE
from tests.support.browsers import Browser, start_browser
from tests.typescript.conftest import Built
from tests.typescript.test_shop import Files, wait_until

HERE = Path(__file__).parent
NAVIGATIONS = 10
WAYS = ("awaited", "click", "visibilitychange", "pagehide", "submit", "close")
KEPT = "return Object.entries(localStorage).flat().join(' ')"


@contextmanager
def site(place: Path, bundle: Path) -> Iterator[ThreadingHTTPServer]:
    """Serve the page at every address of this machine: each has its own storage."""
    place.mkdir()
    shutil.copy(bundle, place / "hubbub.js")
    for name in ("ending_page.html", "ending_page.js"):
        shutil.copy(HERE / name, place)
    (place / "metrics.json").write_text(json.dumps([PAGE.to_dict()]))
    (place / "blank.html").write_text("<!doctype html><title>Blank</title>")
    server = ThreadingHTTPServer(("0.0.0.0", 0), partial(Files, directory=str(place)))  # noqa: S104  (all of 127.0.0.0/8)
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


class Site:
    """The page in a browser, at an address of its own."""

    numbers = itertools.count(2)

    def __init__(self, browser: Browser, server: ThreadingHTTPServer) -> None:
        self.browser, self.origin = browser, f"http://127.0.0.{next(self.numbers)}:{server.server_port}"

    def open(self, way: str, consent: str = "", page: str = "ending_page.html") -> None:
        self.browser.open(f"{self.origin}/blank.html", 800, "light")  # else only the fragment changes
        if page != "blank.html":
            self.browser.open(f"{self.origin}/{page}#{way},{consent}", 800, "light")
            wait_until(lambda: way == "early" or self.browser.run("return typeof client === 'object'"))

    def leave(self, way: str) -> None:
        """Open the page, and end it in a way."""
        if way == "close":
            self.open("", page="blank.html")
            self.browser.run(f"window.tab = open('/ending_page.html#{way}'); return null")
            wait_until(lambda: self.browser.run("return typeof tab.client === 'object'"))
            self.browser.run("tab.end(); return null")
            wait_until(lambda: self.browser.run("return tab.closed"))
        else:
            self.open(way)
            if way != "early":
                self.browser.run("setTimeout(end); return null")
            wait_until(lambda: self.browser.run("return location.pathname === '/blank.html'"))

    def state(self, question: str) -> Any:
        """What the client says of itself in a new page."""
        self.open("")
        script = "const done = arguments[arguments.length - 1]; client.inspect().then((found) => done(JSON.stringify(found)));"
        return json.loads(self.browser.run_async(script))[question]

    def recorded(self) -> int:
        counts = self.state("counts")
        assert counts["ignored"] == {}
        return int(counts["chosen"] + counts["superseded"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["chromium", "firefox"])
def test_recordings_at_the_end_of_a_page(name: str, built: Built, tmp_path: Path) -> None:
    kept = {}
    with site(tmp_path / "site", built("hubbub.js")) as server, start_browser(name, tmp_path / "profile") as browser:
        for way in WAYS:
            page = Site(browser, server)
            page.open("", "on")
            for _ in range(NAVIGATIONS):
                page.leave(way)
            kept[way] = page.recorded()
    print(f"kept of {NAVIGATIONS} in {name}: {kept}")  # noqa: T201  (the figure of the documentation)
    assert kept == dict.fromkeys(WAYS, NAVIGATIONS)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["chromium", "firefox"])
def test_what_a_page_leaves(name: str, built: Built, tmp_path: Path) -> None:
    with site(tmp_path / "site", built("hubbub.js")) as server, start_browser(name, tmp_path / "profile") as browser:
        page = Site(browser, server)
        page.open("")
        page.leave("pagehide")
        page.leave("early")
        assert browser.run(KEPT) == ""  # nothing before consent
        page.open("", "on")
        page.leave("pagehide")
        left = browser.run(KEPT)
        assert "canary" not in left
        assert "page" not in left.replace("hubbub", "")
        lengths = {len(stored) for stored in browser.run("return Object.values(localStorage)")} - {0}
        assert len(lengths) == 1

        for _ in range(3):
            page.leave("early")  # most pages end before they have read the secret
        counts = page.state("counts")
        lost = counts["ignored"].pop("not-started", 0)
        assert counts["ignored"] == {}
        kept = counts["chosen"] + counts["superseded"]
        assert kept + lost == 4

        page.leave("pagehide")
        before = browser.run("return Object.entries(localStorage)")
        page.open("", "off")
        wait_until(lambda: page.browser.run(KEPT) == "")
        page.open("", page="blank.html")
        # lines of a secret that is deleted
        browser.run(f"{json.dumps(before)}.forEach((line) => localStorage.setItem(...line))")
        page.open("", "on")
        time.sleep(0.2)
        counts = page.state("counts")
        assert counts["chosen"] + counts["superseded"] == kept + 1
        assert len(browser.run("return Object.keys(localStorage)")) == 1


COST = """
const done = arguments[arguments.length - 1];
(async () => {
  const { Client, IndexedDbStorage } = await import("/hubbub.js");
  const definitions = await (await fetch("/metrics.json")).json();
  const options = { definitions, url: "http://127.0.0.1:9", pauseWhenAutomated: false, requirePersistence: false };
  const clients = {};
  for (const name of ["lines", "none"]) {
    const storage = Object.assign(new IndexedDbStorage(name), name === "none" ? { page: null } : {});
    clients[name] = new Client({ ...options, storage });
    await clients[name].setConsent("on");
  }
  const found = { lines: [], none: [] };
  for (let round = 0; round < 40; round++) {
    for (const [name, client] of Object.entries(clients)) {
      const start = performance.now();
      const recordings = Array.from({ length: 100 }, (_, number) => client.record("page", `https://shop.example/${number}`));
      found[name].push((performance.now() - start) * 10);
      await Promise.all(recordings);
    }
  }
  const median = (values) => values.sort((a, b) => a - b)[values.length >> 1];
  done(JSON.stringify(Object.fromEntries(Object.entries(found).map(([name, values]) => [name, median(values)]))));
})().catch((error) => done(String(error)));
"""
"""Microseconds of one `record` for its caller, with lines and without, in turn."""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["chromium", "firefox"])
def test_the_cost_of_a_line_is_printed(name: str, built: Built, tmp_path: Path) -> None:
    with site(tmp_path / "site", built("hubbub.js")) as server, start_browser(name, tmp_path / "profile") as browser:
        Site(browser, server).open("", page="blank.html")
        found = json.loads(browser.run_async(COST))
    print(f"record in {name}: {found['lines']:.0f} us of the caller, {found['none']:.1f} us without a line")  # noqa: T201  (the figure of the documentation)
    assert found["lines"] > 0


SILENT = """
const done = arguments[arguments.length - 1];
(async () => {
  const never = new Promise(() => undefined);
  const stubs = {
    open: () => (IDBFactory.prototype.open = () => ({})),
    get: () => (IDBObjectStore.prototype.get = () => ({})),
    persisted: () => (navigator.storage.persisted = () => never),
    fetch: () => (globalThis.fetch = () => never),
  };
  const { Client, IndexedDbStorage } = await import("/hubbub.js");
  const definitions = await (await fetch("/metrics.json")).json();
  const timer = (end, milliseconds) => {
    const waiting = setTimeout(end, milliseconds / 100);
    return () => clearTimeout(waiting);
  };
  stubs["{stub}"]();
  let now = Date.now();
  const client = new Client({ definitions, url: "http://127.0.0.1:9", pauseWhenAutomated: false, clock: () => now, storage: new IndexedDbStorage(), timer });
  const answers = [await client.setConsent("on"), await client.record("page", "a")];
  now += 2 * 86400000;
  answers.push(await client.flush(1), (await client.inspect()).paused, await client.setConsent("off"));
  await client.close();
  done(JSON.stringify(answers));
})().catch((error) => done(String(error)));
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["chromium", "firefox"])
def test_a_silent_browser_holds_up_no_call(name: str, built: Built, tmp_path: Path) -> None:
    with site(tmp_path / "site", built("hubbub.js")) as server, start_browser(name, tmp_path / "profile") as browser:
        for stub in ("open", "get", "persisted", "fetch"):
            Site(browser, server).open("", page="blank.html")
            answers = json.loads(browser.run_async(SILENT.replace("{stub}", stub)))
            if stub != "fetch":
                assert answers[:3] == [False, "no-state", False], stub
                assert "did not answer within 10 seconds" in answers[3]
                assert answers[4] is False
