"""Threads of the host: the worker of `arecord`, and fork() hooks.

The hooks hold all locks before a fork, so that no change is half done, and reset the child. They run in the forking thread. Several
threads may fork at once: the hooks of one run after those of another, each with its own list of held sections. A section is a generator
inside a `with` statement: closing one that did not acquire its lock releases nothing.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Generator
from itertools import count
from typing import TYPE_CHECKING, ParamSpec, Protocol

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


HeldSection = Generator[None, None, None]


class ForkAware(Protocol):
    """An object with locks that must be held during a fork."""

    def _freeze(self) -> HeldSection:
        """Hold the locks from `next` to `close`."""

    def _after_fork_in_child(self) -> None:
        """Reset locks and threads: the child has no other thread, and inherited locks are never released."""


class _Held(threading.local):
    """Sections that this thread's forks hold. A signal handler may fork inside a fork's hooks."""

    def __init__(self) -> None:
        self.by_fork: list[list[HeldSection]] = []


_fork_lock = threading.RLock()
_alive: weakref.WeakValueDictionary[int, ForkAware] = weakref.WeakValueDictionary()
_numbers = count()
_held = _Held()


def register(forked: ForkAware) -> None:
    """Call the hooks of an object at every fork, as long as it exists."""
    with _fork_lock:
        _alive[next(_numbers)] = forked


def registered_clients() -> list[ForkAware]:
    """Return the registered objects, the oldest first, which is the order of their locks."""
    with _fork_lock:
        return list(_alive.values())


def _only_this_thread() -> HeldSection:
    with _fork_lock:
        yield


def _before() -> None:
    sections: list[HeldSection] = [_only_this_thread()]
    _held.by_fork.append(sections)
    next(sections[0])
    for forked in registered_clients():
        sections.append(forked._freeze())
        next(sections[-1])


def _after_in_parent() -> None:
    for section in reversed(_held.by_fork.pop()):
        section.close()


def _after_in_child() -> None:
    global _fork_lock  # threads of the parent may wait for it
    _after_in_parent()
    _fork_lock = threading.RLock()
    for forked in registered_clients():
        forked._after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
