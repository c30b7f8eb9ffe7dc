"""Access tokens and browser sessions in the database."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

from sqlalchemy import Engine, Row, Select, delete, func, insert, select, update

from hubbub_aggregator.database.engine import fetch_all, insert_new, transaction
from hubbub_aggregator.database.schema import session
from hubbub_aggregator.database.schema import token as token_table
from hubbub_aggregator.store.tokens import Scope, Token, iso_date


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
