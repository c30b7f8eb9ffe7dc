"""Named failpoints inside transactions, at which crash tests kill the process."""

from __future__ import annotations

from collections.abc import Callable


def _do_nothing(_name: str) -> None:
    pass


_hook: Callable[[str], None] = _do_nothing


def reach(name: str) -> None:
    """Mark the failpoint `name`; without a test's hook this does nothing."""
    _hook(name)


def listen(hook: Callable[[str], None]) -> None:
    """Call `hook` with the name of every failpoint from now on."""
    global _hook
    _hook = hook
