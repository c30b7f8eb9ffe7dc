"""Authorize requests by bearer token."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import date

from hubbub.metrics.periods import utc_now
from hubbub.wire.problems import ProblemType, RefusedError
from hubbub_aggregator.errors import ASK_FOR_TOKEN, RefusedWithHeaderError
from hubbub_aggregator.store.tokens import Scope, Token, hash_secret, record_use

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
