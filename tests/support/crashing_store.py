"""Simulate a crash between two SQL statements."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Engine, event


class DiesError(Exception):
    """Simulated end of the process."""


def dies(engine: Engine, statements: int, act: Callable[[], object]) -> bool:
    """Run `act` and raise DiesError after this many SQL statements; return whether that happened."""
    left = statements

    def count_down(*_: object) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise DiesError

    event.listen(engine, "before_cursor_execute", count_down)
    try:
        act()
    except DiesError:
        return True
    finally:
        event.remove(engine, "before_cursor_execute", count_down)
    return False
