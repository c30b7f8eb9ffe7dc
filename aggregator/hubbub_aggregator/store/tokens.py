"""Access tokens, their scopes and browser sessions in the database, which has only hashes of the secrets."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Any, Protocol

from sqlalchemy import Engine, Row, Select, delete, func, insert, select, update

from hubbub.errors import HubbubError
from hubbub.randomness import RandomBytes, system_random_bytes
from hubbub.wire.problems import ProblemType
from hubbub_aggregator.database.engine import fetch_all, insert_new, transaction
from hubbub_aggregator.database.schema import session
from hubbub_aggregator.database.schema import token as token_table
from hubbub_aggregator.errors import ASK_FOR_TOKEN, RefusedWithHeaderError

_PREFIX = "hubbub_"


class Scope(StrEnum):
    """Permission of a token."""

    READ = "read"  # summaries
    METRICS = "metrics"  # /metrics
    REPORT = "report"  # POST /v1/reports with --require-report-token


@dataclass(frozen=True, slots=True)
class Token:
    """A stored token, without its secret.

    created   : UTC date of the secret; None: unknown
    last_used : UTC date of the last use; None: never
    expires   : UTC date of the first day on which the token is refused; None: never
    """

    name: str
    scopes: frozenset[Scope]
    created: date | None = None
    last_used: date | None = None
    expires: date | None = None

    def require_valid(self, today: date) -> None:
        """Raise RefusedError if the token has expired."""
        if self.has_expired(today):
            raise RefusedWithHeaderError(
                ProblemType.UNAUTHORIZED,
                f"The token {self.name!r} expired on {self.expires}: ask the operator to run `hubbub token rotate`.",
                ASK_FOR_TOKEN,
            )

    def has_expired(self, today: date) -> bool:
        """Return whether the token is refused on this day."""
        return self.expires is not None and today >= self.expires


class TokenStore(Protocol):
    """Keeps access tokens and browser sessions; every method may raise StoreError."""

    def add_token(self, token: Token, hashed: bytes) -> bool:
        """Store a token; return False, without a change, if the name exists."""

    def token(self, hashed: bytes) -> Token | None:
        """Return the token with this hash."""

    def tokens(self) -> list[Token]:
        """Return all tokens, by name."""

    def rotate_token(self, token: Token, hashed: bytes) -> bool:
        """Replace a token's secret and dates, and end its sessions; return False if the name does not exist."""

    def record_token_use(self, hashed: bytes, today: date) -> None:
        """Store the day of a token's use."""

    def revoke_token(self, name: str) -> bool:
        """Delete a token; return False if the name does not exist."""

    def add_session(self, hashed: bytes, token: str, expires: int, now: int) -> bool:
        """Store a session of a token, and delete expired sessions; return False if the token does not exist.

        The session ends at `expires`, in seconds since 1970, or with its token.
        """

    def session(self, hashed: bytes, now: int) -> Token | None:
        """Return the token of the session with this hash; None: no such session, or it has expired."""

    def end_session(self, hashed: bytes) -> None:
        """Delete the session with this hash, if it exists."""


def iso_date(day: date | None) -> str | None:
    """Return a date of a token in ISO 8601, or None."""
    return None if day is None else day.isoformat()


def new_token(random_bytes: RandomBytes = system_random_bytes) -> str:
    """Return a new secret of 32 random bytes: so much entropy needs no salt and no slow hash."""
    return _PREFIX + base64.urlsafe_b64encode(random_bytes(32)).rstrip(b"=").decode()


def hash_secret(secret: str) -> bytes:
    """Return the SHA-256 hash of a secret, which is stored instead of the secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def record_use(token: Token, hashed: bytes, today: date, used: Callable[[bytes, date], None]) -> None:
    """Store the date of a valid token's use, once a day; a database that is not writable does not refuse the request."""
    if token.last_used != today and not token.has_expired(today):
        with suppress(HubbubError):
            used(hashed, today)


class SqlTokens:
    """`TokenStore` on SQLite and PostgreSQL."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def add_token(self, token: Token, hashed: bytes) -> bool:
        new: dict[str, Any] = {"name": token.name, "secret_hash": hashed, "scopes": " ".join(sorted(token.scopes))}
        new |= {"created": iso_date(token.created), "expires": iso_date(token.expires)}
        with transaction(self._engine, writes=True) as connection:
            added = insert_new(connection, token_table).returning(token_table.c.name)
            return connection.execute(added, new).first() is not None

    def token(self, hashed: bytes) -> Token | None:
        return next(self._fetch_tokens(select(token_table).where(token_table.c.secret_hash == hashed)), None)

    def tokens(self) -> list[Token]:
        return list(self._fetch_tokens(select(token_table).order_by(token_table.c.name)))

    def rotate_token(self, token: Token, hashed: bytes) -> bool:
        is_this = token_table.c.name == token.name
        new = {
            "secret_hash": hashed,
            "created": iso_date(token.created),
            "last_used": None,
            "expires": iso_date(token.expires),
        }
        with transaction(self._engine, writes=True) as connection:
            rotated = connection.execute(update(token_table).where(is_this).values(new)).rowcount == 1
            connection.execute(delete(session).where(session.c.token == token.name))
            return rotated

    def record_token_use(self, hashed: bytes, today: date) -> None:
        is_this = (token_table.c.secret_hash == hashed) & (func.coalesce(token_table.c.last_used, "") < str(today))
        with transaction(self._engine, writes=True) as connection:
            connection.execute(update(token_table).where(is_this).values(last_used=str(today)))

    def revoke_token(self, name: str) -> bool:
        with transaction(self._engine, writes=True) as connection:
            return connection.execute(delete(token_table).where(token_table.c.name == name)).rowcount == 1

    def add_session(self, hashed: bytes, token: str, expires: int, now: int) -> bool:
        named = select(token_table.c.name).where(token_table.c.name == token).with_for_update(read=True)
        with transaction(self._engine, writes=True) as connection:
            connection.execute(delete(session).where(session.c.expires <= now))
            if connection.scalar(named) is None:
                return False
            connection.execute(insert(session), {"secret_hash": hashed, "token": token, "expires": expires})
        return True

    def session(self, hashed: bytes, now: int) -> Token | None:
        query = select(token_table).join(session).where(session.c.secret_hash == hashed, session.c.expires > now)
        return next(self._fetch_tokens(query), None)

    def end_session(self, hashed: bytes) -> None:
        with transaction(self._engine, writes=True) as connection:
            connection.execute(delete(session).where(session.c.secret_hash == hashed))

    def _fetch_tokens(self, query: Select[*tuple[Any, ...]]) -> Iterator[Token]:
        return map(_token, fetch_all(self._engine, query))


def _token(row: Row[*tuple[Any, ...]]) -> Token:
    days = (None if day is None else date.fromisoformat(day) for day in (row.created, row.last_used, row.expires))
    return Token(row.name, frozenset(map(Scope, row.scopes.split())), *days)
