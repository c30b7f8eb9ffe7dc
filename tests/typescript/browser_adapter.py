"""Adapter of the TypeScript client in a browser: python -m tests.typescript.browser_adapter BUNDLE chromium|firefox.

It opens a page with the client in a browser whose profile is in the client's directory, and passes each line to the page. The page may load
its own scripts and connect to the aggregator, and nothing else.
"""

from __future__ import annotations

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
    """A page in the browser of one directory."""

    def __init__(self, bundle: Path, name: str) -> None:
        self._bundle, self._name = bundle, name
        self._stack = ExitStack()
        self._directory: Path | None = None
        self._browser: Browser | None = None

    def answer(self, line: str) -> str:
        request = json.loads(line)
        if request["call"] == "start":
            self.open(Path(request["directory"]))
        elif self._browser is None:
            self.open(Path(self._stack.enter_context(tempfile.TemporaryDirectory())))
        assert self._browser is not None
        return str(self._browser.run_async(_ASK.replace("{line}", json.dumps(line))))

    def open(self, directory: Path) -> None:
        """Load the page anew, in another browser if the directory is another."""
        if directory != self._directory:
            self._stack.close()
            self._directory, self._stack = directory, ExitStack()
            profile = directory / "profile"
            end_processes(profile)  # of an adapter that was killed
            watching = _watch(profile)
            self._stack.callback(os.close, watching)
            self._browser = self._stack.enter_context(start_browser(self._name, profile))
            self._url = self._serve(directory / "port")
        assert self._browser is not None
        self._browser.open(self._url, 800, "light")
        while not self._browser.run(_READY):
            pass

    def _serve(self, port_file: Path) -> str:
        """Serve the page on the port of the directory, because the origin owns the storage."""
        port = int(port_file.read_text()) if port_file.exists() else 0
        ThreadingHTTPServer.allow_reuse_address = True
        server = ThreadingHTTPServer(("127.0.0.1", port), partial(Page, self._bundle))
        port_file.write_text(str(server.server_address[1]))
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        self._stack.callback(server.server_close)
        self._stack.callback(server.shutdown)
        return f"http://127.0.0.1:{server.server_address[1]}/"

    def close(self) -> None:
        self._stack.close()


def _watch(profile: Path) -> int:
    """Start a process that ends the browser of a profile when this one has ended; return what it watches."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.close(writing)
        os.read(reading, 1)
        end_processes(profile)
        os._exit(0)
    os.close(reading)
    return writing


def end_processes(profile: Path) -> None:
    """Kill the processes that were started with a profile, and wait until they are gone."""
    mine = {os.getpid(), os.getppid()}
    while found := [
        pid
        for pid in (int(each.name) for each in Path("/proc").glob("[0-9]*"))
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
    adapter = BrowserAdapter(Path(sys.argv[1]), sys.argv[2])
    for each in sys.stdin:
        sys.stdout.write(f"{adapter.answer(each)}\n")
        sys.stdout.flush()
    adapter.close()
