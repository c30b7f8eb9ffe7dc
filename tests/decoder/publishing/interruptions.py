"""Interrupt a process before one of its writes: a change of a directory, a file that is opened for writing, or a statement of SQLite."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hubbub_decoder.results_store import store as results_store
from hubbub_decoder.results_store.schema import open_database

WRITES = {"os.rename", "os.link", "os.remove", "os.symlink", "os.mkdir", "os.rmdir"}


def is_write(event: str, arguments: tuple[Any, ...], below: str) -> bool:
    """Whether an audit event changes something below a directory."""
    if event == "open":
        _, mode, flags = arguments
        changes = "w" in mode if isinstance(mode, str) else bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        return changes and str(arguments[0]).startswith(below)
    return event in WRITES and any(str(argument).startswith(below) for argument in arguments)


def call_before_writes(step: Callable[[], None], place: Path) -> None:
    """Call a function before each write below a directory, until this process ends: it is a child that a test forked."""

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if is_write(event, arguments, str(place)):
            step()

    def opened(path: Path | None) -> sqlite3.Connection:
        connection = open_database(path)
        connection.set_trace_callback(lambda _: step())
        return connection

    pytest.MonkeyPatch().setattr(results_store, "open_database", opened)
    sys.addaudithook(audit)


def kill_before_write(number: int, place: Path) -> None:
    """End this process before its write of a number, from 1."""
    count = 0

    def step() -> None:
        nonlocal count
        count += 1
        if count == number:
            os._exit(9)

    call_before_writes(step, place)
