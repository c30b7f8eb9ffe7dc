"""Permanent randomized response (PRR): the same for the same Bloom bits, secret, metric and epoch."""

from __future__ import annotations

from hubbub.encoding.bernoulli import BernoulliMask, RandomWords
from hubbub.encoding.secret import Secret, Shake, length_prefixed
from hubbub.metrics.metric import Metric
from hubbub.metrics.probability import DYADIC_DIGITS, numerator


class PermanentResponse:
    """Permanent randomized response of Bloom bits B, for one client and metric.

        P(B'_i = 1) = f/2,  P(B'_i = 0) = f/2,  P(B'_i = B_i) = 1 - f

        B' = (B & ~M) | (U & M)        M : independent bits that are one with probability f;   U : fair coins

    M and U are derived, not stored: SHAKE-256 over (secret, `metric.encoding_fields()`, epoch, B) yields the words of M, then
    one word of U. The probabilities are exact for a random stream; for SHAKE-256 they hold computationally.

    Source: Erlingsson et al. 2014, sec. 2, step 2; docs/privacy.md, "The mechanism".
    """

    __slots__ = ("_mask", "_prefix", "_size", "_width", "_without_epoch", "_words")

    def __init__(self, metric: Metric, secret: Secret) -> None:
        params = metric.params
        self._mask = BernoulliMask(numerator(params.prob_f, DYADIC_DIGITS - 1), DYADIC_DIGITS - 1, params.num_bits)
        self._width = params.row_bytes
        self._words = RandomWords(self._width, self._mask.max_words + 1)
        self._prefix = secret.stream("hubbub/prr/v1", *metric.encoding_fields())
        self._size = length_prefixed(bytes(self._width))[: -self._width]
        self._without_epoch = self._start(b"")

    def _start(self, epoch: bytes) -> Shake:
        shake = self._prefix.copy()
        shake.update(length_prefixed(epoch) + self._size)
        return shake

    def __call__(self, bloom: int, epoch: int | None = None) -> int:
        """Return the permanent bits B' of Bloom bits.

        epoch : number of the permanent response; None for a metric without `hold`
        """
        shake = self._without_epoch.copy() if epoch is None else self._start(epoch.to_bytes(8, "little", signed=True))
        shake.update(bloom.to_bytes(self._width, "little"))
        words = self._words(shake.digest(self._words.num_bytes))
        mask = self._mask(words)
        if not mask:
            return bloom
        return (bloom & ~mask) | (next(words) & mask)
