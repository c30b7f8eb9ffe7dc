"""Headless Chromium of the system; its requests and console messages are recorded."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def require() -> None:
    """Skip the test if Chromium is missing, or fail if $HUBBUB_TEST_REQUIRE contains `browser`."""
    missing = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    if missing:
        reason = f"there is no {' and no '.join(missing)}: apt-get install chromium chromium-driver"
        if "browser" in os.environ.get("HUBBUB_TEST_REQUIRE", "").split(","):
            pytest.fail(reason)
        pytest.skip(reason)


@contextmanager
def chromium(profile: Path, *flags: str) -> Iterator[Any]:
    """Start Chromium with a new profile."""
    from selenium.webdriver import Chrome, ChromeOptions, ChromeService

    options = ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for flag in (*FLAGS, *flags, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    # The command of the driver then names the profile, as that of the browser does.
    service = ChromeService(str(shutil.which("chromedriver")), log_output=f"{profile}.log")
    browser = Chrome(options=options, service=service)
    try:
        browser.get("about:blank")
        requested(browser)  # its own new tab
        yield browser
    finally:
        browser.quit()


def requested(browser: Any) -> list[str]:
    """Return the URLs that pages requested since the last call."""
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
