"""PRR -> IRR: instantaneous randomized response, fresh each time."""

from __future__ import annotations

from hubbub.coins import Coins, fresh_words
from hubbub.dyadic import DIGITS, bernoulli_mask, numerator
from hubbub.params import Params


class InstantaneousResponse:
    """Fresh noise for every report: P(1) = q where the permanent bit is 1, p where it is 0.

        P = mask of p,  Q = mask of q          IRR = (P & ~PRR) | (Q & PRR)

    Source: Erlingsson et al. 2014, sec. 2 step 3.
    """

    __slots__ = ("_a_p", "_a_q", "_coins", "_num_bits")

    def __init__(self, params: Params, coins: Coins) -> None:
        self._a_p = numerator(params.prob_p, DIGITS)
        self._a_q = numerator(params.prob_q, DIGITS)
        self._num_bits = params.num_bits
        self._coins = coins

    def __call__(self, prr: int) -> int:
        """Return the bits of one report; the mask of p is drawn before the mask of q."""
        words = fresh_words(self._coins, self._num_bits)
        ones_at_zero = bernoulli_mask(self._a_p, DIGITS, self._num_bits, words)
        ones_at_one = bernoulli_mask(self._a_q, DIGITS, self._num_bits, words)
        return (ones_at_zero & ~prr) | (ones_at_one & prr)
