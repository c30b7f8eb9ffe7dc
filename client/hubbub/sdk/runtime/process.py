"""This process, told apart from its parent also where both have the same id, as in two PID namespaces."""

from __future__ import annotations

import os


class Process:
    """A process. A forked child is another one.

    id : of the operating system
    """

    __slots__ = ("id",)

    def __init__(self, id: int) -> None:  # noqa: A002
        self.id = id


_noticed = Process(os.getpid())
_made_by_forks_in_c: dict[int, Process] = {}


def this_process() -> Process:
    """Return the process that runs: one object, also for threads that ask at once."""
    global _noticed
    if _noticed.id != os.getpid():  # a fork in C calls no hook
        _noticed = _made_by_forks_in_c.setdefault(os.getpid(), Process(os.getpid()))
    return _noticed


def noticed_process() -> Process:
    """Return `this_process` without a system call; after a fork in C the parent, until somebody has called `this_process`."""
    return _noticed


def _after_fork_in_child() -> None:
    global _noticed
    _made_by_forks_in_c.clear()
    _noticed = Process(os.getpid())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
