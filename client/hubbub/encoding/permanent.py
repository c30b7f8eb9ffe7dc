"""Permanent randomized response (PRR) of Bloom bits: the same for the same value, secret and epoch."""

from __future__ import annotations

from hubbub.encoding.bernoulli import BernoulliMask, RandomWords
from hubbub.encoding.secret import Secret, Shake, length_prefixed
from hubbub.metrics.metric import Metric
from hubbub.metrics.probability import DYADIC_DIGITS, numerator


class PermanentResponse:
    """The memoized coin tosses of one client for one metric, all derived from its secret: no table of them to keep.

        M = mask of f,  U = fair coins         PRR = (B & ~M) | (U & M)

    Both come from SHAKE-256 over (secret, the metric's fields that shape a bit, epoch, B): first the mask, then
    one word of coins. Exact for random coins, computational for SHAKE-256 under an unknown secret.

    Source: Erlingsson et al. 2014, sec. 2 step 2.
    """

    __slots__ = ("_mask", "_prefix", "_size", "_unheld", "_width", "_words")

    def __init__(self, metric: Metric, secret: Secret) -> None:
        params = metric.params
        self._mask = BernoulliMask(numerator(params.prob_f, DYADIC_DIGITS - 1), DYADIC_DIGITS - 1, params.num_bits)
        self._width = params.row_bytes
        self._words = RandomWords(self._width, self._mask.max_words + 1)
        self._prefix = secret.stream("hubbub/prr/v1", *metric.encoding_fields())
        self._size = length_prefixed(bytes(self._width))[: -self._width]
        self._unheld = self._of_epoch(b"")

    def _of_epoch(self, epoch: bytes) -> Shake:
        shake = self._prefix.copy()
        shake.update(length_prefixed(epoch) + self._size)
        return shake

    def __call__(self, bloom: int, epoch: int | None = None) -> int:
        """Return the permanent bits of these Bloom bits in this epoch (None: a metric without `hold`)."""
        shake = self._unheld.copy() if epoch is None else self._of_epoch(epoch.to_bytes(8, "little", signed=True))
        shake.update(bloom.to_bytes(self._width, "little"))
        words = self._words(shake.digest(self._words.num_bytes))
        mask = self._mask(words)
        if not mask:
            return bloom
        return (bloom & ~mask) | (next(words) & mask)
