"""Who may read: bearer tokens, each with its scopes, kept as hashes."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from enum import StrEnum

from hubbub.errors import HubbubError
from hubbub.randomness import RandomBytes, system_random_bytes
from hubbub.wire.problems import ProblemType
from hubbub_aggregator.errors import ASK_FOR_TOKEN, RefusedWithHeaderError

_PREFIX = "hubbub_"


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
                ProblemType.UNAUTHORIZED,
                f"The token {self.name!r} expired on {self.expires}: ask the operator to run `hubbub token rotate`.",
                ASK_FOR_TOKEN,
            )

    def has_expired(self, today: date) -> bool:
        """Say whether the token is refused on this day."""
        return self.expires is not None and today >= self.expires


def new_token(random_bytes: RandomBytes = system_random_bytes) -> str:
    """Draw a token's secret: 32 random bytes, so that no salt or slow hash is needed to keep it safe as a hash."""
    return _PREFIX + base64.urlsafe_b64encode(random_bytes(32)).rstrip(b"=").decode()


def hash_secret(secret: str) -> bytes:
    """Return what is stored of a token: SHA-256."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def record_use(token: Token, hashed: bytes, today: date, used: Callable[[bytes, date], None]) -> None:
    """Store the date of a valid token's use, once a day; a database that cannot be written to does not keep anyone out."""
    if token.last_used != today and not token.has_expired(today):
        with suppress(HubbubError):
            used(hashed, today)
