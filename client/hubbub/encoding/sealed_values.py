"""Keyed tags and encrypted storage of the last reported value.

    tag    = SHAKE-256(secret, digest, key), 16 bytes      equal for equal permanent responses
    sealed = nonce (16 bytes) + (key XOR SHAKE-256(secret, digest, nonce))

`digest` is that of the definition, and `key` identifies the value, see `ValueKey`.

A number is sealed in the same way, as an IEEE 754 double: that of the open period, where it depends on all recordings (`Buckets.several`).

The ledger stores a tag of each reported value, and the last reported value sealed: for `hold`, and for the value that stands in
after the budget is spent. Both look random without the secret. With the secret and the state directory, guesses of a value can be
tested (docs/explanation/privacy.md).
"""

from __future__ import annotations

import math
import struct

from hubbub.encoding.bloom import ValueKey
from hubbub.encoding.secret import Secret
from hubbub.metrics.kinds import BloomBits
from hubbub.metrics.metric import Metric
from hubbub.randomness import RandomBytes

TAG_BYTES = 16
_NUMBER_BYTES = 8


class Sealer:
    """Tags and encryption of the Bloom bits of one metric under one secret."""

    def __init__(self, metric: Metric, secret: Secret, random_bytes: RandomBytes) -> None:
        digest = bytes.fromhex(metric.digest)
        self._tags = secret.stream("hubbub/tag/v2", digest)
        self._pads = secret.stream("hubbub/seal/v2", digest)
        self._key = ValueKey(metric)
        self._random_bytes = random_bytes

    def tag(self, bloom: BloomBits) -> bytes:
        """Return the keyed tag of a value, 16 bytes."""
        shake = self._tags.copy()
        shake.update(self._key(bloom))
        return shake.digest(TAG_BYTES)

    def seal(self, bloom: BloomBits) -> bytes:
        """Return the key of a value, encrypted under a new nonce: 16 bytes more than the key."""
        nonce = self._random_bytes(TAG_BYTES)
        return nonce + self._xor_pad(self._key(bloom), nonce)

    def open(self, sealed: bytes) -> BloomBits:
        """Return the Bloom bits of a sealed value, with its digest; meaningless ones under another secret."""
        return self._key.bloom_bits(self._xor_pad(sealed[TAG_BYTES:], sealed[:TAG_BYTES]))

    def seal_number(self, number: float) -> bytes:
        """Return a number encrypted under a new nonce: 24 bytes."""
        nonce = self._random_bytes(TAG_BYTES)
        return nonce + self._xor_pad(struct.pack("<d", number), nonce)

    def open_number(self, sealed: bytes) -> float | None:
        """Return a sealed number; None of bytes that no finite number gives, as under another secret."""
        if len(sealed) != TAG_BYTES + _NUMBER_BYTES:
            return None
        (number,) = struct.unpack("<d", self._xor_pad(sealed[TAG_BYTES:], sealed[:TAG_BYTES]))
        return number if math.isfinite(number) else None

    def _xor_pad(self, text: bytes, nonce: bytes) -> bytes:
        shake = self._pads.copy()
        shake.update(nonce)
        pad = shake.digest(len(text))
        return (int.from_bytes(text, "little") ^ int.from_bytes(pad, "little")).to_bytes(len(text), "little")
