"""What dies between two statements of its database."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Engine, event


class DiesError(Exception):
    """The process is gone: nothing after this happens."""


def dies(engine: Engine, statements: int, act: Callable[[], object]) -> bool:
    """Say whether it died, having lived for so many statements more; after that it lives for ever again."""
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
