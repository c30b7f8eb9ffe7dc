"""PRR -> IRR: instantaneous randomized response, fresh each time."""

from __future__ import annotations

from hubbub.encoding.bernoulli import BernoulliMask, RandomWords
from hubbub.metrics.params import Params
from hubbub.metrics.probability import DYADIC_DIGITS, numerator
from hubbub.randomness import RandomBytes

_MOST_AT_ONCE = 16
"""Words from one call of the coins: no position of 128 is open after some eight, so two masks seldom take more."""


class InstantaneousResponse:
    """Fresh noise for every report: P(1) = q where the permanent bit is 1, p where it is 0.

        P = mask of p,  Q = mask of q          IRR = (P & ~PRR) | (Q & PRR)

    Source: Erlingsson et al. 2014, sec. 2 step 3.
    """

    __slots__ = ("_coins", "_mask_p", "_mask_q", "_once", "_words")

    def __init__(self, params: Params, random_bytes: RandomBytes) -> None:
        self._mask_p = BernoulliMask(numerator(params.prob_p, DYADIC_DIGITS), DYADIC_DIGITS, params.num_bits)
        self._mask_q = BernoulliMask(numerator(params.prob_q, DYADIC_DIGITS), DYADIC_DIGITS, params.num_bits)
        most = self._mask_p.max_words + self._mask_q.max_words
        self._words = RandomWords(params.row_bytes, min(most, _MOST_AT_ONCE))
        self._once = most <= _MOST_AT_ONCE
        self._coins = random_bytes

    def __call__(self, prr: int) -> int:
        """Return the bits of one report; the mask of p is drawn before the mask of q."""
        words = self._words(self._words.block(self._coins)) if self._once else self._words.fresh(self._coins)
        ones_at_zero = self._mask_p(words)
        ones_at_one = self._mask_q(words)
        return (ones_at_zero & ~prr) | (ones_at_one & prr)
