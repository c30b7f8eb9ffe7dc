"""Randomized response of each bit: the mechanism of RAPPOR, from true bits to reported bits.

    true bit B      of a value                                   permanent bit B'     P(B' = 1 | B = 0) = b,   P(B' = 1 | B = 1) = a
    permanent bit   drawn once for a value                       reported bit S       P(S = 1 | B' = 0) = p,   P(S = 1 | B' = 1) = q

Given the value all bits are independent. So the law of a report is

    P(S = 1 | B = 0) = p* = (1 - b) p + b q        P(S = 1 | B = 1) = q* = (1 - a) p + a q

Privacy loss of t reports of one unchanging value. With

    rho   = (p/q)**t              T1 = ln( (a + (1-a) rho) / (b + (1-b) rho) )
    sigma = ((1-q)/(1-p))**t      T0 = ln( ((1-b) + b sigma) / ((1-a) + a sigma) )

T1 is the largest log-likelihood ratio of a bit that is one for the first value and zero for the second. It is attained if
all t reports show a one. T0 is the ratio of a bit with the reverse difference, attained if all t reports show a zero.
For p > q, which only imported reports have, ones and zeros of the reports are exchanged. The ratios of independent bits add up, so
two values with i bits only in the first and j bits only in the second have the loss i T1 + j T0.

Sources: Erlingsson, Pihur, Korolova 2014 (arXiv 1407.6981), sec. 2 and theorems 1 and 2, for b = f/2 and a = 1 - f/2; for the other
responses Arcolezi, Couchot, Al Bouna, Xiao 2022, "Improving the utility of locally differentially private protocols for longitudinal
and multidimensional frequency estimates", sec. 3 (L-OSUE). Derivation: docs/explanation/privacy.md, equations (P.1) and (P.2).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import product
from typing import TYPE_CHECKING

from hubbub.errors import DefinitionError, ParameterError
from hubbub.mechanisms.bernoulli import BernoulliMask, RandomWords, draw_bits
from hubbub.mechanisms.mechanism import DEFAULT, Mechanism
from hubbub.mechanisms.probability import DYADIC_DIGITS, numerator, round_to_dyadic
from hubbub.randomness import RandomBytes

if TYPE_CHECKING:
    from fractions import Fraction

    import numpy as np
    from numpy.typing import NDArray

    from hubbub.mechanisms.blanket import Blanket, Law
    from hubbub.mechanisms.ratio import ExactRatio

_MAX_COUNTED_REPORTS = 64
_MAX_WORDS_PER_BLOCK = 16
"""Words of one call of `random_bytes`: after about 8 words all of 128 bits are decided, so two masks seldom need more."""

_CACHED_DEFINITIONS = 256
"""Definitions whose masks are kept: a server that reports for many users makes an encoder for each of them."""


@dataclass(frozen=True, slots=True, kw_only=True, init=False)
class UnaryResponse(Mechanism):
    """Permanent and instantaneous randomized response of each bit: the mechanism of RAPPOR.

    All probabilities are rounded to n / 2**24, `prob_f` to n / 2**23. The rounded probabilities are exact as floats.
    Sampling, privacy accounting and decoding all use them.

    Parameters
    ----------
    prob_p
        p, the probability that a reported bit is one if the permanent bit is 0, in [0, 1].
    prob_q
        q, the probability that a reported bit is one if the permanent bit is 1, in [0, 1] and different from p.
    prob_f
        f, the probability that a permanent bit is replaced by a fair coin, in [0, 1). It is the symmetric response
        with `permanent_p` = f/2 and `permanent_q` = 1 - f/2, and None for every other response. One bit needs it.
    permanent_p
        b, in place of `prob_f`: the probability that a permanent bit is one if the true bit is 0, in [0, 1].
    permanent_q
        a, in place of `prob_f`: the probability that a permanent bit is one if the true bit is 1, in (b, 1].

    Raises
    ------
    ParameterError
        A probability is out of range, or the arguments contradict each other.

    References
    ----------
    Erlingsson, Pihur, Korolova 2014 (arXiv 1407.6981), sec. 2.

    Examples
    --------
    >>> UnaryResponse(prob_p=0.5, prob_q=0.75, prob_f=0.5).q_star
    0.6875
    >>> UnaryResponse(prob_p=0.25, prob_q=0.75, permanent_p=0.0625, permanent_q=0.5).p_star
    0.28125
    >>> UnaryResponse(prob_p=0.5, prob_q=0.75, prob_f=1)
    Traceback (most recent call last):
    hubbub.errors.ParameterError: prob_f must be in [0, 1), got 1: at f = 1 every bit is a fair coin and nothing can be decoded
    """

    word = DEFAULT
    required_fields = ("prob_p", "prob_q")
    optional_fields = ("prob_f", "permanent_p", "permanent_q")
    has_independent_bits = True

    prob_p: float
    prob_q: float
    permanent_p: float
    permanent_q: float

    def __init__(
        self,
        *,
        prob_p: float,
        prob_q: float,
        prob_f: float | None = None,
        permanent_p: float | None = None,
        permanent_q: float | None = None,
    ) -> None:
        set_field = object.__setattr__
        b, a = _permanent_probabilities(prob_f, permanent_p, permanent_q)
        set_field(self, "permanent_p", b)
        set_field(self, "permanent_q", a)
        set_field(self, "prob_p", round_to_dyadic("prob_p", prob_p, DYADIC_DIGITS))
        set_field(self, "prob_q", round_to_dyadic("prob_q", prob_q, DYADIC_DIGITS))
        if self.prob_p == self.prob_q:
            raise ParameterError(
                f"prob_p and prob_q must differ, got {self.prob_p} twice: "
                "the report would not depend on the value; use prob_p = 0.25 and prob_q = 0.75, for example"
            )

    @classmethod
    def of_fields(cls, fields: Mapping[str, float], num_values: int = 0) -> UnaryResponse:  # noqa: ARG003  (it has no parameter for it)
        missing = [name for name in cls.required_fields if name not in fields]
        missing += [] if any(name in fields for name in cls.optional_fields) else ["prob_f"]
        if missing:
            raise ParameterError(
                f"{missing[0]} is missing: pass prob_p, prob_q, and prob_f or the pair permanent_p, permanent_q"
            )
        return cls(**fields)

    def check_block(self, num_bits: int, hash_scheme: str) -> None:  # noqa: ARG002  (bits of any meaning)
        if num_bits == 1 and self.prob_f is None:
            raise ParameterError(
                f"permanent_p and permanent_q of one bit must add up to 1, got {self.permanent_p:.6g} and "
                f"{self.permanent_q:.6g}: an asymmetric response protects one of the two values less than the other; use prob_f"
            )

    @property
    def has_permanent_noise(self) -> bool:
        return (self.permanent_p, self.permanent_q) != (0, 1)

    @property
    def _permanent_fields(self) -> dict[str, float]:
        """Arguments that define the permanent response, as in a definitions file: prob_f, or permanent_p and permanent_q."""
        f = self.prob_f
        return {"permanent_p": self.permanent_p, "permanent_q": self.permanent_q} if f is None else {"prob_f": f}

    @property
    def fields(self) -> dict[str, float]:
        """All arguments, as in a definitions file."""
        return {"prob_p": self.prob_p, "prob_q": self.prob_q, **self._permanent_fields}

    @property
    def probabilities(self) -> dict[str, float]:
        """All probabilities by their short names: p and q; f, or permanent_p and permanent_q."""
        return {name.removeprefix("prob_"): probability for name, probability in self.fields.items()}

    @property
    def digest_fields(self) -> dict[str, int]:
        """Numerators of all probabilities, of 2**-23 for f and of 2**-24 for all others: equal mechanisms have equal digests."""
        f = self.prob_f
        permanent = (
            {name: numerator(probability, DYADIC_DIGITS) for name, probability in self._permanent_fields.items()}
            if f is None
            else {"f": numerator(f, DYADIC_DIGITS - 1)}
        )
        return {**permanent, "p": numerator(self.prob_p, DYADIC_DIGITS), "q": numerator(self.prob_q, DYADIC_DIGITS)}

    def require_collectable(self, name: str) -> None:
        """Raise DefinitionError for probabilities that only imported reports may have.

        These are p > q, and a permanent response with noise that has no finite epsilon.
        """
        if self.prob_p > self.prob_q:
            raise DefinitionError(
                f"{name}: prob_p must be below prob_q, got {self.prob_p:.6g} and {self.prob_q:.6g}: exchange them"
            )
        b, a = self.permanent_p, self.permanent_q
        if self.has_permanent_noise and (b == 0 or a == 1):
            raise DefinitionError(
                f"{name}: permanent_p must be above 0 and permanent_q below 1, got {b:.6g} and {a:.6g}: the reports of a value "
                "would have no common epsilon; use prob_f = 0 for no permanent noise"
            )

    def permanent_response(self, num_bits: int) -> tuple[int, Callable[[int, bytes], int]]:
        """Return the number of bytes of a permanent response, and the response: true bits and these bytes to permanent bits.

        ::

            symmetric  (b = f/2, a = 1 - f/2)    B' = (B & ~M) | (U & M)                  M : bits that are one with probability f
                                                                                          U : fair coins
            asymmetric (every other pair)        B' = (mask_b & ~B) | (mask_a & B)        masks that are one with probability b, a

        The bytes yield the words of M, then one word of U; or the words of mask_b, then those of mask_a.
        """
        f = self.prob_f
        if f is None:
            draw_b, draw_a = _masks(num_bits, self.permanent_p, self.permanent_q)
            words_of = _words(num_bits, draw_b.max_words + draw_a.max_words)

            def respond(true_bits: int, block: bytes) -> int:
                words = words_of(block)
                mask_b = draw_b(words)
                return (mask_b & ~true_bits) | (draw_a(words) & true_bits)

        else:
            (draw,) = _masks(num_bits, f, digits=DYADIC_DIGITS - 1)
            words_of = _words(num_bits, draw.max_words + 1)

            def respond(true_bits: int, block: bytes) -> int:
                words = words_of(block)
                mask = draw(words)
                return (true_bits & ~mask) | (next(words) & mask) if mask else true_bits

        return words_of.num_bytes, respond

    def instantaneous_response(self, num_bits: int, random_bytes: RandomBytes) -> Callable[[int], int]:
        """Return the instantaneous response: permanent bits to the bits of one report.

            S = (mask_p & ~B') | (mask_q & B')        mask_p, mask_q : independent bits that are one with probability p, q

        The mask of p is drawn before the mask of q.
        """
        draw_p, draw_q = _masks(num_bits, self.prob_p, self.prob_q)
        most = draw_p.max_words + draw_q.max_words
        reader = _words(num_bits, min(most, _MAX_WORDS_PER_BLOCK))

        def respond(permanent: int) -> int:
            words = (
                reader(reader.draw_block(random_bytes)) if most <= _MAX_WORDS_PER_BLOCK else reader.stream(random_bytes)
            )
            mask_p = draw_p(words)
            return (mask_p & ~permanent) | (draw_q(words) & permanent)

        return respond

    def epsilon(self, num_bits: int, possible_ones: Iterable[int], reports: float) -> float:
        """Return the privacy loss of t reports of one unchanging value: the largest i T1 + j T0 of any two values.

        num_bits      : k
        possible_ones : numbers of true bits of a value (`differing_bits`)
        reports       : t, an integer >= 1, or math.inf: all reports that are drawn from one permanent response
        """
        one, zero = self._bit_losses(reports)
        high, low = max(one, zero), min(one, zero)
        return max(
            _times(i, high + low) if i == j else _times(i, high) + _times(j, low)
            for i, j in differing_bits(num_bits, possible_ones)
        )

    def exact_ratio(self, num_bits: int, possible_ones: Iterable[int], reports: float) -> ExactRatio | None:
        """Return the largest e^(i T1 + j T0) of any two values. None: T1 or T0 is infinite."""
        from hubbub.mechanisms.ratio import ExactRatio, log_rounded_up

        if not self.has_permanent_noise and reports > 1:
            once = None if math.isinf(reports) else self.exact_ratio(num_bits, possible_ones, 1)
            return once and once.power(int(reports))
        ratios = self._bit_ratios(reports)
        if ratios is None:
            return None
        one, zero = ratios
        t1, t0 = log_rounded_up(one), log_rounded_up(zero)
        i, j = max(
            differing_bits(num_bits, possible_ones),
            key=lambda pair: (pair[0] * t1 + pair[1] * t0, pair[0] if one > zero else pair[1]),
        )
        return ExactRatio.product([(one, i), (zero, j)])

    def _bit_ratios(self, reports: float) -> tuple[Fraction, Fraction] | None:
        """Return e^T1 and e^T0 as fractions of integers over 2**24; for all reports of a permanent response, those of its bit."""
        from fractions import Fraction

        unit = 1 << DYADIC_DIGITS
        p, q, b, a = (
            numerator(chance, DYADIC_DIGITS)
            for chance in (self.prob_p, self.prob_q, self.permanent_p, self.permanent_q)
        )
        if math.isinf(reports):
            ones, zeros = (1, 0), (0, 1)
        else:
            t = int(reports)
            ones, zeros = (q**t, p**t), ((unit - q) ** t, (unit - p) ** t)
            if p > q:
                ones, zeros = zeros, ones
        (x, y), (u, v) = ones, zeros
        below_one, below_zero = b * x + (unit - b) * y, a * u + (unit - a) * v
        if not below_one or not below_zero:
            return None
        return (
            Fraction(a * x + (unit - a) * y, below_one),
            Fraction(b * u + (unit - b) * v, below_zero),
        )

    def blanket(self, num_bits: int, possible_ones: Iterable[int], epochs: Sequence[float]) -> Blanket:
        from hubbub.mechanisms.blanket import Blanket, blanket_of_bits, times

        laws = list(map(self._ratios, epochs))
        return blanket_of_bits(reduce(times, laws), num_bits, possible_ones) if all(laws) else Blanket(0.0, ())

    def _ratios(self, reports: float) -> Law:
        """Return the law of P(s ones in t reports of a bit | true bit 1) / P(... | true bit 0), given a true bit 0; () if it is unknown.

        For more than 64 reports it is the law for the permanent bit, from which all reports are drawn.
        """
        from hubbub.mechanisms.blanket import MAX_RATIOS, spread

        b, a = self.permanent_p, self.permanent_q
        if reports > _MAX_COUNTED_REPORTS:
            return spread([(1 - b, (1 - a) / (1 - b)), (b, a / b)], 2) if 0 < b < a < 1 else ()
        t, unit = int(reports), 1 << DYADIC_DIGITS
        p, q, of_zero, of_one = (numerator(chance, DYADIC_DIGITS) for chance in (self.prob_p, self.prob_q, b, a))
        law = []
        for s in range(t + 1):  # in integers over unit**(t + 1); division of integers is rounded correctly
            if_one, if_zero = q**s * (unit - q) ** (t - s), p**s * (unit - p) ** (t - s)
            zero = of_zero * if_one + (unit - of_zero) * if_zero
            one = of_one * if_one + (unit - of_one) * if_zero
            if zero:  # at p = 0 and q = 1 all reports of a permanent bit are equal
                law.append((max(math.comb(t, s) * zero / unit ** (t + 1), sys.float_info.min), one / zero))
        return spread(law, MAX_RATIOS)

    def mutual_information(self, num_bits: int, possible_ones: Iterable[int], reports: float) -> float:
        """Return I in nats between t reports and t other reports of one client, for the value for which it is largest.

        Its bits are independent: I = (k - a) I_0 + a I_1 of a value with a true bits. As t grows, I tends to the entropy of all
        permanent bits.
        """
        zero, one = (self._bit_information(chance, reports) for chance in (self.permanent_p, self.permanent_q))
        return max(0.0, *((num_bits - a) * zero + a * one for a in possible_ones))

    def ones_distribution(self, num_bits: int, true_ones: int) -> NDArray[np.float64]:
        """Return P(a report has t ones) for t = 0 .. k, shape (k + 1,), of a value with a true bits.

        P(t) = sum_j Binomial(j; a, q*) Binomial(t - j; k - a, p*)
        """
        import numpy as np

        return np.convolve(_binomial(num_bits - true_ones, self.p_star), _binomial(true_ones, self.q_star))

    def simulate(
        self, true_bits: NDArray[np.intp], num_bits: int, reports: int, rng: np.random.RandomState
    ) -> Iterator[NDArray[np.bool_]]:
        if reports == 1:  # both responses at once
            return iter((_randomize(true_bits, num_bits, self.q_star, self.p_star, rng),))
        permanent = _randomize(true_bits, num_bits, self.permanent_q, self.permanent_p, rng)
        return (self._report(permanent, rng) for _ in range(reports))

    def _report(self, permanent: NDArray[np.bool_], rng: np.random.RandomState) -> NDArray[np.bool_]:
        ones, zeros = (draw_bits(chance, permanent.shape, rng) for chance in (self.prob_q, self.prob_p))
        return (ones & permanent) | (zeros & ~permanent)

    def log_collision(self, num_bits: int, true_ones: int, reports: int) -> float:
        """Return the sum over bits of the logarithm of P(two clients send the same sequence of this bit), a sum over sequences.

        A sequence with s ones has probability a q^s (1-q)^(t-s) + (1-a) p^s (1-p)^(t-s) if the true bit is one. If it is zero, b replaces a.
        """
        p, q = self.prob_p, self.prob_q
        of_one, of_zero = (
            _log_sum(
                _log_binomial(reports, s)
                + 2
                * _log_sum(
                    (
                        _log(chance) + _log_power(q, s) + _log_power(1 - q, reports - s),
                        _log(1 - chance) + _log_power(p, s) + _log_power(1 - p, reports - s),
                    )
                )
                for s in range(reports + 1)
            )
            for chance in (self.permanent_q, self.permanent_p)
        )
        return _times(true_ones, of_one) + _times(num_bits - true_ones, of_zero)

    def log_probabilities(self, reports: NDArray[np.bool_], true_bits: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return the sum over bits of the logarithm that `log_collision` states, for the number of ones of each bit."""
        import numpy as np

        t = reports.shape[1]
        of_sequence = np.array(
            [
                [
                    _log_sum(
                        (
                            _log(chance) + _log_power(self.prob_q, s) + _log_power(1 - self.prob_q, t - s),
                            _log(1 - chance) + _log_power(self.prob_p, s) + _log_power(1 - self.prob_p, t - s),
                        )
                    )
                    for s in range(t + 1)
                ]
                for chance in (self.permanent_p, self.permanent_q)
            ]
        )
        ones = reports.sum(axis=1, dtype=np.intp)
        logs: NDArray[np.float64] = of_sequence.ravel()[true_bits * (t + 1) + ones].sum(axis=1)
        return logs

    def log_repeat(self, num_bits: int, true_ones: int) -> float:
        same_zero, same_one = (chance * chance + (1 - chance) * (1 - chance) for chance in (self.prob_p, self.prob_q))
        of_zero, of_one = (
            _log((1 - chance) * same_zero + chance * same_one) for chance in (self.permanent_p, self.permanent_q)
        )
        return _times(true_ones, of_one) + _times(num_bits - true_ones, of_zero)

    def noise_covariances(self) -> tuple[tuple[float, float], tuple[float, float]]:
        return (0.0, 0.0), (0.0, 0.0)

    def _bit_losses(self, reports: float) -> tuple[float, float]:
        """Return T1 and T0."""
        p, q = sorted((self.prob_p, self.prob_q))
        b, a = self.permanent_p, self.permanent_q
        log_rho, log_sigma = reports * _log(p / q), reports * _log((1 - q) / (1 - p))
        if self.prob_p > self.prob_q:
            log_rho, log_sigma = log_sigma, log_rho
        one = _log_mixture(a, log_rho) - _log_mixture(b, log_rho)
        zero = _log_mixture(1 - b, log_sigma) - _log_mixture(1 - a, log_sigma)
        return one, zero

    def _bit_information(self, chance: float, reports: float) -> float:
        """Return the mutual information, in nats, of the numbers of ones in two sets of t reports of one bit.

        chance : probability that the permanent bit is one
        """
        p, q = self.prob_p, self.prob_q
        if chance in (0, 1):
            return 0.0
        if math.isinf(reports):
            return -chance * math.log(chance) - (1 - chance) * math.log(1 - chance) if p != q else 0.0
        t = int(reports)
        if_zero, if_one = (tuple(_binomial_probability(t, s, rate) for s in range(t + 1)) for rate in (p, q))
        marginal = [(1 - chance) * zero + chance * one for zero, one in zip(if_zero, if_one, strict=True)]
        terms = []
        for s, u in product(range(t + 1), repeat=2):
            both = (1 - chance) * if_zero[s] * if_zero[u] + chance * if_one[s] * if_one[u]
            if both > 0:
                terms.append(both * math.log(both / (marginal[s] * marginal[u])))
        return math.fsum(terms)


def differing_bits(num_bits: int, possible_ones: Iterable[int]) -> list[tuple[int, int]]:
    """Return i and j of every pair of values: the numbers of bits that only the first and only the second value sets.

    Two values share as few of the k bits as possible.

    >>> differing_bits(3, (0, 2))  # of 2 + 2 bits, at least one is the same
    [(0, 0), (0, 2), (2, 0), (1, 1)]
    """
    pairs = product(tuple(possible_ones), repeat=2)
    shared = ((first, second, max(0, first + second - num_bits)) for first, second in pairs)
    return [(first - both, second - both) for first, second, both in shared]


def _permanent_probabilities(
    prob_f: float | None, permanent_p: float | None, permanent_q: float | None
) -> tuple[float, float]:
    """Return permanent_p and permanent_q, rounded, of the arguments of a response."""
    if prob_f is not None and permanent_p is None and permanent_q is None:
        if prob_f == 1:
            raise ParameterError(
                f"prob_f must be in [0, 1), got {prob_f}: at f = 1 every bit is a fair coin and nothing can be decoded"
            )
        half = round_to_dyadic("prob_f", prob_f, DYADIC_DIGITS - 1) / 2
        return half, 1 - half
    if prob_f is None and permanent_p is not None and permanent_q is not None:
        b = round_to_dyadic("permanent_p", permanent_p, DYADIC_DIGITS)
        a = round_to_dyadic("permanent_q", permanent_q, DYADIC_DIGITS)
        if b >= a:
            raise ParameterError(
                f"permanent_p must be below permanent_q, got {b:.6g} and {a:.6g}: "
                + ("permanent bits would not depend on the value" if b == a else "permanent bits would be inverted")
                + "; use permanent_p = 0.125 and permanent_q = 0.5, for example"
            )
        return b, a
    given = ", ".join(
        f"{name} = {value}"
        for name, value in (("prob_f", prob_f), ("permanent_p", permanent_p), ("permanent_q", permanent_q))
        if value is not None
    )
    raise ParameterError(
        f"the permanent response has {given or 'no probabilities'}: it is either symmetric or has two probabilities; "
        "pass prob_f alone, or permanent_p and permanent_q without prob_f"
    )


def _randomize(
    true_bits: NDArray[np.intp], num_bits: int, from_one: float, from_zero: float, rng: np.random.RandomState
) -> NDArray[np.bool_]:
    """Return noisy bits (n, k) of clients with these positions of true bits (n, h); position k is no bit."""
    import numpy as np

    bits = draw_bits(from_zero, (len(true_bits), num_bits + 1), rng)
    np.put_along_axis(bits, true_bits, draw_bits(from_one, true_bits.shape, rng), axis=1)
    return bits[:, :num_bits]


@lru_cache(maxsize=_CACHED_DEFINITIONS)
def _masks(num_bits: int, *probabilities: float, digits: int = DYADIC_DIGITS) -> tuple[BernoulliMask, ...]:
    return tuple(BernoulliMask(numerator(probability, digits), digits, num_bits) for probability in probabilities)


@lru_cache(maxsize=_CACHED_DEFINITIONS)
def _words(num_bits: int, count: int) -> RandomWords:
    return RandomWords((num_bits + 7) // 8, count)


def _log_mixture(weight: float, log_r: float) -> float:
    """Return ln(w + (1-w) r), from ln r <= 0 so that r may underflow.

    >>> round(math.exp(_log_mixture(0.75, -math.inf)), 12), _log_mixture(0, -1000.0)
    (0.75, -1000.0)
    """
    if weight == 0:
        return log_r
    if weight < 0.5:
        return _log_add(math.log(weight), math.log1p(-weight) + log_r)
    return math.log1p((1 - weight) * math.expm1(log_r))


def _log_add(x: float, y: float) -> float:
    high, low = max(x, y), min(x, y)
    return high + math.log1p(math.exp(low - high))


def _log_sum(logs: Iterable[float]) -> float:
    """Return the logarithm of a sum of numbers, from their logarithms."""
    terms = tuple(logs)
    high = max(terms)
    return high if high == -math.inf else high + math.log(math.fsum(math.exp(term - high) for term in terms))


def _log_binomial(n: int, s: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(s + 1) - math.lgamma(n - s + 1)


def _log_power(x: float, exponent: int) -> float:
    return exponent * _log(x) if exponent else 0.0


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf


def _times(count: int, loss: float) -> float:
    return count * loss if count else 0.0


def _binomial_probability(n: int, s: int, rate: float) -> float:
    return math.comb(n, s) * rate**s * (1 - rate) ** (n - s)


def _binomial(n: int, chance: float) -> NDArray[np.float64]:
    """Return P(Binomial(n, chance) = j) for j = 0 .. n, shape (n + 1,)."""
    import numpy as np

    if chance in (0, 1):
        certain = np.zeros(n + 1)
        certain[n if chance else 0] = 1
        return certain
    logs = np.cumsum(np.log(np.arange(1, n + 1)))
    choose = (logs[-1] if n else 0.0) - np.append(0.0, logs) - np.append(0.0, logs)[::-1]
    j = np.arange(n + 1)
    chances = np.exp(choose + j * math.log(chance) + (n - j) * math.log1p(-chance))
    return np.asarray(chances, np.float64)
