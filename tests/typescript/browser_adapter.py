"""Adapter of the TypeScript client in a browser: python -m tests.typescript.browser_adapter BUNDLE chromium|firefox PROFILES.

It opens a page with the client in a browser whose profile is below the directory PROFILES, and passes each line to the page. The page may load
its own scripts and connect to the aggregator, and nothing else. It needs Linux: /proc, and addresses such as 127.1.2.3.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import tempfile
from contextlib import ExitStack, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from tests.support.browsers import Browser, start_browser

_PAGE = b'<!doctype html><title>Client</title><script type="module" src="/client.js"></script>'
_ASK = "const done = arguments[arguments.length - 1]; conformance({line}).then(done, (error) => done(String(error)));"
_READY = "return typeof conformance === 'function';"


class Page(BaseHTTPRequestHandler):
    """The page and its script."""

    def __init__(self, bundle: Path, *arguments: Any) -> None:
        self._bundle = bundle
        super().__init__(*arguments)

    def do_GET(self) -> None:
        is_script = self.path == "/client.js"
        content = self._bundle.read_bytes() if is_script else _PAGE
        self.send_response(200)
        self.send_header("Content-Type", "text/javascript" if is_script else "text/html; charset=utf-8")
        self.send_header(
            "Content-Security-Policy", "default-src 'none'; script-src 'self'; connect-src http://127.0.0.1:*"
        )
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Write nothing."""


class BrowserAdapter:
    """A page in a browser; each directory has its own origin, so that its storage is its own, and remembers the browser's profile.

    A directory of an adapter that was killed is opened with that adapter's profile. Other directories take the browser that runs.
    """

    def __init__(self, bundle: Path, name: str, profiles: Path) -> None:
        self._bundle, self._name, self._profiles = bundle, name, profiles
        self._browsers, self._servers = ExitStack(), ExitStack()
        self._directory: Path | None = None
        self._profile: Path | None = None
        self._browser: Browser | None = None

    def answer(self, line: str) -> str:
        request = json.loads(line)
        if request["call"] == "start":
            if _is_open_elsewhere(Path(request["directory"])):
                return json.dumps({"unknown": True})  # its profile runs in another adapter's browser
            self.open(Path(request["directory"]))
        elif self._browser is None:
            self.open(Path(tempfile.mkdtemp(dir=self._profiles)))
        assert self._browser is not None
        return str(self._browser.run_async(_ASK.replace("{line}", json.dumps(line))))

    def open(self, directory: Path) -> None:
        """Load the page anew, at another address if the directory is another."""
        if directory != self._directory:
            self._directory = directory
            place = directory / "browser.json"
            if not place.exists():
                profile = self._profile or Path(tempfile.mkdtemp(prefix="profile-", dir=self._profiles))
                host = f"127.{'.'.join(str(byte or 1) for byte in os.urandom(3))}"
                place.write_text(json.dumps({"profile": str(profile), "host": host, "port": 0}))
            chosen = json.loads(place.read_text()) | {"adapter": os.getpid()}
            self._run_with(Path(chosen["profile"]))
            self._servers.close()
            self._url, chosen["port"] = self._serve(chosen["host"], chosen["port"])
            place.write_text(json.dumps(chosen))
        assert self._browser is not None
        self._browser.open(self._url, 800, "light")
        while not self._browser.run(_READY):
            pass

    def _run_with(self, profile: Path) -> None:
        """Start the browser with a profile, unless it runs."""
        if profile == self._profile:
            return
        self._browsers.close()
        self._profile = profile
        watching = _watch(profile)
        self._browsers.callback(os.close, watching)
        self._browser = self._browsers.enter_context(start_browser(self._name, profile))

    def _serve(self, host: str, port: int) -> tuple[str, int]:
        """Serve the page at the address of the directory, because the origin owns the storage; return the URL and the port."""
        ThreadingHTTPServer.allow_reuse_address = True
        server = ThreadingHTTPServer((host, port), partial(Page, self._bundle))
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        self._servers.callback(server.server_close)
        self._servers.callback(server.shutdown)
        return f"http://{host}:{server.server_port}/", server.server_port

    def close(self) -> None:
        self._browsers.close()
        self._servers.close()


def _is_open_elsewhere(directory: Path) -> bool:
    """Return whether another adapter that runs has opened a directory."""
    place = directory / "browser.json"
    pid = json.loads(place.read_text()).get("adapter", 0) if place.exists() else 0
    return pid not in (0, os.getpid()) and Path(f"/proc/{pid}/stat").exists() and _state(pid) != "Z"


def _state(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return "Z"


def _watch(profile: Path) -> int:
    """Start a process that ends the browser of a profile when this one has ended; return what it watches.

    It has a lock, for which the adapter waits that opens the profile again: that browser would be ended, too.
    """
    lock = os.open(f"{profile}.lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.close(writing)
        os.read(reading, 1)
        end_processes(profile)
        os._exit(0)
    os.close(reading)
    os.close(lock)
    return writing


def end_processes(profile: Path) -> None:
    """Kill the processes that were started with a profile, and wait until they are gone."""
    mine = {os.getpid(), os.getppid()}
    while found := [
        pid
        for pid in (int(process.name) for process in Path("/proc").glob("[0-9]*"))
        if pid not in mine and _uses(pid, profile)
    ]:
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _uses(pid: int, profile: Path) -> bool:
    with suppress(OSError):
        return str(profile).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


if __name__ == "__main__":
    adapter = BrowserAdapter(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
    for line in sys.stdin:
        sys.stdout.write(f"{adapter.answer(line)}\n")
        sys.stdout.flush()
    adapter.close()
