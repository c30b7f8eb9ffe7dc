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

    Source: Erlingsson et al. 2014, sec. 2, step 3; docs/explanation/privacy.md, "The mechanism".
    """

    __slots__ = ("_fits_one_block", "_mask_p", "_mask_q", "_random_bytes", "_words")

    def __init__(self, params: Params, random_bytes: RandomBytes) -> None:
        self._mask_p = BernoulliMask(numerator(params.prob_p, DYADIC_DIGITS), DYADIC_DIGITS, params.num_bits)
        self._mask_q = BernoulliMask(numerator(params.prob_q, DYADIC_DIGITS), DYADIC_DIGITS, params.num_bits)
        most = self._mask_p.max_words + self._mask_q.max_words
        self._words = RandomWords(params.row_bytes, min(most, _MAX_WORDS_PER_BLOCK))
        self._fits_one_block = most <= _MAX_WORDS_PER_BLOCK
        self._random_bytes = random_bytes

    def __call__(self, permanent: int) -> int:
        """Return the bits of one report. The mask of p is drawn before the mask of q."""
        words = (
            self._words(self._words.draw_block(self._random_bytes))
            if self._fits_one_block
            else self._words.stream(self._random_bytes)
        )
        ones_at_zero = self._mask_p(words)
        ones_at_one = self._mask_q(words)
        return (ones_at_zero & ~permanent) | (ones_at_one & permanent)
