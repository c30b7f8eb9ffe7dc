"""Named moments at which a test may end the process: between what must happen together."""

from __future__ import annotations

from collections.abc import Callable


def _nothing(_name: str) -> None:
    pass


_hook: Callable[[str], None] = _nothing


def reach(name: str) -> None:
    """Say that the moment `name` has come; outside of crash tests nobody listens."""
    _hook(name)


def listen(hook: Callable[[str], None]) -> None:
    """Call `hook` with the name of every moment from now on."""
    global _hook
    _hook = hook
