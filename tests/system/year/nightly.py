"""The night: pull, publish and watch by the commands, from the service over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

import click
from click.testing import CliRunner

from hubbub_decoder.cli import publish, pull, watch
from tests.system.year.definitions import CANDIDATES, TRAVELLED
from tests.system.year.service import Service

ALARM = 3
"""Exit code of `watch` after an alarm."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def map_in_this_process(
    function: Callable[[_Item], _Result], items: Sequence[_Item], _processes: int
) -> Iterator[tuple[_Item, _Result]]:
    """What replaces the processes of `publish`, which would take a second to start in each night."""
    return ((item, function(item)) for item in items)


class _Reads(BaseHTTPRequestHandler):
    """Passes a GET on to the application that runs at the moment."""

    service: Service

    def do_GET(self) -> None:
        answer = self.service.call("GET", self.path)
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, *_: Any) -> None:
        pass


@dataclass
class Analyst:
    """Who decodes and publishes; `said` has what the commands printed to stderr, by command."""

    directory: Path
    service: Service
    min_reports: int
    watched: Sequence[str] = ("dark",)
    alarms: int = 0
    said: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        handler = type("Reads", (_Reads,), {"service": self.service})
        self._server = HTTPServer(("127.0.0.1", 0), handler)
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.summaries, self.site = self.directory / "summaries", self.directory / "site"
        approved = self.directory / "approved"
        approved.mkdir(parents=True)
        for name, candidates in CANDIDATES.items():
            (approved / f"{name}.txt").write_text("".join(f"{candidate}\n" for candidate in candidates))
        self.approved = approved

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def pull(self, directory: Path, *options: str) -> None:
        """Download what a directory does not have."""
        self._run("pull", pull.command, [self.url, "--all", "--out-dir", str(directory), *options], (0,))

    def work(self) -> None:
        """Do the work of a night."""
        self.pull(self.summaries)
        if not list(self.summaries.rglob("*.parquet")):
            return
        arguments = [str(self.summaries), "--candidates", str(self.approved), "--out-dir", str(self.site)]
        if list(self.summaries.glob(f"{TRAVELLED.metric.name}@*.parquet")):  # it has no candidates
            arguments += ["--withhold", TRAVELLED.metric.name]
        self._run("publish", publish.command, [*arguments, "--min-reports", str(self.min_reports), "--jobs", "1"], (0,))
        for name in self.watched:
            files = sorted(map(str, self.summaries.glob(f"{name}@*.parquet")))
            if files:
                database = str(self.directory / f"watch-{name}.sqlite")
                self.alarms += self._run("watch", watch.command, [*files, "--database", database], (0, ALARM)) == ALARM

    def _run(self, name: str, command: click.Command, arguments: list[str], expected: Sequence[int]) -> int:
        result = CliRunner().invoke(command, arguments)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code in expected, (name, result.output)
        self.said.setdefault(name, []).append(result.stderr)
        return result.exit_code
