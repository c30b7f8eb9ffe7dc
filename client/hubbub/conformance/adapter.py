"""Adapter: a program that has the client under test, and answers each line of JSON by one."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from queue import Empty, Queue
from threading import Thread
from types import TracebackType
from typing import IO, Any, Self, cast

from hubbub.errors import HubbubError

_SHOWN_CHARACTERS = 200
_LONGEST_LINE, _MOST_LINES = 1 << 20, 64
_TIME_ZONE = "Pacific/Kiritimati"
"""Of the adapter: 14 hours ahead of UTC, so that a client that takes its days from the local time is found."""


class AdapterError(HubbubError):
    """The adapter cannot be started, ends, or writes something that is no answer."""


class Adapter:
    """Process of an adapter, started without a shell. It is a context manager. What the adapter writes to stderr is shown.

    command : program and arguments
    timeout : longest time for one answer, in seconds

    Raises AdapterError if the program cannot be started.
    """

    def __init__(self, command: Sequence[str], timeout: float) -> None:
        self._command, self._name, self._timeout = [*command], " ".join(command), timeout
        self._start()

    def _start(self) -> None:
        try:
            self._process = subprocess.Popen(  # noqa: S603  (the user names the command)
                self._command, env=os.environ | {"TZ": _TIME_ZONE}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        except OSError as problem:
            raise AdapterError(
                f"{self._name} cannot be started: {problem.strerror}. Check the path and its execute permission"
            ) from None
        self._requests, answers = cast("IO[bytes]", self._process.stdin), cast("IO[bytes]", self._process.stdout)
        self._lines: Queue[bytes] = Queue(_MOST_LINES)
        Thread(target=_read, args=(answers, self._lines), name="hubbub conformance", daemon=True).start()

    def kill(self) -> None:
        """Kill the process, and start another one."""
        self._end()
        self._start()

    def beside(self) -> Adapter:
        """Start another process of the adapter."""
        return Adapter(self._command, self._timeout)

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        with suppress(OSError):  # a request that it did not read
            self._requests.close()

    def ask(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the answer to a request: the JSON object of the adapter's next line.

        Raises AdapterError if the adapter ended, did not answer in time, or wrote something else than a JSON object.
        """
        try:
            self._requests.write(json.dumps(request).encode() + b"\n")
            self._requests.flush()
            line = self._lines.get(timeout=self._timeout)
        except Empty:
            raise AdapterError(
                f"{self._name} did not answer within {self._timeout:g} seconds. Flush its output after each line, or raise --timeout"
            ) from None
        except OSError:
            line = b""
        if not line:
            code = self._process.wait()
            raise AdapterError(f"{self._name} ended with exit code {code} before it had answered. Run it by hand")
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            shown = line[:_SHOWN_CHARACTERS].decode("utf-8", "backslashreplace").rstrip()
            raise AdapterError(f"{self._name} answered {shown!r}. An answer is one JSON object on one line")
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()


def _read(answers: IO[bytes], lines: Queue[bytes]) -> None:
    """Put the lines of a process into a queue, and an empty one at its end."""
    with answers:
        while line := answers.readline(_LONGEST_LINE):
            lines.put(line)
    lines.put(b"")
