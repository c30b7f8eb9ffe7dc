"""The client secret and the SHAKE-256 streams derived from it.

The secret is 32 bytes that are never sent, logged or displayed. It determines the cohort and the permanent noise.
"""

from __future__ import annotations

import hashlib
from typing import NoReturn, Protocol, Self

from hubbub.errors import ParameterError
from hubbub.randomness import RandomBytes, system_random_bytes

SECRET_BYTES = 32
_THRESHOLD_BYTES = 5
_METRIC_COHORT_BYTES = 8


class Shake(Protocol):
    """Type of `hashlib.shake_256` objects."""

    def update(self, data: bytes, /) -> None:
        """Append data to the input."""

    def digest(self, length: int, /) -> bytes:
        """Return the first bytes of the output."""

    def copy(self) -> Self:
        """Return an object with the same input."""


def length_prefixed(field: bytes) -> bytes:
    """Return a field after its length (8 bytes, little-endian), so that different lists of fields never concatenate to equal bytes."""
    return len(field).to_bytes(8, "little") + field


class Secret:
    """Secret of one client. Its `repr` is `<secret>`, and it cannot be pickled or copied.

    The secret removes the permanent noise from every past report of the client. Do not back it up, synchronize it or
    include it in a disk image. After its loss the client draws a new secret, which starts a new enrollment.

    Parameters
    ----------
    key
        32 random bytes. Use `Secret.generate` or `load_secret`.

    Raises
    ------
    ParameterError
        The key does not have 32 bytes.

    Examples
    --------
    >>> Secret.generate()
    <secret>
    """

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        if not isinstance(key, bytes) or len(key) != SECRET_BYTES:
            given = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
            raise ParameterError(f"a secret must have {SECRET_BYTES} bytes, got {given}: use Secret.generate()")
        self._key = key

    @classmethod
    def generate(cls, random_bytes: RandomBytes = system_random_bytes) -> Self:
        """Return a new random secret.

        Parameters
        ----------
        random_bytes
            Source of the secret.

        Returns
        -------
        Self
            Secret of 32 new bytes.
        """
        return cls(random_bytes(SECRET_BYTES))

    def stream(self, domain: str, *fields: bytes) -> Shake:
        """Return the SHAKE-256 object of (domain, secret, fields)."""
        shake = hashlib.shake_256(length_prefixed(domain.encode()))
        shake.update(length_prefixed(self._key))
        for field in fields:
            shake.update(length_prefixed(field))
        return shake

    def cohort(self, num_cohorts: int) -> int:
        """Return the cohort c0 mod m of the client.

        c0 in [0, 256) depends on the secret only, so it is the same for all metrics. All cohorts of a client together
        reveal at most log2(largest m) bits.

        Parameters
        ----------
        num_cohorts
            m, a power of two up to 256.

        Returns
        -------
        int
            Cohort in [0, m).
        """
        return self.stream("hubbub/cohort/v1").digest(1)[0] % num_cohorts

    def metric_cohort(self, metric_name: str, num_cohorts: int) -> int:
        """Return the cohort of one metric alone (`Kind.has_own_cohort`).

        It depends on the secret and the metric's name only, so it never follows from a value or from another metric's
        cohort. With `discover` it also determines the group, and of a set the item that the client is asked about. It
        reveals log2(m) bits for each such metric. 8 bytes are reduced modulo m, so no cohort is more probable than
        another by a factor of 1 + 2**-56 or more.

        Parameters
        ----------
        metric_name
            Name of the metric.
        num_cohorts
            m, at most 256.

        Returns
        -------
        int
            Cohort in [0, m).
        """
        stream = self.stream("hubbub/discovery-cohort/v1", metric_name.encode())
        return int.from_bytes(stream.digest(_METRIC_COHORT_BYTES), "little") % num_cohorts

    def threshold(self, metric_name: str, cohort: int, num_cohorts: int) -> float:
        """Return the client's threshold of a metric that estimates a mean.

        It depends on the secret and the metric's name only, as the cohort does. The part below the cohort's is never
        sent.

        Parameters
        ----------
        metric_name
            Name of the metric.
        cohort
            Cohort of the client, c.
        num_cohorts
            Number of cohorts, m.

        Returns
        -------
        float
            Multiple of 2**-40 / m, uniform on (c / m, (c + 1) / m].
        """
        word = int.from_bytes(
            self.stream("hubbub/threshold/v1", metric_name.encode()).digest(_THRESHOLD_BYTES), "little"
        )
        steps = 1 << 8 * _THRESHOLD_BYTES
        return (cohort * steps + word + 1) / (num_cohorts * steps)

    def __repr__(self) -> str:
        return "<secret>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret cannot be pickled or copied: create the Encoder in the process that has the secret")
