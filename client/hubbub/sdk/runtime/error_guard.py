"""What becomes of our own bugs: never the host's problem, never silent in our tests."""

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
"""False in tests: `hubbub.testing.nothing_swallowed`."""


def report_failure(failure: Exception) -> None:
    """Log what failed and where, without the message: it could repeat a value. In tests, raise it, as what is the host's own."""
    if not suppress_internal_errors or is_from_signal_handler(failure):
        raise failure
    where = traceback.extract_tb(failure.__traceback__)[-1]
    log(logging.ERROR, "%s in %s, line %s of %s", type(failure).__name__, where.name, where.lineno, where.filename)


def call_safely(step: Callable[[], T], otherwise: T) -> T:
    """Return what a step returns, or something else where it fails by a bug of ours: the host's program goes on."""
    try:
        return step()
    except Exception as failure:  # noqa: BLE001  (the contract: nothing is raised into the host, nothing ends in its lap)
        report_failure(failure)
        return otherwise


def log(level: int, text: str, *about: object) -> None:
    """Log, whatever the host's handlers and filters do."""
    try:
        logger.log(level, text, *about)
    except Exception as failure:
        if is_from_signal_handler(failure):
            raise


def is_from_signal_handler(failure: Exception) -> bool:
    """Say whether a signal handler of the host raised it in the middle of our code: a timeout of its own, that is not ours to swallow."""
    codes = set()
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        while isinstance(handler, functools.partial):
            handler = handler.func
        for function in (getattr(handler, "__func__", handler), vars(type(handler)).get("__call__")):
            codes.add(getattr(function, "__code__", None))
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(failure.__traceback__))
