"""Who is signed in: a cookie that stands for a token, kept as a hash beside it in the database.

The cookie is 32 random bytes of its own. It is in the database, so that every worker knows it; only as a hash, so that a copy of the
database lets nobody in; and as a row of its token, so that revoking the token, which drops its rows, ends it at once.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from hubbub.coins import Coins, system_coins
from hubbub.errors import RefusedError
from hubbub.refusals import Refusal
from hubbub_aggregator.intake import RefusedWithHeaderError
from hubbub_aggregator.store import Store
from hubbub_aggregator.tokens import ASK, Scope, hash_of, new_token

Clock = Callable[[], datetime]

LENGTH = timedelta(hours=12)


def sign_in(store: Store, clock: Clock, token: str, coins: Coins = system_coins) -> str:
    """Return a session's secret; raises RefusedError unless the token allows reading."""
    hashed = hash_of(token.strip())
    known = store.token(hashed)
    if known is None:
        raise RefusedWithHeaderError(Refusal.UNAUTHORIZED, "This token is not known here, or was revoked.", ASK)
    if Scope.READ not in known.scopes:
        raise RefusedError(
            Refusal.FORBIDDEN, f"The token {known.name!r} has no scope {Scope.READ}: ask for one that has."
        )
    secret = new_token(coins)
    now = int(clock().timestamp())
    if not store.add_session(hash_of(secret), known.name, expires=now + int(LENGTH.total_seconds()), now=now):
        raise RefusedWithHeaderError(Refusal.UNAUTHORIZED, "This token was revoked just now.", ASK)
    return secret


def is_signed_in(store: Store, clock: Clock, secret: str | None) -> bool:
    """Say whether this is a session's secret, its time is not over, and its token still allows reading."""
    if not secret:
        return False
    token = store.session(hash_of(secret), now=int(clock().timestamp()))
    return token is not None and Scope.READ in token.scopes


def sign_out(store: Store, secret: str | None) -> None:
    """End a session, wherever its cookie may have been copied to."""
    if secret:
        store.end_session(hash_of(secret))
