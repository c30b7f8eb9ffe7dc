"""What goes to the host's log is said when its thread holds nothing of ours: a handler of the host may record, and wait for those who log."""

from __future__ import annotations

import logging
import threading
from collections import deque
from contextlib import suppress

from hubbub.sdk.runtime.error_guard import log

journal_threads: list[int] = []
"""The threads that are within a journal, once for each time."""

_pending_logs: deque[tuple[int, str, tuple[object, ...]]] = deque()


class OncePerKey:
    """What is said only once, and of it at most so many things."""

    def __init__(self, most: int = 100) -> None:
        self._most = most
        self._said: set[str] = set()

    def __call__(self, about: str) -> bool:
        """Say whether this is the first time."""
        if about in self._said or len(self._said) >= self._most:
            return False
        self._said.add(about)
        return True


def holds_journal() -> bool:
    """Say whether this thread is within a journal already: a signal handler or a finalizer must not wait for what its own thread holds."""
    return threading.get_ident() in journal_threads


def log_when_unlocked(text: str, *about: object, level: int = logging.WARNING) -> None:
    """Log, as soon as this thread holds nothing."""
    _pending_logs.append((level, text, about))
    flush_pending_logs()


def flush_pending_logs() -> None:
    """Log what is to be said, if this thread holds nothing."""
    while _pending_logs and not holds_journal():
        with suppress(IndexError):  # another thread says it
            level, text, about = _pending_logs.popleft()
            log(level, text, *about)
