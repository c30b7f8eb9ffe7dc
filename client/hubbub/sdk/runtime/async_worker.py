"""Recording from asyncio: a thread of its own does it, so that the event loop never waits for a disk."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

P = ParamSpec("P")


class AsyncWorker:
    """One thread, made for the first who needs it; the host's own executor may be busy, or shut down."""

    def __init__(self) -> None:
        self._starting = threading.RLock()
        self._executor: ThreadPoolExecutor | None = None

    async def run(self, step: Callable[P, None], *arguments: P.args, **named: P.kwargs) -> None:
        """Wait for a step that the thread takes."""
        import asyncio
        from functools import partial

        try:
            taken = asyncio.get_running_loop().run_in_executor(self._thread(), partial(step, *arguments, **named))
        except RuntimeError:  # the interpreter shuts down, there are no more threads, or the loop is not asyncio's
            step(*arguments, **named)
            return
        await taken

    def close(self) -> None:
        """End the thread once it has taken all steps."""
        with self._starting:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown()

    def _thread(self) -> ThreadPoolExecutor:
        from concurrent.futures import ThreadPoolExecutor

        with self._starting:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(1, "hubbub-arecord")
            return self._executor
