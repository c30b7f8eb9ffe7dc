"""Exact likelihood ratios: products of fractions with exponents, which are never multiplied out."""

from __future__ import annotations

import decimal
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

DECIMAL_PLACES = 20
"""Decimal places of an epsilon that is rounded up."""
_PRECISION = 80
_LOGARITHM = decimal.Context(prec=_PRECISION, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
_ROUNDING_UP = decimal.Context(prec=_PRECISION, rounding=decimal.ROUND_CEILING)


@dataclass(frozen=True, slots=True)
class ExactRatio:
    """e^epsilon as a product of fractions >= 1 with exponents.

    factors : distinct fractions in lowest terms, each with its exponent >= 1, in the order in which they were first multiplied

    >>> two = ExactRatio.product([(Fraction(3), 2), (Fraction(5, 4), 1), (Fraction(3), 1)])
    >>> two.factors, two.epsilon.quantize(Decimal("0.001"))  # 3 ln 3 + ln 1.25
    (((Fraction(3, 1), 3), (Fraction(5, 4), 1)), Decimal('3.519'))
    """

    factors: tuple[tuple[Fraction, int], ...]

    @classmethod
    def product(cls, factors: Iterable[tuple[Fraction, int]]) -> ExactRatio:
        """Return the product of powers of fractions. Equal fractions become one factor."""
        exponents: Counter[Fraction] = Counter()
        for fraction, exponent in factors:
            exponents[fraction] += exponent
        return cls(tuple((fraction, exponent) for fraction, exponent in exponents.items() if exponent))

    def power(self, exponent: int) -> ExactRatio:
        """Return the product with each exponent multiplied."""
        return ExactRatio.product((fraction, before * exponent) for fraction, before in self.factors)

    @property
    def epsilon(self) -> Decimal:
        """Sum of the exponents times the fractions' logarithms, each of which is rounded up."""
        with decimal.localcontext(_LOGARITHM):
            return sum((exponent * log_rounded_up(fraction) for fraction, exponent in self.factors), Decimal(0))


@lru_cache(maxsize=256)
def log_rounded_up(fraction: Fraction) -> Decimal:
    """Return the smallest decimal of 20 places that is at least the logarithm of a fraction >= 1.

    >>> log_rounded_up(Fraction(3))
    Decimal('1.09861228866810969140')
    """
    with decimal.localcontext(_LOGARITHM):
        logarithm = (Decimal(fraction.numerator) / Decimal(fraction.denominator)).ln()
    return logarithm.quantize(Decimal(1).scaleb(-DECIMAL_PLACES), context=_ROUNDING_UP)
