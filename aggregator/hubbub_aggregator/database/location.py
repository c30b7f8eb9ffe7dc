"""Where a database is: parse `--database`, a SQLite path or a PostgreSQL URL; check, create and lock a SQLite file."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from hubbub.wire.urls import mask_url
from hubbub_aggregator.errors import StoreError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://|(postgres(?:ql)?):")
_NO_SCHEME = re.compile(r"(?!\.|/[^/])[^:]*:.*@|.*://", re.DOTALL)
_EXPECTED = "write a path or postgresql://user@host/database"


def postgres_url(database: str | Path) -> URL | None:
    """Return the parsed URL of a PostgreSQL database; None: `database` is a path. Raises StoreError if it is neither."""
    name = str(database)
    if not name.strip():
        raise StoreError(f"the name is empty: {_EXPECTED}")
    if name != name.strip():
        raise StoreError("the name begins or ends with white space: remove it")
    scheme = _SCHEME.match(name)
    if scheme is None:
        if _NO_SCHEME.match(name):
            raise StoreError(
                f"the name is neither a path nor a URL: {_EXPECTED}; begin a path that has : and @ with ./"
            )
        return None
    if scheme[0] not in ("postgresql://", "postgres://"):
        raise StoreError(f"unknown scheme {scheme[1] or scheme[2]}: {_EXPECTED}")
    try:
        url = make_url(name)
    except ArgumentError:
        raise StoreError(f"the URL cannot be parsed: {_EXPECTED}") from None
    except ValueError:
        raise StoreError("the port is not a number: write postgresql://user@host:5432/database") from None
    if "@" in (url.host or ""):
        raise StoreError("an @ in a user name or password must be written %40: change the URL")
    if "#" in name or mask_url(name) == f"{scheme[0]}***":
        raise StoreError(
            "the URL can be read in two ways: in a user name, password or parameter write # as %23, ? as %3F, @ as %40"
        )
    return url.set(drivername="postgresql+psycopg")


def is_postgres(database: str | Path) -> bool:
    """Return whether `database` is a PostgreSQL URL; else it is a SQLite path."""
    return postgres_url(database) is not None


FIND_OR_CREATE = "check the path, and that its volume is mounted; before the first start run `hubbub db create`"
"""Next step if a database file does not exist."""


def require_place(file: Path, *, read_only: bool = False) -> None:
    """Raise StoreError with the reason if a SQLite file cannot be at this path; SQLite gives no reason."""
    if _is_directory(file):
        raise StoreError("the path is a directory: give a file in it")
    if read_only:
        return
    if not _is_directory(file.parent):
        raise StoreError(
            f"the directory {file.parent} does not exist or is not readable: create it, or give another --database"
        )
    for place in (file.parent, file):
        if is_there(place) and not os.access(place, os.W_OK, effective_ids=True):
            raise StoreError(
                f"this user may not write to {place}: change its owner or mode, or give another --database "
                "(SQLite creates two files beside the database)"
            )


def require_file(file: Path) -> None:
    """Raise StoreError if the file does not exist: the path may be mistyped, or its volume not mounted."""
    if not is_there(file):
        require_place(file)
        raise StoreError(f"the file does not exist: {FIND_OR_CREATE}")


def is_there(path: Path) -> bool:
    """Return whether a path exists; unlike Path.exists, False in a directory that is not readable."""
    return os.path.exists(path)  # noqa: PTH110


def _is_directory(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112  (as in is_there)


def claim(file: Path) -> None:
    """Create an empty file of mode 0600 unless it exists; SQLite gives its `-wal` and `-shm` the same mode."""
    try:
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        pass  # an existing file is not opened: closing it would release this process's locks on it
    except OSError as problem:
        raise StoreError(f"the file cannot be created ({problem.strerror}): give another --database") from None


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Lock a file, created if it does not exist, until the block ends; the system also releases it when the process ends.

    The file must not be the database: closing it would release this process's locks on it.
    """
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as problem:
        raise StoreError(
            f"{file} cannot be opened ({problem.strerror}): let this user write to it and to its directory"
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
