"""Chain of two randomized responses on one bit, as plain numbers or arrays: probabilities, epsilon of t reports, variance of a share.

    B ~ Bernoulli(a) where the true bit is one, Bernoulli(b) elsewhere          permanent response
    r ~ Bernoulli(q) where B is one, Bernoulli(p) elsewhere                     one report; p < q, b < a

The search varies the four probabilities as arrays. `hubbub.privacy` computes the same epsilon of a finished definition; a test compares both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from hubbub.mechanisms.mechanism import Mechanism, response_variances
from hubbub.mechanisms.probability import DYADIC_DIGITS
from hubbub.mechanisms.unary import UnaryResponse, differing_bits
from hubbub_decoder.array_types import Floats
from hubbub_decoder.model.repetition import Repetition


class Chain(NamedTuple):
    """Probabilities of both responses, numbers or arrays of one shape.

    a, b : P(permanent bit = 1 | true bit = 1), and | true bit = 0)
    p, q : P(reported bit = 1 | permanent bit = 0), and | permanent bit = 1)
    """

    a: Floats
    b: Floats
    p: Floats
    q: Floats

    @classmethod
    def of_mechanism(cls, mechanism: Mechanism) -> Chain:
        """Chain of a definition; of p > q, which imported reports may have, every reported bit is inverted."""
        a, b, p, q = mechanism.permanent_q, mechanism.permanent_p, mechanism.prob_p, mechanism.prob_q
        numbers = (a, b, p, q) if p < q else (a, b, 1 - p, 1 - q)
        return cls(*(np.asarray(number, np.float64) for number in numbers))

    @property
    def p_star(self) -> Floats:
        """P(reported bit = 1 | true bit = 0)."""
        return self.p + self.b * (self.q - self.p)

    @property
    def q_star(self) -> Floats:
        """P(reported bit = 1 | true bit = 1)."""
        return self.p + self.a * (self.q - self.p)

    def noise(self, true_ones: Floats | float, repetition: Repetition) -> Floats:
        """Variance of a debiased bit by both responses, for one report: (D + R G) / (q* - p*)**2.

            D, G = response_variances(a, b, p, q, mu)          R = repetition.per_response

        With R = T, a T-th of it is the law of T reports: V_prr + V_irr / T at mu = 0 (docs/explanation/mathematics.md, equation (15.2)).

        true_ones : mu, share of the reports whose true bit is one

        >>> oue = Chain(*map(np.asarray, (1.0, 0.0, 1 / (np.exp(2) + 1), 0.5)))
        >>> round(float(oue.noise(0.0, Repetition())), 4)  # 4 e**2 / (e**2 - 1)**2
        0.7241
        """
        a, b, p, q = self
        instantaneous, permanent = response_variances(a, b, p, q, np.asarray(true_ones, np.float64))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray((instantaneous + repetition.per_response * permanent) / ((a - b) * (q - p)) ** 2)

    def epsilon(self, num_bits: int, possible_ones: Iterable[int], reports: float) -> Floats:
        """Epsilon of t reports of one value, as `UnaryResponse.epsilon`: the largest i T_1 + j T_0 of any two values.

            T_1 = ln( (a + (1-a) r) / (b + (1-b) r) ), r = (p/q)**t            all reports show a one
            T_0 = ln( (1-b + b r) / (1-a + a r) ), r = ((1-q)/(1-p))**t        all reports show a zero

        num_bits      : k      possible_ones : numbers of true bits of a value
        reports       : t >= 1, or infinity for one permanent response
        """
        a, b, p, q = self
        with np.errstate(divide="ignore", invalid="ignore"):
            ones = np.where(p > 0, np.exp(reports * np.log(np.where(p > 0, p / q, 0.5))), 0.0)
            zeros = np.where(q < 1, np.exp(reports * np.log(np.where(q < 1, (1 - q) / (1 - p), 0.5))), 0.0)
            one = np.log((a + (1 - a) * ones) / (b + (1 - b) * ones))
            zero = np.log((1 - b + b * zeros) / (1 - a + a * zeros))
        high, low = np.maximum(one, zero), np.minimum(one, zero)
        pairs = [(i, j) for i, j in differing_bits(num_bits, possible_ones) if i >= j and i > 0]
        losses = [i * (high + low) if i == j else i * high + j * low if j else i * high for i, j in pairs]
        return np.asarray(np.nan_to_num(np.maximum.reduce(losses), nan=0.0, posinf=np.inf))

    def within_epsilons(self) -> UnaryResponse:
        """Return the mechanism with these probabilities, rounded so that no epsilon grows.

        Probabilities are multiples of 2**-24. b and p are rounded up, a and q down: each is the same response followed by more noise.
        """
        a, b, p, q = map(float, self)
        permanent = {"prob_f": 2 * _up(b)} if a == 1 - b else {"permanent_p": _up(b), "permanent_q": 1 - _up(1 - a)}
        return UnaryResponse(prob_p=_up(p), prob_q=1 - _up(1 - q), **permanent)


def _up(probability: float) -> float:
    """Smallest multiple of 2**-24 that is not below a probability."""
    return math.ldexp(math.ceil(math.ldexp(probability, DYADIC_DIGITS)), -DYADIC_DIGITS)
