"""Forks: while a process is copied no thread is in the middle of something, and the child begins anew.

The hooks run in the thread that forks, and several may fork at once: one after the other, each with a record of its own of what it holds.
What is held is a generator in its `with`: closing one that never came so far releases nothing.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Generator
from itertools import count
from typing import Protocol

HeldSection = Generator[None, None, None]


class ForkAware(Protocol):
    """What must be still while the process is copied."""

    def _freeze(self) -> HeldSection:
        """Hold its locks from `next` to `close`."""

    def _after_fork_in_child(self) -> None:
        """Begin anew: no other thread came along, and what was held is held for ever."""


class _Held(threading.local):
    """What this thread's forks hold; a signal handler may fork within a fork's hooks."""

    def __init__(self) -> None:
        self.by_fork: list[list[HeldSection]] = []


_fork_lock = threading.RLock()
_alive: weakref.WeakValueDictionary[int, ForkAware] = weakref.WeakValueDictionary()
_numbers = count()
_held = _Held()


def register(forked: ForkAware) -> None:
    """Keep it whole through every fork, for as long as it lives."""
    with _fork_lock:
        _alive[next(_numbers)] = forked


def registered_clients() -> list[ForkAware]:
    """Return what is watched, the oldest first: the order in which locks are taken."""
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
    global _fork_lock  # its waiters are the parent's
    _after_in_parent()
    _fork_lock = threading.RLock()
    for forked in registered_clients():
        forked._after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
