"""Permanent randomized response (PRR): the same for the same value, secret, metric and epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hubbub.encoding.bernoulli import BernoulliMask, RandomWords
from hubbub.encoding.secret import Secret, Shake, length_prefixed
from hubbub.metrics.metric import Metric
from hubbub.metrics.params import Params
from hubbub.metrics.probability import DYADIC_DIGITS, numerator


class PermanentResponse:
    """Permanent randomized response of Bloom bits B, for one client and metric.

        P(B'_i = 1 | B_i = 0) = b        P(B'_i = 1 | B_i = 1) = a        b, a : permanent_p, permanent_q

        symmetric  (b = f/2, a = 1 - f/2)    B' = (B & ~M) | (U & M)                  M : bits that are one with probability f
                                                                                      U : fair coins
        asymmetric (every other pair)        B' = (mask_b & ~B) | (mask_a & B)        masks that are one with probability b, a

    All bits of the masks are independent. They are derived, not stored: SHAKE-256 over (secret, `metric.encoding_fields()`,
    epoch, B) yields the words of M, then one word of U; or the words of mask_b, then those of mask_a. For strings with an
    asymmetric response a digest of the value follows B, so values with equal bits have independent responses. The two have
    streams with different labels. The probabilities are exact for a random stream; for SHAKE-256 they hold computationally.

    Sources: Erlingsson et al. 2014, sec. 2, step 2; Arcolezi et al. 2022, sec. 3; docs/explanation/privacy.md, "The mechanism".
    """

    __slots__ = ("_per_value", "_prefix", "_respond", "_size", "_width", "_without_epoch", "_words")

    def __init__(self, metric: Metric, secret: Secret, joint: str = "") -> None:
        """joint : name of the joint metric of which this metric is a part."""
        params = metric.params
        self._width = params.row_bytes
        label, num_words, self._respond = (
            _asymmetric(params) if params.prob_f is None else _symmetric(params, params.prob_f)
        )
        self._words = RandomWords(self._width, num_words)
        self._per_value = metric.has_response_per_value
        self._prefix = secret.stream(label, *metric.encoding_fields(joint))
        self._size = length_prefixed(bytes(self._width))[: -self._width]
        self._without_epoch = self._start(b"")

    def _start(self, epoch: bytes) -> Shake:
        shake = self._prefix.copy()
        shake.update(length_prefixed(epoch) + self._size)
        return shake

    def __call__(self, bloom: int, epoch: int | None = None, value_digest: bytes = b"") -> int:
        """Return the permanent bits B' of Bloom bits.

        epoch        : number of the permanent response; None for a metric without `hold`
        value_digest : of the value, `BloomBits.value_digest`; used by metrics with a response for each value, empty for "no value"
        """
        shake = self._without_epoch.copy() if epoch is None else self._start(epoch.to_bytes(8, "little", signed=True))
        shake.update(bloom.to_bytes(self._width, "little"))
        if self._per_value:
            shake.update(length_prefixed(value_digest))
        return self._respond(bloom, self._words(shake.digest(self._words.num_bytes)))


_Response = Callable[[int, Iterator[int]], int]


def _symmetric(params: Params, f: float) -> tuple[str, int, _Response]:
    """Return the stream's label, the number of words and the response of f."""
    draw = BernoulliMask(numerator(f, DYADIC_DIGITS - 1), DYADIC_DIGITS - 1, params.num_bits)

    def respond(bloom: int, words: Iterator[int]) -> int:
        mask = draw(words)
        return (bloom & ~mask) | (next(words) & mask) if mask else bloom

    return "hubbub/prr/v1", draw.max_words + 1, respond


def _asymmetric(params: Params) -> tuple[str, int, _Response]:
    """Return the stream's label, the number of words and the response of permanent_p and permanent_q."""
    draw_b, draw_a = (
        BernoulliMask(numerator(each, DYADIC_DIGITS), DYADIC_DIGITS, params.num_bits)
        for each in (params.permanent_p, params.permanent_q)
    )

    def respond(bloom: int, words: Iterator[int]) -> int:
        mask_b = draw_b(words)
        return (mask_b & ~bloom) | (draw_a(words) & bloom)

    return "hubbub/prr-asymmetric/v1", draw_b.max_words + draw_a.max_words, respond
