"""What must be remembered about values, so that only the client's secret can read it.

    tag    = SHAKE-256(secret, the metric's fields that shape a bit, Bloom row), 16 bytes: are two values the same?
    sealed = nonce (16 bytes) + Bloom row XOR SHAKE-256(secret, those fields, nonce): the last value, for `hold` and for a spent budget

Without the secret both are noise. Whoever has the secret and the directory can test guesses: docs/privacy.md says so.
"""

from __future__ import annotations

from hubbub.encoding.bloom import BloomBits
from hubbub.encoding.secret import Secret
from hubbub.metrics.metric import Metric
from hubbub.randomness import RandomBytes

TAG_BYTES = 16


class Sealer:
    """Tags and seals the Bloom bits of one metric under one secret."""

    def __init__(self, metric: Metric, secret: Secret, random_bytes: RandomBytes) -> None:
        fields = tuple(metric.encoding_fields())
        self._tags = secret.stream("hubbub/tag/v1", *fields)
        self._pads = secret.stream("hubbub/seal/v1", *fields)
        self._width = metric.params.row_bytes
        self._coins = random_bytes

    def tag(self, bloom: int) -> bytes:
        """Return the keyed tag of these bits."""
        shake = self._tags.copy()
        shake.update(bloom.to_bytes(self._width, "little"))
        return shake.digest(TAG_BYTES)

    def seal(self, bloom: int) -> bytes:
        """Encrypt these bits under a new nonce."""
        nonce = self._coins(TAG_BYTES)
        return nonce + (bloom ^ self._pad(nonce)).to_bytes(self._width, "little")

    def open(self, sealed: bytes) -> BloomBits:
        """Decrypt bits that were sealed under this secret."""
        nonce, ciphertext = sealed[:TAG_BYTES], sealed[TAG_BYTES:]
        return BloomBits(int.from_bytes(ciphertext, "little") ^ self._pad(nonce))

    def _pad(self, nonce: bytes) -> int:
        shake = self._pads.copy()
        shake.update(nonce)
        return int.from_bytes(shake.digest(self._width), "little")
