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
    `sh` blocks run line by line, `python` blocks at once; `hubbub serve` stays in the background on free ports.
    `text` blocks are output: each of their lines must be in the output of the blocks above.
    Blocks of other languages are not run.

    python : the interpreter of the environment whose commands run, beside which is `hubbub`
    """

    def __init__(self, page: str, folder: Path, after_python: str = "", python: Path = Path(sys.executable)) -> None:
        self._page, self._folder, self._after_python = page, folder, after_python
        self._python = python
        self._aggregator: subprocess.Popen[bytes] | None = None
        self._addresses = _ADDRESSES
        self.output = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._aggregator is not None:
            self._aggregator.terminate()
            self._aggregator.wait(30)

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
                self._run(str(self._python), "-c", self._with_addresses(text) + self._after_python)
        return self.output

    def _run_line(self, line: str) -> None:
        if line.startswith("hubbub serve"):
            self._serve(line.partition("  #")[0].split())
        elif not line.startswith(_SETUP):
            self._run("sh", "-c", self._with_addresses(line))

    def _run(self, *command: str) -> None:
        environment = {**os.environ, "PATH": f"{self._python.parent}:{os.environ['PATH']}", "COLUMNS": "80"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self._folder, env=environment)
        assert done.returncode == 0, (command, done.stderr)
        self.output += done.stdout

    def _serve(self, command: list[str]) -> None:
        log = self._folder / "serve.log"
        with log.open("wb") as errors:
            self._aggregator = subprocess.Popen(
                [str(self._python.parent / command[0]), *command[1:], "--port", "0", "--local-port", "0"],
                stderr=errors,
                cwd=self._folder,
            )
        while not (found := re.search(r"listening on (\S+)\n.*without a token on (\S+)", log.read_text())):
            assert self._aggregator.poll() is None, log.read_text()
        self._addresses = found.group(1), found.group(2)

    def _with_addresses(self, text: str) -> str:
        for shown, actual in zip(_ADDRESSES, self._addresses, strict=True):
            text = text.replace(shown, actual)
        return text
