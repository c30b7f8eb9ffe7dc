"""Who is signed in: a cookie that stands for a token, kept as a hash beside it in the database.

The cookie is 32 random bytes of its own. It is in the database, so that every worker knows it; only as a hash, so that a copy of the
database lets nobody in; and as a row of its token, so that revoking the token, which drops its rows, ends it at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from starlette.requests import Request

from hubbub.randomness import RandomBytes, system_random_bytes
from hubbub.wire.problems import ProblemType, RefusedError
from hubbub_aggregator.errors import ASK, RefusedWithHeaderError
from hubbub_aggregator.server.client_address import asked_directly
from hubbub_aggregator.store.interface import Store
from hubbub_aggregator.store.tokens import Scope, hash_of, new_token, note_use

Clock = Callable[[], datetime]

LENGTH = timedelta(hours=12)


def cookie_name(headers: Mapping[str, str]) -> str:
    """Return the name of the session's cookie. `__Host-`: browsers accept it from this very host and over TLS only."""
    return "hubbub" if asked_directly(headers) else "__Host-hubbub"


def may_read(store: Store, clock: Clock, request: Request) -> bool:
    """Say whether a browser that is signed in sent this request.

    The cookie is SameSite=Strict, which leaves out requests from other sites. Other hosts of the same site are left out
    here: their pages could make a browser request large files again and again, although they could not read them.
    """
    if request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return False
    return is_signed_in(store, clock, request.cookies.get(cookie_name(request.headers)))


def sign_in(store: Store, clock: Clock, token: str, random_bytes: RandomBytes = system_random_bytes) -> str:
    """Return a session's secret; raises RefusedError unless the token allows reading."""
    hashed = hash_of(token.strip())
    known = store.token(hashed)
    if known is None:
        raise RefusedWithHeaderError(ProblemType.UNAUTHORIZED, "This token is not known here, or was revoked.", ASK)
    today = clock().date()
    known.require_valid(today)
    if Scope.READ not in known.scopes:
        raise RefusedError(
            ProblemType.FORBIDDEN, f"The token {known.name!r} has no scope {Scope.READ}: ask for one that has."
        )
    secret = new_token(random_bytes)
    now = int(clock().timestamp())
    if not store.add_session(hash_of(secret), known.name, expires=now + int(LENGTH.total_seconds()), now=now):
        raise RefusedWithHeaderError(ProblemType.UNAUTHORIZED, "This token was revoked just now.", ASK)
    if store.token(hashed) is None:  # rotated meanwhile: that ended the sessions of before, and not this one
        store.end_session(hash_of(secret))
        raise RefusedWithHeaderError(ProblemType.UNAUTHORIZED, "This token was rotated just now.", ASK)
    note_use(known, hashed, today, store.note_token_use)
    return secret


def is_signed_in(store: Store, clock: Clock, secret: str | None) -> bool:
    """Say whether this is a session's secret, its time is not over, and its token still allows reading."""
    if not secret:
        return False
    token = store.session(hash_of(secret), now=int(clock().timestamp()))
    return token is not None and Scope.READ in token.scopes and not token.has_expired(clock().date())


def sign_out(store: Store, secret: str | None) -> None:
    """End a session, wherever its cookie may have been copied to."""
    if secret:
        store.end_session(hash_of(secret))
