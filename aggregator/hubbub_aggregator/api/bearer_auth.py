"""Authorize requests by bearer token."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import date

from hubbub.metrics.periods import utc_now
from hubbub.wire.problems import ProblemType, RefusedError
from hubbub_aggregator.errors import ASK, RefusedWithHeaderError
from hubbub_aggregator.store.tokens import Scope, Token, hash_secret, record_use

_KNOWN_FOR = 5.0


class Doorkeeper:
    """Lets in who has a token for it; a token that was found is remembered for 5 seconds, so long may revoking take.

    find  : gives the stored token of a hash, or None
    today : gives the UTC date
    used  : stores the date of a token's last use; called at most once a day and token, in each process
    """

    def __init__(
        self,
        find: Callable[[bytes], Token | None],
        clock: Callable[[], float] = time.monotonic,
        today: Callable[[], date] = lambda: utc_now().date(),
        used: Callable[[bytes, date], None] = lambda _hash, _today: None,
    ) -> None:
        self._find = find
        self._clock = clock
        self._today = today
        self._used = used
        self._known: dict[bytes, tuple[float, Token]] = {}

    def require(self, scope: Scope, authorization: str | None) -> None:
        """Raise RefusedError unless the Authorization header has a token with this scope."""
        kind, _, secret = (authorization or "").partition(" ")
        if kind.lower() != "bearer" or not secret.strip():
            raise RefusedWithHeaderError(
                ProblemType.UNAUTHORIZED, f"send `Authorization: Bearer <a token with scope {scope}>`", ASK
            )
        token = self._token(hash_secret(secret.strip()))
        if token is None:
            raise RefusedWithHeaderError(ProblemType.UNAUTHORIZED, "this token is not known here, or was revoked", ASK)
        token.require_valid(self._today())
        if scope not in token.scopes:
            raise RefusedError(ProblemType.FORBIDDEN, f"the token {token.name!r} has no scope {scope}")

    def _token(self, hashed: bytes) -> Token | None:
        now = self._clock()
        known = self._known.get(hashed)
        if known and now < known[0]:
            return known[1]
        token = self._find(hashed)
        if token is None:
            self._known.pop(hashed, None)
        else:
            record_use(token, hashed, self._today(), self._used)
            self._known[hashed] = (now + _KNOWN_FOR, token)
        return token
