"""Subset selection: a report is a row of d bits with exactly w ones, for few values at the smallest variance.

    value x         of d values, "no value" among them
    permanent one V drawn once for a value: V = x with probability a, each other value with probability b = (1 - a) / (d - 1)
    report          w of the d values: V among them with probability q, all other choices evenly

With w = 1 it is generalized randomized response. The law of a bit given V is p = (w - q) / (d - 1) and q, and two bits depend on each other.

Privacy loss of t reports of one unchanging value. With r = q (d - w) / ((1 - q) w), the likelihood ratio of one report, and n_i reports
that contain the value i,

    P(reports | x) ~ (a - b) r**n_x + b Z             Z = sum of r**n_i over all d values, n_i <= t, sum of n_i = w t

The ratio for x and y is largest at n_x = t, and for each n_y at the smallest Z, for which the others share (w - 1) t - n_y evenly:

    eps(t) = max over n_y of ln( (b Z + (a - b) r**t) / (b Z + (a - b) r**n_y) )

n_y = 0 is not always the largest: a one of y may take one from a value of which r**n is larger. With w = 1 it is.

Sources: Ye and Barg 2018, "Optimal schemes for discrete distribution estimation under locally differential privacy" (arXiv 1702.00610);
Wang et al. 2016, "Mutual information optimally local private discrete distribution estimation" (arXiv 1607.08025). Derivation of eps(t):
docs/explanation/privacy.md, equation (P.3).
"""

# ruff: noqa: ARG002  (arguments of the interface)

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hubbub.errors import DefinitionError, ParameterError
from hubbub.mechanisms.mechanism import Mechanism
from hubbub.mechanisms.probability import DYADIC_DIGITS, numerator, round_to_dyadic
from hubbub.number_checks import check_integer
from hubbub.randomness import RandomBytes

if TYPE_CHECKING:
    from fractions import Fraction

    import numpy as np
    from numpy.typing import NDArray

    from hubbub.mechanisms.blanket import Blanket
    from hubbub.mechanisms.ratio import ExactRatio

MAX_VALUES = 1024
"""Largest d: a row has at most 1,024 bits."""
_DYADIC_BYTES = 3
_POSITION_BYTES = 2
_POSITIONS = 128
"""Words from which the other permanent value is drawn by rejection: all are rejected with a probability below 2**-128."""
_MAX_EPOCHS = 3


@dataclass(frozen=True, slots=True, kw_only=True, init=False)
class SubsetSelection(Mechanism):
    """Permanent generalized randomized response, followed by subset selection in each report.

    Parameters
    ----------
    num_values
        d, number of values and of bits, "no value" included, in [2, 1024].
    num_ones
        w, number of ones in a report, in [1, d/2].
    prob_q
        q, the probability that a report contains the permanent value, above w/d, rounded to n / 2**24.
    permanent_q
        a, the probability that the permanent value is the true value, above 1/d, rounded to n / 2**24. 1: there is no
        permanent noise.

    Attributes
    ----------
    prob_p
        p = (w - q) / (d - 1), the probability that a report contains another value.
    permanent_p
        b = (1 - a) / (d - 1), the probability that the permanent value is a certain other value.

    Raises
    ------
    ParameterError
        A number is out of range.

    References
    ----------
    Ye and Barg 2018, "Optimal schemes for discrete distribution estimation under locally differential privacy"
    (arXiv 1702.00610).

    Examples
    --------
    >>> SubsetSelection(num_values=4, num_ones=1, prob_q=0.5).prob_p == 0.5 / 3
    True
    """

    word = "subset"
    required_fields = ("num_ones", "prob_q")
    optional_fields = ("permanent_q",)
    has_no_value_bit = True

    num_values: int
    num_ones: int
    prob_p: float
    prob_q: float
    permanent_p: float
    permanent_q: float

    def __init__(self, *, num_values: int, num_ones: int, prob_q: float, permanent_q: float = 1) -> None:
        check_integer("num_values", num_values, 2, MAX_VALUES, hint='pass the number of values, with "no value"')
        check_integer(
            "num_ones", num_ones, 1, num_values // 2, hint=f"half of the {num_values} bits of a row, or fewer, are ones"
        )
        q, a = (
            round_to_dyadic("prob_q", prob_q, DYADIC_DIGITS),
            round_to_dyadic("permanent_q", permanent_q, DYADIC_DIGITS),
        )
        for name, chance, least, text in (
            ("prob_q", q, num_ones / num_values, "num_ones / num_values"),
            ("permanent_q", a, 1 / num_values, "1 / num_values"),
        ):
            if chance <= least:
                raise ParameterError(
                    f"{name} must be above {text} = {least:.6g}, got {chance:.6g}: reports would not depend on the value"
                )
        others = num_values - 1
        fields = (num_values, num_ones, (num_ones - q) / others, q, (1 - a) / others, a)
        for name, value in zip(self.__slots__, fields, strict=True):
            object.__setattr__(self, name, value)

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any], num_values: int) -> SubsetSelection:
        missing = next((name for name in cls.required_fields if name not in fields), None)
        if missing is not None:
            raise ParameterError(f"{missing} is missing: pass num_ones, prob_q, and permanent_q if values change")
        return cls(num_values=num_values, **fields)

    @property
    def fields(self) -> dict[str, Any]:
        permanent = {"permanent_q": self.permanent_q} if self.has_permanent_noise else {}
        return {"num_ones": self.num_ones, "prob_q": self.prob_q, **permanent}

    @property
    def probabilities(self) -> dict[str, float]:
        return {name.removeprefix("prob_").replace("num_ones", "w"): value for name, value in self.fields.items()}

    @property
    def digest_fields(self) -> dict[str, int]:
        return {
            "w": self.num_ones,
            "q": numerator(self.prob_q, DYADIC_DIGITS),
            "permanent_q": numerator(self.permanent_q, DYADIC_DIGITS),
        }

    def check_block(self, num_bits: int, hash_scheme: str) -> None:
        if num_bits != self.num_values:
            raise ParameterError(
                f"subset selection of num_values = {self.num_values} needs a bit for each value, got {num_bits}: num_values is the number of "
                'categories or buckets, and one more for "no value". A boolean metric, a set or a mean needs UnaryResponse'
            )

    def require_collectable(self, name: str) -> None:
        if self.prob_q == 1:
            raise DefinitionError(f"{name}: prob_q must be below 1, got 1: reports would have no finite epsilon")

    @property
    def has_permanent_noise(self) -> bool:
        return self.permanent_q < 1

    def permanent_response(self, num_bits: int) -> tuple[int, Callable[[int, bytes], int]]:
        """Return the number of bytes of a permanent response, and the response.

        The first 3 bytes, little-endian, are below a 2**24 where the value is kept. Else each following word of 2 bytes, little-endian,
        modulo 2**l for the bit length l of d - 2, is a position among the other d - 1 values if it is below d - 1; the first such word counts.
        """
        kept, others = numerator(self.permanent_q, DYADIC_DIGITS), num_bits - 1
        mask = _mask(others)
        num_bytes = _DYADIC_BYTES + _POSITIONS * _POSITION_BYTES if self.has_permanent_noise else 0

        def respond(true_bits: int, block: bytes) -> int:
            if int.from_bytes(block[:_DYADIC_BYTES], "little") < kept:
                return true_bits
            true, position = true_bits.bit_length() - 1, 0
            for start in range(_DYADIC_BYTES, num_bytes, _POSITION_BYTES):
                position = int.from_bytes(block[start : start + _POSITION_BYTES], "little") & mask
                if position < others:
                    break
            return 1 << _skip(position % others, true)

        return num_bytes, respond if num_bytes else _unchanged

    def instantaneous_response(self, num_bits: int, random_bytes: RandomBytes) -> Callable[[int], int]:
        """Return the instantaneous response: permanent bits to the bits of one report.

        3 random bytes decide as in `permanent_response` whether the permanent value is in the report. Then w - 1 or w positions among the other d - 1 values are drawn, words of 2 bytes each; a word that is too large, or a position
        that was drawn before, is drawn again. So every set of positions has the same probability.
        """
        included, others = numerator(self.prob_q, DYADIC_DIGITS), num_bits - 1
        mask = _mask(others)

        def respond(permanent: int) -> int:
            true = permanent.bit_length() - 1
            has_it = int.from_bytes(random_bytes(_DYADIC_BYTES), "little") < included
            row, left = (permanent, self.num_ones - 1) if has_it else (0, self.num_ones)
            while left:
                block = random_bytes(_POSITION_BYTES * left)
                for start in range(0, len(block), _POSITION_BYTES):
                    position = int.from_bytes(block[start : start + _POSITION_BYTES], "little") & mask
                    bit = 1 << _skip(position, true)
                    if position < others and not row & bit:
                        row |= bit
                        left -= 1
            return row

        return respond

    def simulate(
        self, true_bits: NDArray[np.intp], num_bits: int, reports: int, rng: np.random.RandomState
    ) -> Iterator[NDArray[np.bool_]]:
        import numpy as np

        values, clients = true_bits[:, 0], np.arange(len(true_bits))
        moved = rng.randint(num_bits - 1, size=len(values))
        permanent = np.where(rng.random(len(values)) < self.permanent_q, values, moved + (moved >= values))
        for _ in range(reports):
            order = rng.random((len(values), num_bits))
            order[clients, permanent] = np.where(rng.random(len(values)) < self.prob_q, -1.0, 2.0)
            rows = np.zeros(order.shape, np.bool_)
            smallest = np.argpartition(order, self.num_ones - 1, axis=1)[:, : self.num_ones]
            np.put_along_axis(rows, smallest, values=True, axis=1)
            yield rows

    def epsilon(self, num_bits: int, possible_ones: Iterable[int], reports: float) -> float:
        return rows_epsilon(self.num_values, self.num_ones, self.prob_q, self.permanent_q, reports)

    def exact_ratio(self, num_bits: int, possible_ones: Iterable[int], reports: float) -> ExactRatio | None:
        from fractions import Fraction

        from hubbub.mechanisms.ratio import ExactRatio

        d, w, unit = self.num_values, self.num_ones, 1 << DYADIC_DIGITS
        q, a = numerator(self.prob_q, DYADIC_DIGITS), numerator(self.permanent_q, DYADIC_DIGITS)
        b, excess = unit - a, (d - 1) * a - (unit - a)  # b and a - b, times 2**24 (d - 1)
        if math.isinf(reports) or q == unit:
            return ExactRatio.product([(Fraction(b + excess, b), 1)]) if b else None
        odds = Fraction(q * (d - w), (unit - q) * w)
        t = int(reports)
        if not b:
            return ExactRatio.product([(odds, t)])

        def power(ones: int) -> int:
            """r**ones, times the same number for all of them."""
            return int(odds.numerator**ones * odds.denominator ** (t - ones))

        def ratio(of_other: int) -> Fraction:
            shared, more = divmod((w - 1) * t - of_other, d - 2) if d > 2 else (0, 0)
            z = power(t) + power(of_other) + (d - 2 - more) * power(shared) + (more * power(shared + 1) if more else 0)
            return Fraction(b * z + excess * power(t), b * z + excess * power(of_other))

        return ExactRatio.product([(ratio(_worst_count(lambda n, m: ratio(n) < ratio(m), d, w, t)), 1)])

    def blanket(self, num_bits: int, possible_ones: Iterable[int], epochs: Sequence[float]) -> Blanket:
        """Return the uniform distribution over rows as a blanket, with the ratios of a row that contains a value and one that does not.

        Several reports are bounded by their permanent value, from which they are drawn.
        """
        from fractions import Fraction

        from hubbub.mechanisms.blanket import Blanket, joined

        if len(epochs) > _MAX_EPOCHS or (not self.has_permanent_noise and any(reports > 1 for reports in epochs)):
            return Blanket(0.0, ())
        d, w, q, a = self.num_values, self.num_ones, Fraction(self.prob_q), Fraction(self.permanent_q)
        once, all_reports = (w, a * q + (1 - a) * (w - q) / (d - 1)), (1, a)
        return joined(_rows_blanket(d, *(once if reports == 1 else all_reports)) for reports in epochs)

    def mutual_information(self, num_bits: int, possible_ones: Iterable[int], reports: float) -> float:
        """Return a bound in nats, min(t I(V; report), H(V)): reports are independent given the permanent value V."""
        a, b, d = self.permanent_q, self.permanent_p, self.num_values
        entropy = -math.fsum(chance * math.log(chance) * times for chance, times in ((a, 1), (b, d - 1)) if chance > 0)
        return entropy if math.isinf(reports) else min(entropy, reports * self._report_information())

    def _report_information(self) -> float:
        """Return I(V; report) = E[ln P(report | V)] - E[ln P(report)], for the law of V given a true value."""
        d, w, q, a, b = self.num_values, self.num_ones, self.prob_q, self.permanent_q, self.permanent_p
        with_v, without_v = q * d / w, (1 - q) * d / (d - w)  # over the uniform law of rows
        true_in = (a * with_v + b * ((w - 1) * with_v + (d - w) * without_v), self.q_star)
        true_out = (a * without_v + b * (w * with_v + (d - w - 1) * without_v), 1 - self.q_star)
        of_row = math.fsum(chance * math.log(ratio) for ratio, chance in (true_in, true_out) if chance > 0)
        given_v = math.fsum(
            chance * math.log(ratio) for ratio, chance in ((with_v, q), (without_v, 1 - q)) if chance > 0
        )
        return max(0.0, given_v - of_row)

    def ones_distribution(self, num_bits: int, true_ones: int) -> NDArray[np.float64]:
        import numpy as np

        return np.asarray(np.arange(num_bits + 1) == self.num_ones, np.float64)

    def log_collision(self, num_bits: int, true_ones: int, reports: int) -> float:
        """Return ln of the sum over two permanent values V, W of P(V) P(W) P(same report | V, W)**t."""
        d, w, q, a, b = self.num_values, self.num_ones, self.prob_q, self.permanent_q, self.permanent_p
        contains, lacks = q / math.comb(d - 1, w - 1), (1 - q) / math.comb(d - 1, w)  # probability of one row given V
        same = q * contains + (1 - q) * lacks
        both, neither = math.comb(d - 2, w - 2) if w > 1 else 0, math.comb(d - 2, w)
        other = both * contains**2 + 2 * math.comb(d - 2, w - 1) * contains * lacks + neither * lacks**2
        equal = a * a + (d - 1) * b * b
        logs = [math.log(equal) + reports * math.log(same)]
        logs += [math.log1p(-equal) + reports * math.log(other)] if equal < 1 else []
        return max(logs) + math.log(math.fsum(math.exp(log - max(logs)) for log in logs))

    def log_likelihoods(self, ones: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Return ln P(reports | x) of each value x, apart from a term that is the same for all values.

        ones    : shape (..., d), how many of the reports of one permanent value contain each value
        returns : shape (..., d), ln(b Z + (a - b) r**n_x) of the formula above
        """
        import numpy as np

        log_odds = math.log(self.prob_q * (self.num_values - self.num_ones) / ((1 - self.prob_q) * self.num_ones))
        if not self.has_permanent_noise:
            return np.asarray(ones * log_odds, np.float64)
        scale = ones.max(axis=-1, keepdims=True)
        powers = np.exp((ones - scale) * log_odds)
        total = powers.sum(axis=-1, keepdims=True)
        logs: NDArray[np.float64] = scale * log_odds + np.log(
            self.permanent_p * total + (self.permanent_q - self.permanent_p) * powers
        )
        return logs

    def log_probabilities(self, reports: NDArray[np.bool_], true_bits: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return the logarithms of the formula above, with the term that is the same for all values."""
        import numpy as np

        t, d, w = reports.shape[1], self.num_values, self.num_ones
        given = np.take_along_axis(
            self.log_likelihoods(reports.sum(axis=1, dtype=np.float64)), true_bits.argmax(axis=1)[:, None], axis=1
        )[:, 0]
        possible = (reports.sum(axis=2) == w).all(axis=1)
        return np.where(possible, given + t * (math.log1p(-self.prob_q) - math.log(math.comb(d - 1, w))), -np.inf)

    def log_repeat(self, num_bits: int, true_ones: int) -> float:
        contains, lacks = math.comb(num_bits - 1, self.num_ones - 1), math.comb(num_bits - 1, self.num_ones)
        return math.log(self.prob_q**2 / contains + (1 - self.prob_q) ** 2 / lacks)

    def noise_covariances(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return Cov(S_i, S_j), instantaneous and permanent, where neither i nor j is the value, and where one of them is.

        instantaneous    E[Cov(S_i, S_j | V)]          permanent    Cov(E[S_i | V], E[S_j | V]) = -(q-p)**2 P(V = i) P(V = j)
        """
        d, w, p, q, a, b = self.num_values, self.num_ones, self.prob_p, self.prob_q, self.permanent_q, self.permanent_p
        with_v = q * (w - 1) / (d - 1) - q * p
        without_v = (q * (w - 1) * (w - 2) + (1 - q) * w * (w - 1)) / ((d - 1) * (d - 2)) - p * p if d > 2 else 0.0
        instantaneous = (2 * b * with_v + (1 - 2 * b) * without_v, (a + b) * with_v + (1 - a - b) * without_v)
        permanent = (-((q - p) ** 2) * b * b, -((q - p) ** 2) * a * b)
        return instantaneous, permanent


def rows_epsilon(num_values: int, num_ones: int, included: float, kept: float, reports: float) -> float:
    """Return eps(t) of the formula above; ln(a / b) for all reports, without bound at q = 1, and at a = 1 for all reports.

    num_values : d      num_ones : w      included : q      kept : a      reports : t, an integer >= 1, or math.inf
    """
    d, w, q, a = num_values, num_ones, included, kept
    b = (1 - a) / (d - 1)
    if math.isinf(reports) or q == 1:
        return math.log(a / b) if b else math.inf
    t, odds = int(reports), q * (d - w) / ((1 - q) * w)
    if not b:
        return t * math.log(odds)

    def ratio(of_other: int) -> float:
        """Likelihood ratio of n_x = t and n_y = of_other; every term is divided by r**t."""
        mine = odds ** (of_other - t)
        shared, more = divmod((w - 1) * t - of_other, d - 2) if d > 2 else (0, 0)
        z = 1 + mine + (more * odds ** (shared + 1 - t) if more else 0) + (d - 2 - more) * odds ** (shared - t)
        return (b * z + a - b) / (b * z + (a - b) * mine)

    return math.log(ratio(_worst_count(lambda n, m: ratio(n) < ratio(m), d, w, t)))


def _worst_count(is_below: Callable[[int, int], bool], num_values: int, num_ones: int, reports: int) -> int:
    """Return n_y of the largest ratio, which grows with n_y up to there and then falls.

    is_below : whether the ratio of the first n_y is below that of the second
    """
    low, high = 0, (num_ones - 1) * reports // (num_values - 1)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if is_below(middle, middle + 1) else (low, middle)
    return low


def _rows_blanket(num_values: int, num_ones: int, included: Fraction) -> Blanket:
    """Return the uniform blanket of rows of d bits with w ones, in which the true bit is one with some probability."""
    from hubbub.mechanisms.blanket import CERTAIN, Blanket, Part

    d, w = num_values, num_ones
    ratios = (float((1 - included) * d / (d - w)), float(included * d / w))
    points = [(((1.0, ratio),), chance) for ratio, chance in zip(ratios, (1 - w / d, w / d), strict=True)]
    equal = tuple(Part(chance, ratio, CERTAIN, CERTAIN) for ratio, chance in points)
    chances = {(0, 0): (d - w) * (d - w - 1), (0, 1): w * (d - w), (1, 0): w * (d - w), (1, 1): w * (w - 1)}
    different = tuple(
        Part(chance / (d * (d - 1)), CERTAIN, points[first][0], points[second][0])
        for (first, second), chance in chances.items()
        if chance
    )
    return Blanket(ratios[0], (different, equal))


def _skip(position: int, value: int) -> int:
    """Return the position among all values of a position among the others."""
    return position + (position >= value)


def _mask(positions: int) -> int:
    return (1 << (positions - 1).bit_length()) - 1


def _unchanged(true_bits: int, _block: bytes) -> int:
    return true_bits
