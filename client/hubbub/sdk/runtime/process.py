"""This process, told apart from its parent also where both have the same id, as in two PID namespaces."""

from __future__ import annotations

import os

Process = tuple[int, int]
"""Id of a process, and the number of forks by Python between it and the first process."""

_forks = 0


def this_process() -> Process:
    """Return what tells this process from the one that forked it. A fork in C changes the id alone."""
    return os.getpid(), _forks


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)
