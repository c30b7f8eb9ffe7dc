"""Deferred logging. Messages are emitted only when this thread holds no hubbub lock.

The host's log handler may call `record`, and would wait for a lock that this thread holds: a deadlock.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from hubbub.sdk.runtime.error_guard import log
from hubbub.sdk.runtime.process import Process, this_process

journal_threads: list[tuple[Process, int]] = []
"""Processes and ids of threads inside a journal section, once for each nested section. A forked child inherits entries of its parent."""

_pending: deque[Callable[[], None]] = deque()
_MAX_KEYS = 100


class OncePerKey:
    """Predicate that is true at the first call with a key, for at most `_MAX_KEYS` keys."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def __call__(self, key: str) -> bool:
        """Return whether this is the first call with the key."""
        if key in self._seen or len(self._seen) >= _MAX_KEYS:
            return False
        self._seen.add(key)
        return True

    def log(self, message: str) -> None:
        """Log a message that was not logged before, as soon as this thread holds no lock of hubbub."""
        if self(message):
            log_when_unlocked("%s", message)


def holds_journal() -> bool:
    """Return whether this thread is inside a journal section: a signal handler or finalizer must not wait for its own thread's lock."""
    return bool(journal_threads) and (this_process(), threading.get_ident()) in journal_threads


def log_when_unlocked(text: str, *arguments: object, level: int = logging.WARNING) -> None:
    """Log a message as soon as this thread holds no lock of hubbub."""
    run_when_unlocked(partial(log, level, text, *arguments))


def run_when_unlocked(write: Callable[[], None]) -> None:
    """Write a message as soon as this thread holds no lock of hubbub."""
    _pending.append(write)
    flush_pending_logs()


def flush_pending_logs() -> None:
    """Emit the deferred messages, if this thread holds no lock of hubbub."""
    while _pending and not holds_journal():
        write = None
        with suppress(IndexError):  # another thread emits it
            write = _pending.popleft()
        if write is not None:
            write()
