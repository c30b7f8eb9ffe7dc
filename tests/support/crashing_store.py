"""Simulate a crash between two SQL statements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine, event

from hubbub_aggregator.errors import StoreError


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


def interrupts(engine: Engine, instructions: int, act: Callable[[], object]) -> bool:
    """Run `act` and interrupt SQLite once, after this many instructions of its virtual machine; return whether `act` failed."""
    left = instructions

    def count_down() -> bool:
        nonlocal left
        left -= 1
        return left == -1

    def watch(connection: Any, *_: object) -> None:
        connection.set_progress_handler(count_down, 1)

    def unwatch(connection: Any, _: object) -> None:
        connection.set_progress_handler(None, 1)

    event.listen(engine, "checkout", watch)
    event.listen(engine, "checkin", unwatch)
    try:
        act()
    except StoreError:
        return True
    finally:
        event.remove(engine, "checkout", watch)
        event.remove(engine, "checkin", unwatch)
    return False
