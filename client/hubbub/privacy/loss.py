"""Epsilon of t reports of one metric: the mechanism's loss, for the numbers of true bits that a value may have.

The bound holds for any two values that do not change during the t reports, "no value" (no bits) included. It is exact to float
rounding. t must not depend on the value.

Source: Erlingsson et al. 2014: theorem 1 is the limit t -> infinity, theorem 2 is t = 1, both for a symmetric response,
b = f/2 and a = 1 - f/2. The losses T1 and T0 of one bit: `mechanisms/unary.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING

from hubbub.metrics.metric import Metric
from hubbub.metrics.params import Params
from hubbub.number_checks import check_integer, check_number

if TYPE_CHECKING:
    from hubbub.mechanisms.ratio import ExactRatio


_MAX_EXACT_REPORTS = 1_000


def epsilon(metric: Metric | Params, num_reports: float = 1) -> float:
    """Return eps(t), the privacy loss of t reports of one unchanging value.

    Parameters
    ----------
    metric
        Metric, or the `Params` of one.
    num_reports
        t, an integer >= 1, or math.inf for all reports that are drawn from one permanent response.

    Returns
    -------
    float
        eps(t), in (0, inf].

    Raises
    ------
    ParameterError
        `num_reports` is out of range.

    Notes
    -----
    T1 is the largest log-likelihood ratio of the t reports of a bit that is one for the first value and zero for the
    second, and T0 of a bit with the reverse. The loss is::

        murmur3-v1 (h bits per value, or none)   max( min(h, k-h) (T1 + T0),  h max(T1, T0) )
        google-md5 (imported; bits coincide)     max of i T1 + j T0 over i, j <= h, i + j <= k
        one-hot, several categories              T1 + T0
        one bit (boolean, threshold-v1)          max(T1, T0)
        joint                                    sum of the parts' eps(t)

    For h <= k/2 the first is h (T1 + T0). For larger h, "no value" may be the worst neighbour. The parts of a joint
    metric add up because their bits are independent given the values.

    Examples
    --------
    >>> from hubbub.metrics.params import Params
    >>> paper = Params(num_bits=128, num_hashes=2, num_cohorts=64, prob_p=0.5, prob_q=0.75, prob_f=0.5)
    >>> round(epsilon(paper), 4), round(epsilon(paper, math.inf), 4)
    (1.0743, 4.3944)
    >>> two_coins = Params.one_hot(1, prob_p=0, prob_q=1, prob_f=0.5)
    >>> round(math.exp(epsilon(two_coins)), 12), round(math.exp(epsilon_permanent(two_coins)), 12)
    (3.0, 3.0)
    """
    check_num_reports(num_reports)
    return math.fsum(
        block.mechanism.epsilon(block.num_bits, block.possible_ones, num_reports) for block in metric.blocks
    )


def exact_ratio(metric: Metric | Params, num_reports: float = 1) -> ExactRatio | None:
    """Return e^eps(t) without rounding, or None if there is no bound: the product over the blocks.

    >>> from hubbub.metrics.params import Params
    >>> exact_ratio(Params.one_hot(2, prob_p=0.25, prob_q=0.75, prob_f=0.5), math.inf).factors
    ((Fraction(3, 1), 2),)
    """
    from hubbub.mechanisms.ratio import ExactRatio

    check_num_reports(num_reports)
    blocks = [block.mechanism.exact_ratio(block.num_bits, block.possible_ones, num_reports) for block in metric.blocks]
    factors = [() if ratio is None else ratio.factors for ratio in blocks]
    return ExactRatio.product(chain.from_iterable(factors)) if all(factors) else None


def epsilon_rounded_up(metric: Metric | Params, num_reports: float = 1) -> float:
    """Return a float that is at least eps(t) and next to it, from fractions. For more than 1,000 reports it is the limit, if it is finite.

    >>> two_coins = Params.one_hot(1, prob_p=0, prob_q=1, prob_f=0.5)
    >>> epsilon_rounded_up(two_coins)  # ln 3 = 1.09861228866810969...
    1.0986122886681098
    """
    ratio = exact_ratio(metric, math.inf) if num_reports > _MAX_EXACT_REPORTS else None
    ratio = ratio or exact_ratio(metric, num_reports)
    if ratio is None:
        return math.inf
    found = ratio.epsilon
    nearest = float(found)
    return nearest if nearest >= found else math.nextafter(nearest, math.inf)


def check_num_reports(number: float, name: str = "num_reports") -> None:
    """Raise ParameterError unless a number of reports of one client is an integer >= 1, or infinite."""
    hint = "pass 1, or math.inf for any number of reports"
    check_number(name, number, "[1, inf]", hint=hint)
    if number != math.inf and number != int(number):
        check_integer(name, number, 1, hint=hint)


def epsilon_permanent(metric: Metric | Params) -> float:
    """Return the epsilon of one permanent response, the limit of eps(t).

    It is an upper bound for any number of reports that are drawn from the response. A metric with `hold` has a new
    permanent response in each epoch.

    Parameters
    ----------
    metric
        Metric, or the `Params` of one.

    Returns
    -------
    float
        Epsilon in (0, inf]. It is infinite at f = 0, where there is no permanent response, and at permanent_p = 0 or
        permanent_q = 1.
    """
    return epsilon(metric, math.inf)


def epochs_of(periods: float, hold: int | None) -> tuple[float, ...]:
    """Return the numbers of reports that are drawn from each permanent response, for one report in each period.

    >>> epochs_of(7, 3), epochs_of(7, None)
    ((3, 3, 1), (7,))
    """
    if hold is None or periods <= hold:
        return (periods,)
    whole, rest = divmod(int(periods), hold)
    return (hold,) * whole + ((rest,) if rest else ())


def epsilon_of_periods(metric: Metric, periods: int) -> float:
    """Return the epsilon of the first reports of one client with one value, one for each period: the sum over the epochs of `hold`.

    >>> from hubbub import UnaryResponse
    >>> monthly = Metric.boolean("dark", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5), hold=30)
    >>> [round(math.exp(epsilon_of_periods(monthly, t)), 6) for t in (1, 30, 31)]
    [3.0, 3.0, 9.0]
    """
    return epsilon_of_values(metric, epochs_of(periods, metric.hold))


def epsilon_of_values(metric: Metric | Params, reports_of_each: Iterable[float]) -> float:
    """Return the privacy loss of a value that changes: sum eps(t_i).

    Parameters
    ----------
    metric
        Metric, or the `Params` of one.
    reports_of_each
        t_i, the number of reports of the i-th distinct value.

    Returns
    -------
    float
        Sum of the losses.

    Raises
    ------
    ParameterError
        A number of reports is out of range.

    Notes
    -----
    The bound holds only for histories whose values change, and return to earlier values, at the same times. Memoization
    does not hide from an observer of linked reports that a value changed, when, or whether it is an earlier value again:
    docs/explanation/privacy.md.

    Examples
    --------
    >>> from hubbub.metrics.params import Params
    >>> two_coins = Params.one_hot(1, prob_p=0, prob_q=1, prob_f=0.5)
    >>> round(math.exp(epsilon_of_values(two_coins, [1, 1])), 12)
    9.0
    """
    return math.fsum(epsilon(metric, num_reports) for num_reports in reports_of_each)
