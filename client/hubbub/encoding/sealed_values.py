"""Keyed tags and encrypted storage of the last reported value.

    tag    = SHAKE-256(secret, metric.encoding_fields(), B), 16 bytes      equal for equal Bloom bits B
    sealed = nonce (16 bytes) + (B XOR SHAKE-256(secret, metric.encoding_fields(), nonce))

The ledger stores a tag of each reported value, and the last reported value sealed: for `hold`, and for the value that stands in
after the budget is spent. Both look random without the secret. With the secret and the state directory, guesses of a value can be
tested (docs/privacy.md).
"""

from __future__ import annotations

from hubbub.encoding.bloom import BloomBits
from hubbub.encoding.secret import Secret
from hubbub.metrics.metric import Metric
from hubbub.randomness import RandomBytes

TAG_BYTES = 16


class Sealer:
    """Tags and encryption of the Bloom bits of one metric under one secret."""

    def __init__(self, metric: Metric, secret: Secret, random_bytes: RandomBytes) -> None:
        fields = tuple(metric.encoding_fields())
        self._tags = secret.stream("hubbub/tag/v1", *fields)
        self._pads = secret.stream("hubbub/seal/v1", *fields)
        self._width = metric.params.row_bytes
        self._random_bytes = random_bytes

    def tag(self, bloom: int) -> bytes:
        """Return the keyed tag of Bloom bits, 16 bytes."""
        shake = self._tags.copy()
        shake.update(bloom.to_bytes(self._width, "little"))
        return shake.digest(TAG_BYTES)

    def seal(self, bloom: int) -> bytes:
        """Return Bloom bits encrypted under a new nonce: 16 + ceil(k / 8) bytes."""
        nonce = self._random_bytes(TAG_BYTES)
        return nonce + (bloom ^ self._pad(nonce)).to_bytes(self._width, "little")

    def open(self, sealed: bytes) -> BloomBits:
        """Return the Bloom bits of a sealed value; meaningless bits under another secret."""
        nonce, ciphertext = sealed[:TAG_BYTES], sealed[TAG_BYTES:]
        return BloomBits(int.from_bytes(ciphertext, "little") ^ self._pad(nonce))

    def _pad(self, nonce: bytes) -> int:
        shake = self._pads.copy()
        shake.update(nonce)
        return int.from_bytes(shake.digest(self._width), "little")
