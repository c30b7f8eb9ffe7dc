"""Run the code blocks of a Markdown page in order, with a real aggregator."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

_BLOCK = re.compile(r"(?:`([\w.-]+\.\w+)`:\n\n)?```(\w+)\n(.*?)```", re.DOTALL)
_SETUP = ("python3 -m venv ", ". .venv/bin/activate", "pip ", "make ")
"""Starts of the lines that make the environment, which a run of the page already has."""

_ADDRESSES = ("http://127.0.0.1:8000", "http://127.0.0.1:8100")


class PageRun:
    """Run of a page in a folder: use it as a context manager, it stops the aggregator at the end.

    A block after a line that ends in a file name and a colon is saved as this file.
    `sh` blocks run line by line, `python` blocks at once; `hubbub serve` and `hubbub explore` stay in the background on free ports.
    `text` blocks are output: each of their lines must be in the output of the blocks above.
    Blocks of other languages are not run.

    python   : the interpreter of the environment whose commands run, beside which is `hubbub`
    explored : after `hubbub explore`, the address that it printed
    """

    def __init__(self, page: str, folder: Path, python: Path = Path(sys.executable)) -> None:
        self._page, self._folder, self._python = page, folder, python
        self._servers: list[subprocess.Popen[bytes]] = []
        self._addresses = _ADDRESSES
        self.output = self.explored = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self._servers:
            server.terminate()
            server.wait(30)

    def run(self) -> str:
        """Run all blocks and return their output."""
        for name, language, text in _BLOCK.findall(self._page):
            if language == "text":
                missing = set(text.splitlines()) - {line.rstrip() for line in self.output.splitlines()}
                assert not missing, self.output
            elif name:
                (self._folder / name).write_text(self._with_addresses(text))
            elif language == "sh":
                for line in text.splitlines():
                    self._run_line(line)
            elif language == "python":
                self._run(str(self._python), "-c", self._with_addresses(text))
        return self.output

    def _run_line(self, line: str) -> None:
        command = line.partition("  #")[0].split()
        if line.startswith("hubbub serve"):
            listening = r"listening on (\S+)\n.*without a token on (\S+)"
            service = self._start(*command, "--port", "0", "--local-port", "0", until=listening)
            self._addresses = service.group(1), service.group(2)
        elif line.startswith("hubbub explore"):
            self.explored = self._start(*command, "--port", "0", until=r"(http://\S+) shows").group(1)
        elif not line.startswith(_SETUP):
            self._run("sh", "-c", self._with_addresses(line))

    def _run(self, *command: str) -> None:
        environment = {**os.environ, "PATH": f"{self._python.parent}:{os.environ['PATH']}", "COLUMNS": "80"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self._folder, env=environment)
        assert done.returncode == 0, (command, done.stderr)
        self.output += done.stdout

    def _start(self, *command: str, until: str) -> re.Match[str]:
        """Start a server, and return the match of its output when it listens."""
        log = self._folder / f"{command[1]}.log"
        with log.open("wb") as output:
            server = subprocess.Popen(
                [str(self._python.parent / command[0]), *command[1:]],
                stdout=output,
                stderr=output,
                cwd=self._folder,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        self._servers.append(server)
        while not (found := re.search(until, log.read_text())):
            assert server.poll() is None, log.read_text()
        return found

    def _with_addresses(self, text: str) -> str:
        for shown, actual in zip(_ADDRESSES, self._addresses, strict=True):
            text = text.replace(shown, actual)
        return text
