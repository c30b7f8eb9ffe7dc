"""The decoding process: it answers jobs one after another, without secrets, network and write access, and within limits.

`python -m hubbub_decoder.explore.decoding_process` reads a job, a line of JSON, from stdin. It writes a line, `{"length": bytes}` and the bytes of the answer,
or `{"reason": text}`.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from pathlib import Path
from typing import Any

from hubbub.errors import HubbubError

MAX_SECONDS = 60.0
MAX_MEMORY = 2 << 30  # bytes of address space
MAX_ANSWER = 64 << 20  # bytes
_LOWEST_PRIORITY = 19
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_FORBIDDEN = (
    "socket.",
    "subprocess.",
    "os.system",
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "os.spawn",
    "os.kill",
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.truncate",
    "os.chmod",
    "os.chown",
    "os.utime",
    "shutil.",
    "ctypes.",
)


class FailedError(HubbubError):
    """The decoding process gave no answer."""


class DecodingProcess:
    """A process that is started when it is needed, and ended when a job exceeds its limits.

    place : a directory that this user can write, as Matplotlib requires; nothing is written there
    """

    def __init__(self, place: Path, seconds: float = MAX_SECONDS) -> None:
        self._place, self._seconds = place, seconds
        self._process: Process | None = None

    async def answer(self, job: str) -> bytes:
        """Answer to a job (`Job.to_json`); one at a time. Raises FailedError."""
        try:
            async with asyncio.timeout(self._seconds):
                return await self._ask(job)
        except TimeoutError:
            await self.end()
            raise FailedError(
                f"Decoding took more than {self._seconds:.0f} seconds, and was ended. Choose fewer periods or strings, or run `hubbub decode`."
            ) from None
        except (asyncio.IncompleteReadError, OSError, ValueError):
            await self.end()
            raise FailedError(
                f"The decoding process died, probably because it needed more than {MAX_MEMORY >> 30} GB. Choose fewer strings, or run `hubbub decode`."
            ) from None
        except asyncio.CancelledError:
            await self.end()
            raise

    async def _ask(self, job: str) -> bytes:
        if self._process is None:
            self._process = await self._start()
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None  # noqa: S101  (it is a pipe)
        assert stdout is not None  # noqa: S101
        stdin.write(f"{job}\n".encode())
        await stdin.drain()
        head = json.loads(await stdout.readline())
        if "reason" in head:
            raise FailedError(head["reason"])
        if not 0 <= head["length"] <= MAX_ANSWER:
            raise ValueError(head)
        return await stdout.readexactly(head["length"])

    async def _start(self) -> Process:
        command = (sys.executable, "-m", __name__)
        try:
            return await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=_environment(self._place), cwd="/"
            )
        except OSError as problem:
            raise FailedError(
                f"The decoding process cannot be started ({sys.executable}: {problem.strerror}). Run the command as a user who can start it."
            ) from None

    async def end(self) -> None:
        """End the process; the next job starts another."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _environment(place: Path) -> dict[str, str]:
    """Nothing of this process's environment but where Python finds its modules, and which arithmetic the libraries use."""
    return {name: value for name, value in os.environ.items() if name.startswith(("OPENBLAS_", "NPY_"))} | {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MPLBACKEND": "agg",
        "MPLCONFIGDIR": str(place),
        "HOME": "/",
    }


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """Audit hook: refuse to write, to start programs and to use the network."""
    writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITES
    if writes or event.startswith(_FORBIDDEN):
        raise PermissionError(f"the decoding process may not use {event}")


def limit_this_process() -> None:
    """Give up, for good, whatever decoding does not need."""
    os.nice(_LOWEST_PRIORITY)
    for kind, most in ((resource.RLIMIT_AS, MAX_MEMORY), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
        with suppress(ValueError, OSError):  # macOS has no limit of the address space
            resource.setrlimit(kind, (most, most))
    sys.addaudithook(_refuse)


def main() -> None:
    """Answer the jobs of stdin until it ends."""
    from hubbub_decoder.explore.job import Job

    limit_this_process()
    for line in sys.stdin.buffer:
        data = b""
        try:
            data = Job.from_json(line).answer()
            head: dict[str, Any] = {"length": len(data)}
        except HubbubError as problem:
            head = {"reason": str(problem)}
        except MemoryError:
            return  # what is left may be damaged
        except Exception as problem:  # noqa: BLE001  (the next job may succeed)
            head = {"reason": f"unexpected {type(problem).__name__}: {problem}"}
        sys.stdout.buffer.write(json.dumps(head).encode() + b"\n" + data)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
