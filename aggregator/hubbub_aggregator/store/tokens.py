"""Who may read: bearer tokens, each with its scopes, kept as hashes."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from enum import StrEnum

from hubbub.errors import HubbubError, RefusedError
from hubbub.randomness import Coins, system_coins
from hubbub.sdk.runtime.clock import utc_now
from hubbub.wire.problems import Refusal
from hubbub_aggregator.api.batch_validation import RefusedWithHeaderError

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
    """A token as it is stored: only its holder has the secret.

    created   : UTC date of the secret; None: not known, an older hubbub made it
    last_used : UTC date on which the aggregator last accepted the secret; None: never, or not since that hubbub
    expires   : UTC date of the first day on which it is refused; None: never
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
                Refusal.UNAUTHORIZED,
                f"The token {self.name!r} expired on {self.expires}: ask the operator to run `hubbub token rotate`.",
                ASK,
            )

    def has_expired(self, today: date) -> bool:
        """Say whether the token is refused on this day."""
        return self.expires is not None and today >= self.expires


def new_token(coins: Coins = system_coins) -> str:
    """Draw a token's secret: 32 random bytes, so that no salt or slow hash is needed to keep it safe as a hash."""
    return _PREFIX + base64.urlsafe_b64encode(coins(32)).rstrip(b"=").decode()


def hash_of(secret: str) -> bytes:
    """Return what is stored of a token: SHA-256."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def note_use(token: Token, hashed: bytes, today: date, used: Callable[[bytes, date], None]) -> None:
    """Store the date of a valid token's use, once a day; a database that cannot be written to does not keep anyone out."""
    if token.last_used != today and not token.has_expired(today):
        with suppress(HubbubError):
            used(hashed, today)


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
                Refusal.UNAUTHORIZED, f"send `Authorization: Bearer <a token with scope {scope}>`", ASK
            )
        token = self._token(hash_of(secret.strip()))
        if token is None:
            raise RefusedWithHeaderError(Refusal.UNAUTHORIZED, "this token is not known here, or was revoked", ASK)
        token.require_valid(self._today())
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
            note_use(token, hashed, self._today(), self._used)
            self._known[hashed] = (now + _KNOWN_FOR, token)
        return token
