"""Worker thread of `arecord`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

P = ParamSpec("P")


class AsyncWorker:
    """Dedicated thread for calls that coroutines make, so that the event loop never waits for a disk.

    The first call starts it: the host's own executor may be busy or shut down.
    """

    def __init__(self) -> None:
        self._starting = threading.RLock()
        self._executor: ThreadPoolExecutor | None = None

    async def run(self, step: Callable[P, None], *arguments: P.args, **named: P.kwargs) -> None:
        """Run `step` in the thread, and wait for its end."""
        import asyncio
        from functools import partial

        try:
            future = asyncio.get_running_loop().run_in_executor(self._thread(), partial(step, *arguments, **named))
        except RuntimeError:  # the interpreter shuts down, no thread can be started, or the loop is not asyncio's
            step(*arguments, **named)
            return
        await future

    def close(self) -> None:
        """End the thread after the calls that wait for it."""
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
