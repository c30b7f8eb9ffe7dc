"""Guard for internal errors: logged in production, raised in tests."""

from __future__ import annotations

import functools
import logging
import signal
import traceback
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
logger = logging.getLogger("hubbub")

suppress_internal_errors = True
"""False in tests, see `hubbub.testing.raise_internal_errors`."""


def report_failure(failure: Exception) -> None:
    """Log the type and place of an internal error, without its message, which may contain a value.

    Raised again are errors in tests, and errors of the host's signal handlers.
    """
    if not suppress_internal_errors or is_from_signal_handler(failure):
        raise failure
    # `walk_tb` imports nothing, which is impossible at the interpreter's end
    *_, (frame, line) = traceback.walk_tb(failure.__traceback__)
    log(
        logging.ERROR,
        "internal error of hubbub: %s in %s, line %s of %s. The call had no effect; please report it",
        type(failure).__name__,
        frame.f_code.co_name,
        line,
        frame.f_code.co_filename,
    )


def call_safely(step: Callable[[], T], otherwise: T) -> T:
    """Return the result of `step`, or `otherwise` if an internal error ends it."""
    try:
        return step()
    except Exception as failure:  # noqa: BLE001  (the contract: no internal error is raised into the host)
        report_failure(failure)
        return otherwise


def log(level: int, text: str, *about: object) -> None:
    """Log; exceptions raised by the host's log handlers and filters are suppressed."""
    try:
        logger.log(level, text, *about)
    except Exception as failure:
        if is_from_signal_handler(failure):
            raise


def is_from_signal_handler(failure: Exception) -> bool:
    """Return whether a signal handler of the host raised an error during a call of hubbub: its own timeout, which must reach the host."""
    codes = set()
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        while isinstance(handler, functools.partial):
            handler = handler.func
        for function in (getattr(handler, "__func__", handler), vars(type(handler)).get("__call__")):
            codes.add(getattr(function, "__code__", None))
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(failure.__traceback__))
