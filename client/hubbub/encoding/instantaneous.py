"""Instantaneous randomized response (IRR): independent noise for each report."""

from __future__ import annotations

from hubbub.encoding.bernoulli import BernoulliMask, RandomWords
from hubbub.metrics.params import Params
from hubbub.metrics.probability import DYADIC_DIGITS, numerator
from hubbub.randomness import RandomBytes

_MAX_WORDS_PER_BLOCK = 16
"""Words of one call of `random_bytes`: after about 8 words all of 128 bits are decided, so two masks seldom need more."""


class InstantaneousResponse:
    """Instantaneous randomized response of permanent bits B'.

        P(S_i = 1 | B'_i = 0) = p        P(S_i = 1 | B'_i = 1) = q

        S = (mask_p & ~B') | (mask_q & B')        mask_p, mask_q : independent bits that are one with probability p, q

    The parts of a joint metric have their own p and q, and draw their words one part after the other.

    Source: Erlingsson et al. 2014, sec. 2, step 3; docs/explanation/privacy.md, "The mechanism".
    """

    __slots__ = ("_parts", "_random_bytes")

    def __init__(self, params: Params, random_bytes: RandomBytes) -> None:
        self._random_bytes = random_bytes
        self._parts = tuple(
            (offset, (1 << part.num_bits) - 1, *_masks(part))
            for part, offset in zip(params.parts, params.offsets, strict=True)
        )

    def __call__(self, permanent: int) -> int:
        """Return the bits of one report. The mask of p is drawn before the mask of q."""
        bits = 0
        for offset, all_ones, mask_p, mask_q, reader, fits_one_block in self._parts:
            words = (
                reader(reader.draw_block(self._random_bytes)) if fits_one_block else reader.stream(self._random_bytes)
            )
            of_part = permanent >> offset & all_ones
            ones_at_zero = mask_p(words)
            bits |= ((ones_at_zero & ~of_part) | (mask_q(words) & of_part)) << offset
        return bits


def _masks(params: Params) -> tuple[BernoulliMask, BernoulliMask, RandomWords, bool]:
    """Return the masks of p and q, the reader of their words, and whether one block of words is always enough."""
    mask_p, mask_q = (
        BernoulliMask(numerator(each, DYADIC_DIGITS), DYADIC_DIGITS, params.num_bits)
        for each in (params.prob_p, params.prob_q)
    )
    most = mask_p.max_words + mask_q.max_words
    return mask_p, mask_q, RandomWords(params.row_bytes, min(most, _MAX_WORDS_PER_BLOCK)), most <= _MAX_WORDS_PER_BLOCK
