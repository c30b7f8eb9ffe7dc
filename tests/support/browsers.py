"""Chromium and Firefox behind one interface: open a page at a width in a color scheme, run scripts, read complaints, take screenshots."""

from __future__ import annotations

import base64
import gc
import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.support.chromium import chromium, require
from tests.support.free_ports import free_ports

HEIGHT = 900

_AXE = """
const done = arguments[arguments.length - 1];
axe.run(document, {resultTypes: ["violations"]}).then(
  (found) => done(found.violations.flatMap((rule) => rule.nodes.map((node) => `${rule.id}: ${node.target.join(" ")}: ${node.failureSummary}`))),
  (error) => done([String(error)]));
"""


class Browser(Protocol):
    """A browser with one window."""

    def open(self, url: str, width: int, scheme: str) -> None:
        """Open a page in a window of `width` pixels; scheme : light or dark."""

    def run(self, script: str) -> Any:
        """Return the value of a script in the page."""

    def run_async(self, script: str) -> Any:
        """Return what a script passes to its last argument, a function."""

    def complaints(self) -> list[str]:
        """Return the warnings and errors of the console since the page was opened."""

    def screenshot(self, path: Path) -> None:
        """Write the whole page to a PNG file."""


class Chromium:
    """Chromium, by its driver."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver

    def open(self, url: str, width: int, scheme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        size = {"width": width, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        self._driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self._driver.get_log("browser")
        self._driver.get(url)

    def run(self, script: str) -> Any:
        return self._driver.execute_script(script)

    def run_async(self, script: str) -> Any:
        """Chromium itself waits for the end: its driver would look every tenth of a second, which is most of the time of a short script."""
        promise = f"new Promise((done) => (function () {{ {script}\n }})(done))"
        evaluation = {"expression": promise, "awaitPromise": True, "returnByValue": True}
        found = self._driver.execute_cdp_cmd("Runtime.evaluate", evaluation)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def complaints(self) -> list[str]:
        return [
            entry["message"] for entry in self._driver.get_log("browser") if entry["level"] in ("WARNING", "SEVERE")
        ]

    def screenshot(self, path: Path) -> None:
        taken = self._driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
        path.write_bytes(base64.b64decode(taken["data"]))


class Firefox:
    """Firefox, by Marionette, its own protocol: no registry has geckodriver."""

    def __init__(self, session: Any) -> None:
        self._session = session
        with session.using_context("chrome"):
            session.execute_script("document.documentElement.style.minWidth = '0'")  # else 500 pixels

    def open(self, url: str, width: int, scheme: str) -> None:
        with self._session.using_context("chrome"):
            self._session.execute_script(
                "Services.prefs.setIntPref('layout.css.prefers-color-scheme.content-override', arguments[0]); Services.console.reset()",
                [int(scheme == "light")],
            )
        self._session.set_window_rect(width=width, height=HEIGHT)
        self._session.navigate(url)

    def run(self, script: str) -> Any:
        return self._session.execute_script(script, sandbox=None)

    def run_async(self, script: str) -> Any:
        return self._session.execute_async_script(script, sandbox=None)

    def complaints(self) -> list[str]:
        url = self._session.get_url()
        script = """
            return Services.console.getMessageArray().filter((each) => each instanceof Ci.nsIScriptError && each.sourceName.startsWith(arguments[0]))
                .map((each) => each.errorMessage)"""
        with self._session.using_context("chrome"):
            return list(self._session.execute_script(script, [url.partition("#")[0]]))

    def screenshot(self, path: Path) -> None:
        path.write_bytes(self._session.screenshot(format="binary", full=True))


def _firefox() -> str | None:
    return shutil.which("firefox-esr") or shutil.which("firefox")


def require_browser(name: str) -> None:
    """Skip the test if `chromium` or `firefox` is missing, or fail if $HUBBUB_TEST_REQUIRE contains `browser`."""
    if name == "chromium":
        require()
    elif _firefox() is None:
        reason = "there is no firefox-esr: apt-get install firefox-esr"
        if "browser" in os.environ.get("HUBBUB_TEST_REQUIRE", "").split(","):
            pytest.fail(reason)
        pytest.skip(reason)


@contextmanager
def start_browser(name: str, profile: Path) -> Iterator[Browser]:
    """Start `chromium` or `firefox` with a profile, which stays; the test is skipped, or fails, if it is not installed."""
    require_browser(name)
    if name == "chromium":
        with chromium(profile, "--hide-scrollbars") as driver:
            driver.set_script_timeout(120)
            yield Chromium(driver)
        return
    session = _start_firefox(profile)
    session.timeout.script = 120
    try:
        yield Firefox(session)
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Marionette leaves pipes of Firefox open
            session.quit()
            session.cleanup()
            del session
            gc.collect()


def _start_firefox(profile: Path, starts: int = 2) -> Any:
    """Return a session of Marionette. Another program may have taken the free port, or a loaded machine no time for the start."""
    with warnings.catch_warnings():
        # Its dependencies use deprecated functions of others, and leave sockets open in which they waited.
        warnings.simplefilter("ignore")
        from marionette_driver.geckoinstance import DesktopInstance
        from marionette_driver.marionette import Marionette
        from mozprofile import Profile

        (port,) = free_ports(1)
        preferences = DesktopInstance.required_prefs | DesktopInstance.desktop_prefs | {"marionette.port": port}
        try:
            session = Marionette(
                bin=_firefox(),
                headless=True,
                profile=Profile(str(profile), preferences=preferences, restore=False),
                port=port,
                app_args=["-remote-allow-system-access"],
                gecko_log=str(profile.with_suffix(".log")),
            )
            session.start_session()
        except OSError:
            if starts == 1:
                raise
            return _start_firefox(profile, starts - 1)
    return session


@cache
def _axe() -> str:
    return files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")


def axe_violations(browser: Browser) -> list[str]:
    """Return what axe-core finds in the page, each with its rule, element and reason."""
    browser.run(_axe())
    return list(browser.run_async(_AXE))
