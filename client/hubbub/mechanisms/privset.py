"""PrivSet: a report is a row of k bits with exactly w ones, for a set of at most m values at a variance that is near the smallest known one.

    own values of a client    any of k - m buckets; the other m buckets are blank
    true set T                exactly m buckets: the own values and random blanks; of more than m own values, a random m
    report                    a row of w ones that touches T with probability t; all rows that touch T are equally probable, and all others

With N rows in all, N_0 of them without a one in T, and A the share of these,

    N = C(k, w)        N_0 = C(k - m, w)        A = N_0 / N

    P(row | T) = t / (N - N_0) if the row touches T, else (1 - t) / N_0
    e**epsilon = t A / ((1 - t) (1 - A))

    q = t (w / k) / (1 - A)             probability of a one in a bucket of T
    p = (w - m q) / (k - m)             probability of a one in any other bucket

The size of a true set is always m, so the law of the bit of a value depends on nothing but whether T has the value, and a share is estimated
without bias whatever else the clients have. Two true sets with different buckets, that of an empty set included, have the loss epsilon exactly.
With m = 1 it is subset selection, and with w = 1 the discrete Wheel.

The permanent response is the choice of T, a function of the secret, the epoch and all own values. It has no noise: each report costs
epsilon.

Sources: Wang et al. 2018, "PrivSet: set-valued data analyses with local differential privacy" (INFOCOM), which takes m blanks and pads with them;
Wang et al. 2020, "Set-valued data publication with local privacy: tight error bounds and efficient mechanisms" (PVLDB 13, 8), for the Wheel.
Derivation and proof: docs/explanation/mathematics.md, equations (24.1) to (24.4).
"""

# ruff: noqa: ARG002  (arguments of the interface)

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from hubbub.errors import DefinitionError, ParameterError
from hubbub.mechanisms.mechanism import Mechanism
from hubbub.mechanisms.probability import DYADIC_DIGITS, numerator, round_to_dyadic
from hubbub.number_checks import check_integer
from hubbub.randomness import RandomBytes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hubbub.mechanisms.blanket import Blanket, Part
    from hubbub.mechanisms.ratio import ExactRatio

ITEM_SCHEME, HASHED_SCHEME = "set-row-v1", "set-hash-v1"
"""Hash schemes of the bits that it randomizes: a bit for each item, or for the items with the same hash, and blank ones."""
MAX_VALUES = 1024
"""Largest k: a row has at most 1,024 bits."""
_DYADIC_BYTES = 3
_POSITION_BYTES = 2
_ORDER_BYTES = 8
_MAX_EPOCHS = 3


@dataclass(frozen=True, slots=True, kw_only=True, init=False)
class PrivSet(Mechanism):
    """Rows of w ones that touch a true set of exactly m buckets with a stated probability.

    Parameters
    ----------
    num_values
        k, number of bits: one of each value, and `max_items` blank ones, in [2, 1024].
    max_items
        m, largest number of values of a set that a report can stand for, in [1, k/2].
    num_ones
        w, number of ones in a report, in [1, k/2].
    prob_hit
        t, the probability that a report has at least one bit of the true set, above its probability of a random row,
        rounded to n / 2**24.

    Attributes
    ----------
    prob_p
        p, the probability that a report contains a value that is not in the true set.
    prob_q
        q, the probability that a report contains a value of the true set.
    permanent_p
        0: there is no permanent noise.
    permanent_q
        1: there is no permanent noise.

    Raises
    ------
    ParameterError
        A number is out of range.

    References
    ----------
    Wang et al. 2018, "PrivSet: set-valued data analyses with local differential privacy" (INFOCOM).

    Examples
    --------
    >>> plugins = PrivSet(num_values=6, max_items=2, num_ones=1, prob_hit=0.625)
    >>> plugins.prob_q, plugins.prob_p
    (0.3125, 0.09375)
    """

    word = "privset"
    required_fields = ("max_items", "num_ones", "prob_hit")
    optional_fields = ()

    num_values: int
    max_items: int
    num_ones: int
    prob_hit: float
    prob_p: float
    prob_q: float
    permanent_p: float
    permanent_q: float

    def __init__(self, *, num_values: int, max_items: int, num_ones: int, prob_hit: float) -> None:
        check_integer("num_values", num_values, 2, MAX_VALUES, hint="pass the number of values and of blanks together")
        check_integer(
            "max_items",
            max_items,
            1,
            num_values // 2,
            hint=f"half of the {num_values} bits of a row, or fewer, are blank",
        )
        check_integer(
            "num_ones", num_ones, 1, num_values // 2, hint=f"half of the {num_values} bits of a row, or fewer, are ones"
        )
        hit, (touching, missing) = (
            round_to_dyadic("prob_hit", prob_hit, DYADIC_DIGITS),
            numbers_of_rows(num_values, max_items, num_ones),
        )
        rows = touching + missing
        if numerator(hit, DYADIC_DIGITS) * rows <= touching << DYADIC_DIGITS:
            raise ParameterError(
                f"prob_hit must be above {touching / rows:.6g}, the share of all rows that touch a set of {max_items}, got {hit:.6g}: "
                "reports would not depend on the value"
            )
        prob_q = hit * math.comb(num_values - 1, num_ones - 1) / touching
        prob_p = (num_ones - max_items * prob_q) / (num_values - max_items)
        fields = (num_values, max_items, num_ones, hit, prob_p, prob_q, 0.0, 1.0)
        for name, value in zip(self.__slots__, fields, strict=True):
            object.__setattr__(self, name, value)

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any], num_values: int) -> PrivSet:
        missing = next((name for name in cls.required_fields if name not in fields), None)
        if missing is not None:
            raise ParameterError(f"{missing} is missing: pass max_items, num_ones and prob_hit")
        return cls(num_values=num_values, **fields)

    @property
    def fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.required_fields}

    @property
    def probabilities(self) -> dict[str, float]:
        return {"w": self.num_ones, "t": self.prob_hit, "p": self.prob_p, "q": self.prob_q}

    @property
    def digest_fields(self) -> dict[str, int]:
        return {"max_items": self.max_items, "w": self.num_ones, "hit": numerator(self.prob_hit, DYADIC_DIGITS)}

    @property
    def num_blanks(self) -> int:
        return self.max_items

    @property
    def num_items(self) -> int:
        """Number of values, k - m: the bits that are not blank."""
        return self.num_values - self.max_items

    def check_block(self, num_bits: int, hash_scheme: str) -> None:
        if hash_scheme not in (ITEM_SCHEME, HASHED_SCHEME):
            raise ParameterError(
                f"PrivSet reports sets of items, got the hash scheme {hash_scheme}: any metric but a set needs UnaryResponse or SubsetSelection"
            )
        if num_bits != self.num_values:
            raise ParameterError(
                f"PrivSet of num_values = {self.num_values} needs as many bits, got {num_bits}: num_values is the number of items, or "
                "of their hashes, and max_items together"
            )

    def require_collectable(self, name: str) -> None:
        if self.prob_hit == 1:
            raise DefinitionError(f"{name}: prob_hit must be below 1, got 1: reports would have no finite epsilon")

    @property
    def has_permanent_noise(self) -> bool:
        return False

    def permanent_response(self, num_bits: int) -> tuple[int, Callable[[int, bytes], int]]:
        """Return the number of bytes of a permanent response, and the response: the true set of own values.

        Bit i has the word i, 8 bytes, little-endian. Of more than m own values, those with the m smallest words are the true set. Of fewer,
        all are, and the blanks with the smallest words. Of equal words the lower bit counts as smaller.
        """
        m, items = self.max_items, (1 << self.num_items) - 1
        blanks = range(self.num_items, num_bits)

        def respond(true_bits: int, block: bytes) -> int:
            def smallest(bits: Iterable[int], number: int) -> int:
                words = sorted((block[_ORDER_BYTES * bit : _ORDER_BYTES * (bit + 1)][::-1], bit) for bit in bits)
                return sum(1 << bit for _, bit in words[:number])

            own = true_bits & items
            number = own.bit_count()
            return smallest(_positions(own), m) if number > m else own | smallest(blanks, m - number)

        return _ORDER_BYTES * num_bits, respond

    def instantaneous_response(self, num_bits: int, random_bytes: RandomBytes) -> Callable[[int], int]:
        """Return the instantaneous response: a true set to the bits of one report.

        3 random bytes, little-endian, are below t 2**24 where the row touches the true set. Then the number j of its ones in the set is drawn with
        exactly the probability C(m, j) C(k - m, w - j) / (N - N_0): a random integer below N - N_0, of as few bytes as it needs without its
        unused bits and drawn again until it is small enough, is below the sum of the numbers of rows for 1 .. j. Then j positions in the set are drawn, and
        w - j others: words of 2 bytes, of which one that is too large, or was drawn before, is drawn again.
        """
        k, m, w = self.num_values, self.max_items, self.num_ones
        hit = numerator(self.prob_hit, DYADIC_DIGITS)
        sums = list(accumulate(math.comb(m, j) * math.comb(k - m, w - j) for j in range(1, min(m, w) + 1)))

        def below(number: int) -> int:
            bits = (number - 1).bit_length()
            while True:
                drawn = int.from_bytes(random_bytes((bits + 7) // 8), "little") & (1 << bits) - 1
                if drawn < number:
                    return drawn

        def choose(positions: list[int], left: int) -> int:
            row, mask = 0, (1 << (len(positions) - 1).bit_length()) - 1
            while left:
                block = random_bytes(_POSITION_BYTES * left)
                for start in range(0, len(block), _POSITION_BYTES):
                    place = int.from_bytes(block[start : start + _POSITION_BYTES], "little") & mask
                    if place < len(positions) and not row >> positions[place] & 1:
                        row |= 1 << positions[place]
                        left -= 1
            return row

        def respond(true_set: int) -> int:
            if true_set.bit_count() != m:
                raise ValueError(f"a true set has {m} bits, got {true_set.bit_count()}: pass a permanent response")
            touches = int.from_bytes(random_bytes(_DYADIC_BYTES), "little") < hit
            inside = 1 + bisect_right(sums, below(sums[-1])) if touches else 0
            own = _positions(true_set)
            others = _positions(~true_set & (1 << num_bits) - 1)
            return choose(own, inside) | choose(others, w - inside)

        return respond

    def simulate(
        self, true_bits: NDArray[np.intp], num_bits: int, reports: int, rng: np.random.RandomState
    ) -> Iterator[NDArray[np.bool_]]:
        import numpy as np

        m, w, size, clients = self.max_items, self.num_ones, len(true_bits), np.arange(len(true_bits))[:, None]
        own = np.zeros((size, num_bits + 1), np.bool_)
        own[clients, true_bits] = True
        own = own[:, : self.num_items]
        order = rng.random((size, num_bits))
        order[:, : self.num_items] += np.where(own, 0.0, 2.0)
        order[:, self.num_items :] += 1.0  # own values first, then blanks
        true_set = np.argpartition(order, m - 1, axis=1)[:, :m]
        chances = np.array(
            [
                math.comb(m, j) * math.comb(num_bits - m, w - j) / numbers_of_rows(num_bits, m, w)[0]
                for j in range(1, min(m, w) + 1)
            ]
        )
        ranks = np.arange(w)[None, :]
        for _ in range(reports):
            touches = rng.random(size) < self.prob_hit
            inside = np.where(touches, 1 + np.searchsorted(np.cumsum(chances)[:-1], rng.random(size), side="right"), 0)[
                :, None
            ]
            order = rng.random((size, num_bits))
            order[clients, true_set] = 2.0
            others = np.argpartition(order, w - 1, axis=1)[:, :w]
            others = np.take_along_axis(others, np.take_along_axis(order, others, axis=1).argsort(axis=1), axis=1)
            chosen = np.take_along_axis(true_set, rng.random((size, m)).argsort(axis=1), axis=1)
            rows = np.zeros((size, num_bits), np.bool_)
            np.put_along_axis(rows, others, ranks < w - inside, axis=1)
            rows[clients, chosen] = np.arange(m)[None, :] < inside
            yield rows

    def epsilon(self, num_bits: int, possible_ones: Iterable[int], reports: float) -> float:
        return reports * self._report_epsilon

    def exact_ratio(self, num_bits: int, possible_ones: Iterable[int], reports: float) -> ExactRatio | None:
        from fractions import Fraction

        from hubbub.mechanisms.ratio import ExactRatio

        touching, missing = numbers_of_rows(self.num_values, self.max_items, self.num_ones)
        hit, unit = numerator(self.prob_hit, DYADIC_DIGITS), 1 << DYADIC_DIGITS
        if math.isinf(reports) or hit == unit:
            return None
        return ExactRatio.product([(Fraction(hit * missing, (unit - hit) * touching), int(reports))])

    @property
    def _report_epsilon(self) -> float:
        touching, missing = numbers_of_rows(self.num_values, self.max_items, self.num_ones)
        return (
            math.log(self.prob_hit / (1 - self.prob_hit)) + math.log(missing / touching)
            if self.prob_hit < 1
            else math.inf
        )

    def blanket(self, num_bits: int, possible_ones: Iterable[int], epochs: Sequence[float]) -> Blanket:
        """Return the uniform distribution over rows as a blanket: rows that touch no bucket of a true set have its smallest ratio.

        There is a pair for each number of buckets that two true sets have in common. Several reports of one true set have no blanket.
        """
        from hubbub.mechanisms.blanket import Blanket, joined

        if len(epochs) > _MAX_EPOCHS or any(reports > 1 for reports in epochs):
            return Blanket(0.0, ())
        return joined(self._row_blanket() for _ in epochs)

    def _row_blanket(self) -> Blanket:
        from hubbub.mechanisms.blanket import CERTAIN, Blanket, Part

        k, m, w = self.num_values, self.max_items, self.num_ones
        touching, missing = numbers_of_rows(k, m, w)
        rows = touching + missing
        ratios = (1 - self.prob_hit) * rows / missing, self.prob_hit * rows / touching
        missed, touched = (((1.0, ratio),) for ratio in ratios)
        equal = Part(missing / rows, missed, CERTAIN, CERTAIN), Part(touching / rows, touched, CERTAIN, CERTAIN)
        pairs: list[tuple[Part, ...]] = [equal]
        for common in range(m):
            neither = math.comb(k - 2 * m + common, w)
            chances = (
                (neither, missed, missed),
                (missing - neither, missed, touched),
                (missing - neither, touched, missed),
            )
            both = rows - 2 * missing + neither
            parts = (
                Part(number / rows, CERTAIN, *laws) for number, *laws in (*chances, (both, touched, touched)) if number
            )
            pairs.append(tuple(parts))
        return Blanket(ratios[0], tuple(pairs))

    def mutual_information(self, num_bits: int, possible_ones: Iterable[int], reports: float) -> float:
        """Return a bound in nats, min(t D, H): reports are independent given the true set.

        D is the divergence of the law of a row from the uniform one, the same for each true set and so a bound of their information about it. H is
        the largest entropy of the true set of known own values.
        """
        touching, missing = numbers_of_rows(self.num_values, self.max_items, self.num_ones)
        rows, t, m = touching + missing, self.prob_hit, self.max_items
        entropy = math.log(max(math.comb(self.num_items, m), math.comb(m, m // 2)))
        shares = (t, touching / rows), (1 - t, missing / rows)
        divergence = math.fsum(chance * math.log(chance / share) for chance, share in shares if chance > 0)
        return entropy if math.isinf(reports) else min(entropy, reports * divergence)

    def ones_distribution(self, num_bits: int, true_ones: int) -> NDArray[np.float64]:
        import numpy as np

        return np.asarray(np.arange(num_bits + 1) == self.num_ones, np.float64)

    def log_collision(self, num_bits: int, true_ones: int, reports: int) -> float:
        """Return ln of an upper bound, reached if both clients have the same true set: (t**2 / (N - N_0) + (1 - t)**2 / N_0)**reports."""
        touching, missing = numbers_of_rows(self.num_values, self.max_items, self.num_ones)
        chances = (self.prob_hit, touching), (1 - self.prob_hit, missing)
        logs = [2 * math.log(chance) - math.log(rows) for chance, rows in chances if chance > 0]
        return reports * (max(logs) + math.log(math.fsum(math.exp(log - max(logs)) for log in logs)))

    def log_probabilities(self, reports: NDArray[np.bool_], true_bits: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return the sum over reports of ln P(row | T) of the formula above.

        true_bits : shape (n, k), true sets
        """
        import numpy as np

        touching, missing = numbers_of_rows(self.num_values, self.max_items, self.num_ones)
        touches = (reports & true_bits[:, None]).any(axis=2)
        missed, touched = (
            math.log(chance) - math.log(rows) if chance > 0 else -math.inf
            for chance, rows in ((1 - self.prob_hit, missing), (self.prob_hit, touching))
        )
        logs = np.where(touches, touched, missed).sum(axis=1)
        return np.where((reports.sum(axis=2) == self.num_ones).all(axis=1), logs, -np.inf)

    def log_repeat(self, num_bits: int, true_ones: int) -> float:
        return self.log_collision(num_bits, true_ones, 1)

    def noise_covariances(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return Cov(S_i, S_j), where T has neither i nor j, and where it has one of them; two buckets of T have `own_covariance`."""
        neither, one = self._pair_probabilities
        return (neither - self.prob_p**2, one - self.prob_p * self.prob_q), (0.0, 0.0)

    @property
    def own_covariance(self) -> float:
        """Covariance of the bits of two buckets of the true set."""
        return self._pair_probabilities[1] - self.prob_q**2

    @property
    def _pair_probabilities(self) -> tuple[float, float]:
        """Probabilities that two bits are one: if neither is in the true set, and if one or both are."""
        k, m, w, t = self.num_values, self.max_items, self.num_ones, self.prob_hit
        if w == 1:
            return 0.0, 0.0
        touching, missing = numbers_of_rows(k, m, w)
        with_both, untouched = math.comb(k - 2, w - 2), math.comb(max(k - m - 2, 0), w - 2)
        return t * ((with_both - untouched) / touching) + (1 - t) * (untouched / missing), t * (with_both / touching)


def numbers_of_rows(num_values: int, max_items: int, num_ones: int) -> tuple[int, int]:
    """Return N - N_0 and N_0: numbers of rows that touch a true set, and that do not."""
    missing = math.comb(num_values - max_items, num_ones)
    return math.comb(num_values, num_ones) - missing, missing


def _positions(bits: int) -> list[int]:
    """Return the positions of the ones.

    >>> _positions(0b1001)
    [0, 3]
    """
    found = []
    while bits:
        lowest = bits & -bits
        found.append(lowest.bit_length() - 1)
        bits ^= lowest
    return found
