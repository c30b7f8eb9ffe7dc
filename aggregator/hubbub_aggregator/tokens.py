"""Who may read: bearer tokens, each with its scopes, kept as hashes."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from hubbub.coins import Coins, system_coins
from hubbub.errors import RefusedError
from hubbub.refusals import Refusal
from hubbub_aggregator.intake import RefusedWithHeaderError

_PREFIX = "hubbub_"
_KNOWN_FOR = 5.0
ASK = ("WWW-Authenticate", "Bearer")


class Scope(StrEnum):
    """What a token allows."""

    READ = "read"  # summaries
    METRICS = "metrics"  # /metrics
    REPORT = "report"  # sending batches, where the aggregator asks for a token


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it is stored: the secret itself is with whoever it was given to."""

    name: str
    scopes: frozenset[Scope]


def new_token(coins: Coins = system_coins) -> str:
    """Draw a token's secret: 32 random bytes, so that no salt or slow hash is needed to keep it safe as a hash."""
    return _PREFIX + base64.urlsafe_b64encode(coins(32)).rstrip(b"=").decode()


def hash_of(secret: str) -> bytes:
    """Return what is stored of a token: SHA-256."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


class Doorkeeper:
    """Lets in who has a token for it; a token that was found is remembered for 5 seconds, so long may revoking take.

    find : gives the stored token of a hash, or None
    """

    def __init__(self, find: Callable[[bytes], Token | None], clock: Callable[[], float] = time.monotonic) -> None:
        self._find = find
        self._clock = clock
        self._known: dict[bytes, tuple[float, Token]] = {}

    def require(self, scope: Scope, authorization: str | None) -> None:
        """Raise RefusedError unless the Authorization header has a token with this scope."""
        kind, _, secret = (authorization or "").partition(" ")
        if kind.lower() != "bearer" or not secret.strip():
            raise RefusedWithHeaderError(
                Refusal.UNAUTHORIZED, f"send `Authorization: Bearer <a token with scope {scope}>`", ASK
            )
        token = self._token(hash_of(secret.strip()))
        if token is None:
            raise RefusedWithHeaderError(Refusal.UNAUTHORIZED, "this token is not known here, or was revoked", ASK)
        if scope not in token.scopes:
            raise RefusedError(Refusal.FORBIDDEN, f"the token {token.name!r} has no scope {scope}")

    def _token(self, hashed: bytes) -> Token | None:
        now = self._clock()
        known = self._known.get(hashed)
        if known and now < known[0]:
            return known[1]
        token = self._find(hashed)
        if token is None:
            self._known.pop(hashed, None)
        else:
            self._known[hashed] = (now + _KNOWN_FOR, token)
        return token
