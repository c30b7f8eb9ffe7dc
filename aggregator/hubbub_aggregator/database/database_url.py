"""Parse `--database`, a SQLite path or a PostgreSQL URL."""

from __future__ import annotations

import re
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
