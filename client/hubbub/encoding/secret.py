"""What makes one client's permanent noise its own: 32 bytes that are never sent, logged or shown."""

from __future__ import annotations

import hashlib
from typing import NoReturn, Protocol, Self

from hubbub.errors import ParameterError
from hubbub.randomness import RandomBytes, system_random_bytes

SECRET_BYTES = 32


class Shake(Protocol):
    """What hashlib.shake_256 returns."""

    def update(self, data: bytes, /) -> None: ...
    def digest(self, length: int, /) -> bytes: ...
    def copy(self) -> Self: ...


def length_prefixed(field: bytes) -> bytes:
    """Put a field's length (8 bytes, little-endian) before it, so that no two lists of fields look alike."""
    return len(field).to_bytes(8, "little") + field


class Secret:
    """A client's secret, shown by nothing: `repr` is `<secret>` and it refuses to be pickled.

    Whoever has it can remove the permanent noise from every past report, so it is never backed up,
    synchronized or baked into an image. Losing it is a new enrollment.

    >>> Secret.generate()
    <secret>
    """

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        if not isinstance(key, bytes) or len(key) != SECRET_BYTES:
            raise ParameterError(
                f"a secret is {SECRET_BYTES} bytes, got {type(key).__name__} of "
                f"{len(key) if isinstance(key, bytes) else 'no'} bytes: take Secret.generate()"
            )
        self._key = key

    @classmethod
    def generate(cls, random_bytes: RandomBytes = system_random_bytes) -> Self:
        """Draw a new secret."""
        return cls(random_bytes(SECRET_BYTES))

    def stream(self, domain: str, *fields: bytes) -> Shake:
        """Open the SHAKE-256 stream of (domain, this secret, fields), each field framed by its length."""
        shake = hashlib.shake_256(length_prefixed(domain.encode()))
        shake.update(length_prefixed(self._key))
        for field in fields:
            shake.update(length_prefixed(field))
        return shake

    def cohort(self, num_cohorts: int) -> int:
        """Return c0 mod m, c0 in [0, 256) a function of the secret alone, the same for all metrics.

        num_cohorts : a power of two up to 256, so that all of a client's cohorts together say at most log2(largest m) bits.
        """
        return self.stream("hubbub/cohort/v1").digest(1)[0] % num_cohorts

    def __repr__(self) -> str:
        return "<secret>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is never pickled or copied: derive the encoder where the secret is")
