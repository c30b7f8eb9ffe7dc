"""Named failpoints inside transactions, at which crash tests kill the process."""

from __future__ import annotations

from collections.abc import Callable

_hook: Callable[[str], None] | None = None


def reach(name: str) -> None:
    """Mark the failpoint `name`; without a test's hook this does nothing."""
    if _hook is not None:
        _hook(name)


def listen(hook: Callable[[str], None]) -> None:
    """Call `hook` with the name of every failpoint from now on."""
    global _hook
    _hook = hook
