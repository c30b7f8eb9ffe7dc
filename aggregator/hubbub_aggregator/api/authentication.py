"""Authorize requests by bearer token, and by browser sessions of the dashboard: a cookie that represents a token until it expires.

The cookie holds 32 random bytes. The database stores their hash, so that every process accepts the cookie but a copy of the
database does not contain it. The hash is in a row that belongs to the token, so that revoking the token ends its sessions at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta

from starlette.requests import Request

from hubbub.metrics.periods import utc_now
from hubbub.randomness import RandomBytes, system_random_bytes
from hubbub.wire.problems import ProblemType, RefusedError
from hubbub_aggregator.errors import ASK_FOR_TOKEN, RefusedWithHeaderError
from hubbub_aggregator.server.client_address import is_direct_local_request
from hubbub_aggregator.store.tokens import Scope, Token, TokenStore, hash_secret, new_token, record_use

_CACHE_SECONDS = 5.0


class TokenAuthorizer:
    """Checks tokens against the store; a found token is cached for 5 seconds, so revoking one takes at most that long.

    find_token : returns the stored token of a hash, or None
    today      : returns the UTC date
    record_use : stores the date of a token's last use; called at most once per day, token and process
    """

    def __init__(
        self,
        find_token: Callable[[bytes], Token | None],
        clock: Callable[[], float] = time.monotonic,
        today: Callable[[], date] = lambda: utc_now().date(),
        record_use: Callable[[bytes, date], None] = lambda _hash, _today: None,
    ) -> None:
        self._find_token = find_token
        self._clock = clock
        self._today = today
        self._record_use = record_use
        self._cache: dict[bytes, tuple[float, Token]] = {}

    def require(self, scope: Scope, authorization: str | None) -> None:
        """Raise RefusedError unless the Authorization header has a valid token with this scope."""
        scheme, _, secret = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not secret.strip():
            raise RefusedWithHeaderError(
                ProblemType.UNAUTHORIZED, f"send `Authorization: Bearer <a token with scope {scope}>`", ASK_FOR_TOKEN
            )
        token = self._token(hash_secret(secret.strip()))
        if token is None:
            raise RefusedWithHeaderError(
                ProblemType.UNAUTHORIZED, "this token is unknown or was revoked", ASK_FOR_TOKEN
            )
        token.require_valid(self._today())
        if scope not in token.scopes:
            raise RefusedError(ProblemType.FORBIDDEN, f"the token {token.name!r} does not have scope {scope}")

    def _token(self, hashed: bytes) -> Token | None:
        now = self._clock()
        expires, token = self._cache.get(hashed, (now, None))
        if token is not None and now < expires:
            return token
        token = self._find_token(hashed)
        if token is None:
            self._cache.pop(hashed, None)
        else:
            record_use(token, hashed, self._today(), self._record_use)
            self._cache[hashed] = (now + _CACHE_SECONDS, token)
        return token


Clock = Callable[[], datetime]

SESSION_LENGTH = timedelta(hours=12)


def cookie_name(headers: Mapping[str, str]) -> str:
    """Return the name of the session cookie; browsers accept the prefix `__Host-` only over TLS and from the host itself."""
    return "hubbub" if is_direct_local_request(headers) else "__Host-hubbub"


def may_read(store: TokenStore, clock: Clock, request: Request) -> bool:
    """Return whether a signed-in browser sent this request, for a page of this aggregator.

    The cookie is SameSite=Strict, which excludes requests from other sites. Other hosts of the same site are excluded
    here: their pages could make a browser request large files repeatedly, although they could not read them.
    """
    if request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        return False
    return is_signed_in(store, clock, request.cookies.get(cookie_name(request.headers)))


def sign_in(store: TokenStore, clock: Clock, token: str, random_bytes: RandomBytes = system_random_bytes) -> str:
    """Start a session and return its secret; RefusedError unless the token has scope `read`."""
    hashed = hash_secret(token.strip())
    found = store.token(hashed)
    if found is None:
        raise RefusedWithHeaderError(ProblemType.UNAUTHORIZED, "This token is unknown or was revoked.", ASK_FOR_TOKEN)
    today = clock().date()
    found.require_valid(today)
    if Scope.READ not in found.scopes:
        raise RefusedError(
            ProblemType.FORBIDDEN, f"The token {found.name!r} does not have scope {Scope.READ}. Use a token that has."
        )
    secret = new_token(random_bytes)
    now = int(clock().timestamp())
    if not store.add_session(
        hash_secret(secret), found.name, expires=now + int(SESSION_LENGTH.total_seconds()), now=now
    ):
        raise RefusedWithHeaderError(ProblemType.UNAUTHORIZED, "This token was revoked just now.", ASK_FOR_TOKEN)
    if store.token(hashed) is None:  # rotated meanwhile, which ended the earlier sessions but not this one
        store.end_session(hash_secret(secret))
        raise RefusedWithHeaderError(ProblemType.UNAUTHORIZED, "This token was rotated just now.", ASK_FOR_TOKEN)
    record_use(found, hashed, today, store.record_token_use)
    return secret


def is_signed_in(store: TokenStore, clock: Clock, secret: str | None) -> bool:
    """Return whether this is the secret of a session that has not expired, of a token that still has scope `read`."""
    if not secret:
        return False
    token = store.session(hash_secret(secret), now=int(clock().timestamp()))
    return token is not None and Scope.READ in token.scopes and not token.has_expired(clock().date())


def sign_out(store: TokenStore, secret: str | None) -> None:
    """End a session, for every copy of its cookie."""
    if secret:
        store.end_session(hash_secret(secret))
