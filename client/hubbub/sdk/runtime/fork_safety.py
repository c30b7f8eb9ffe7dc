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

Section = Generator[None, None, None]


class Forked(Protocol):
    """What must be still while the process is copied."""

    def _still(self) -> Section:
        """Hold its locks from `next` to `close`."""

    def _after_fork_in_child(self) -> None:
        """Begin anew: no other thread came along, and what was held is held for ever."""


class _Held(threading.local):
    """What this thread's forks hold; a signal handler may fork within a fork's hooks."""

    def __init__(self) -> None:
        self.by_fork: list[list[Section]] = []


_one_at_a_time = threading.RLock()
_alive: weakref.WeakValueDictionary[int, Forked] = weakref.WeakValueDictionary()
_numbers = count()
_held = _Held()


def watch(forked: Forked) -> None:
    """Keep it whole through every fork, for as long as it lives."""
    with _one_at_a_time:
        _alive[next(_numbers)] = forked


def alive() -> list[Forked]:
    """Return what is watched, the oldest first: the order in which locks are taken."""
    with _one_at_a_time:
        return list(_alive.values())


def _only_this_thread() -> Section:
    with _one_at_a_time:
        yield


def _before() -> None:
    sections: list[Section] = [_only_this_thread()]
    _held.by_fork.append(sections)
    next(sections[0])
    for forked in alive():
        sections.append(forked._still())
        next(sections[-1])


def _after_in_parent() -> None:
    for section in reversed(_held.by_fork.pop()):
        section.close()


def _after_in_child() -> None:
    global _one_at_a_time  # its waiters are the parent's
    _after_in_parent()
    _one_at_a_time = threading.RLock()
    for forked in alive():
        forked._after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
