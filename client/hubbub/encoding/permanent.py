"""Permanent randomized response (PRR): the same for the same value, secret, definition and epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hubbub.encoding.bernoulli import BernoulliMask, RandomWords
from hubbub.encoding.bloom import BloomBits, ValueKey
from hubbub.encoding.secret import Secret, length_prefixed
from hubbub.metrics.metric import Metric
from hubbub.metrics.params import Params
from hubbub.metrics.probability import DYADIC_DIGITS, numerator

_NO_EPOCH = length_prefixed(b"")


class PermanentResponse:
    """Permanent randomized response of Bloom bits B, for one client and one definition of a metric.

        P(B'_i = 1 | B_i = 0) = b        P(B'_i = 1 | B_i = 1) = a        b, a : permanent_p, permanent_q

        symmetric  (b = f/2, a = 1 - f/2)    B' = (B & ~M) | (U & M)                  M : bits that are one with probability f
                                                                                      U : fair coins
        asymmetric (every other pair)        B' = (mask_b & ~B) | (mask_a & B)        masks that are one with probability b, a

    All bits of the masks are independent. They are derived, not stored: SHAKE-256 over (secret, digest of the definition, name of the
    part, epoch, `ValueKey`) yields the words of M, then one word of U; or the words of mask_b, then those of mask_a. The probabilities
    are exact for a random stream; for SHAKE-256 they hold computationally.

    Two values, two epochs and two definitions therefore have independent responses. A joint metric has one key for all its parts. So if
    one part's value changes, the bits of every part are drawn again: whether a part changed alone is not visible.

    Sources: Erlingsson et al. 2014, sec. 2, step 2; Arcolezi et al. 2022, sec. 3; docs/explanation/privacy.md, "The mechanism".
    """

    __slots__ = ("_key", "_key_length", "_parts")

    def __init__(self, metric: Metric, secret: Secret) -> None:
        self._key = ValueKey(metric)
        self._key_length = length_prefixed(bytes(self._key.num_bytes))[: -self._key.num_bytes]
        digest, parts = bytes.fromhex(metric.digest), []
        for part, params, offset in zip(metric.components, metric.params.parts, metric.params.offsets, strict=True):
            num_words, respond = _asymmetric(params) if params.prob_f is None else _symmetric(params, params.prob_f)
            stream = secret.stream("hubbub/prr/v2", digest, part.name.encode() if metric.parts else b"")
            words = RandomWords(params.row_bytes, num_words)
            parts.append((stream, words, respond, offset, (1 << params.num_bits) - 1))
        self._parts = tuple(parts)

    def __call__(self, bloom: BloomBits, epoch: int | None = None) -> int:
        """Return the permanent bits B' of Bloom bits.

        epoch : number of the permanent response; None for a metric without `hold`
        """
        of_epoch = _NO_EPOCH if epoch is None else length_prefixed(epoch.to_bytes(8, "little", signed=True))
        fields = of_epoch + self._key_length + self._key(bloom)
        bits = 0
        for stream, words, respond, offset, mask in self._parts:
            shake = stream.copy()
            shake.update(fields)
            bits |= respond(bloom >> offset & mask, words(shake.digest(words.num_bytes))) << offset
        return bits


_Response = Callable[[int, Iterator[int]], int]


def _symmetric(params: Params, f: float) -> tuple[int, _Response]:
    """Return the number of words and the response of f."""
    draw = BernoulliMask(numerator(f, DYADIC_DIGITS - 1), DYADIC_DIGITS - 1, params.num_bits)

    def respond(bloom: int, words: Iterator[int]) -> int:
        mask = draw(words)
        return (bloom & ~mask) | (next(words) & mask) if mask else bloom

    return draw.max_words + 1, respond


def _asymmetric(params: Params) -> tuple[int, _Response]:
    """Return the number of words and the response of permanent_p and permanent_q."""
    draw_b, draw_a = (
        BernoulliMask(numerator(each, DYADIC_DIGITS), DYADIC_DIGITS, params.num_bits)
        for each in (params.permanent_p, params.permanent_q)
    )

    def respond(bloom: int, words: Iterator[int]) -> int:
        mask_b = draw_b(words)
        return (mask_b & ~bloom) | (draw_a(words) & bloom)

    return draw_b.max_words + draw_a.max_words, respond
