"""Parse `--database`, a SQLite path or a PostgreSQL URL, and mask its password."""

from __future__ import annotations

import re
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from hubbub_aggregator.errors import StoreError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://|(postgres(?:ql)?):")
_NO_PORT = re.compile(r"^([a-z][\w+.-]*:(?://)?(?:\[[^]]*\]|[^:?[]*)):(?!\d+(?:[/?]|$)).+", re.DOTALL | re.IGNORECASE)
_EXPECTED = "write a path or postgresql://user@host/database"


def postgres_url(database: str | Path) -> URL | None:
    """Return the parsed URL of a PostgreSQL database; None: `database` is a path. Raises StoreError if it is neither."""
    name = str(database)
    if not name.strip():
        raise StoreError(f"the name is empty: {_EXPECTED}")
    scheme = _SCHEME.match(name)
    if scheme is None:
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
        raise StoreError(
            "an @ in a user name or password must be written %40: postgresql://user:pass%40word@host/database"
        )
    return url.set(drivername="postgresql+psycopg")


def is_postgres(database: str | Path) -> bool:
    """Return whether `database` is a PostgreSQL URL; else it is a SQLite path."""
    return postgres_url(database) is not None


def without_password(database: str) -> str:
    """Return a database's name with its password masked: everything between the user and the last @.

    >>> without_password("mysql://u:sec/r@t@host/y?password=too")
    'mysql://u:***@host/y?password=***'

    If the host is missing, text in the place of the port that is not a number is masked as a password.

    >>> without_password("postgresql://u:sec/ret"), without_password("postgresql://[::1]:5432/y")
    ('postgresql://u:***', 'postgresql://[::1]:5432/y')
    """
    shown = re.sub(r"^((?:[A-Za-z][\w+.-]*://)?+[^:]*):.*@", r"\1:***@", database, flags=re.DOTALL)
    if "@" not in database and _SCHEME.match(database):
        shown = _NO_PORT.sub(r"\1:***", shown)
    return re.sub(r"(password=)[^&\s]*", r"\1***", shown, flags=re.IGNORECASE)
