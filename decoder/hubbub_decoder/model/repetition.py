"""Repeated reports: how the noise of T reports of one client and value correlates.

Model: a client has one cohort. In each of T periods it reports the same value, through the permanent response B of its epoch:

    B_i ~ Bernoulli(a) where the value sets bit i, Bernoulli(b) elsewhere        r_ti ~ Bernoulli(q) where B_i = 1, Bernoulli(p) elsewhere

with a = permanent_q and b = permanent_p of `Params`. A metric without `hold` has one epoch. With `hold`, T_e of the T periods are in epoch e, and each epoch draws a new B.
So the covariance of a report has three parts, and the sum of a client's T reports has

    Cov r = D + G + H        Cov(sum_t r_t) = T (D + R G + T H)        R = sum_e T_e**2 / T

    D = E Cov(r | B)             instantaneous noise, new in each report
    G = E Cov(E(r | B) | v)      permanent noise, the same in each report of an epoch
    H = Cov E(r | v)             choice of the clients, the same in every report

`bit_covariance.py` has these parts for bits, `pattern_likelihood.py` for patterns, `estimators/reports/simulated_information.py` for
reports. The shares of unlisted strings, and so tau**2, do not depend on T. docs/explanation/mathematics.md, equation (15.1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from hubbub.errors import SummaryError
from hubbub.metrics.metric import Metric
from hubbub.metrics.periods import period_number


@dataclass(frozen=True, slots=True)
class Repetition:
    """Numbers of reports in which a client's value and its permanent response repeat.

    per_client   : T, reports of a client; 1 where each report has another client
    per_response : R = sum_e T_e**2 / T, reports of the permanent response of a random report, in [1, T]
    """

    per_client: float = 1.0
    per_response: float = 1.0

    @classmethod
    def from_periods(cls, metric: Metric, periods: Sequence[str]) -> Repetition:
        """Repetition if the same clients report the same value in all of these periods.

        periods : first days; () if unknown, which counts as one period

        >>> from hubbub import UnaryResponse
        >>> weekly = Metric.boolean("dark", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5), period="week", hold=2)
        >>> Repetition.from_periods(weekly, ["1970-01-05", "1970-01-12", "1970-01-19"])  # weeks 1, 2 and 3: epochs 0, 1 and 1
        Repetition(per_client=3.0, per_response=1.6666666666666667)
        """
        sizes = epoch_sizes(metric, periods)
        number = sum(sizes)
        return cls(float(number), sum(size**2 for size in sizes) / number)

    def num_clients(self, num_reports: int) -> float:
        """Number of clients behind so many reports, N / T."""
        return num_reports / self.per_client


ONCE = Repetition()
"""Each report has another client."""


@dataclass(frozen=True, slots=True)
class CommonReports:
    """Pairs of reports of one client, one in each of two sets of periods, that repeat its value and its permanent response.

    per_client   : T_A T_B pairs with the same client      per_response : sum_e T_Ae T_Be pairs with the same permanent response
    """

    per_client: float
    per_response: float

    @classmethod
    def from_periods(cls, metric: Metric, before: Sequence[str], after: Sequence[str]) -> CommonReports:
        """Pairs if a client reports the same value in all of these periods; unknown periods, (), are one of the same epoch without `hold`.

        >>> from hubbub import UnaryResponse
        >>> weekly = Metric.boolean("dark", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5), period="week", hold=2)
        >>> CommonReports.from_periods(weekly, ["1970-01-12"], ["1970-01-19", "1970-01-26"])  # week 2; weeks 3 and 4, epochs 1 and 2
        CommonReports(per_client=2.0, per_response=1.0)
        """
        sizes = max(1, len(before)), max(1, len(after))
        pairs = float(sizes[0] * sizes[1])
        if metric.hold is None:
            return cls(pairs, pairs)
        if not before or not after:
            return cls(pairs, 0.0)
        epochs = [Counter(epoch_numbers(metric, periods)) for periods in (before, after)]
        return cls(pairs, float(sum(size * epochs[1][epoch] for epoch, size in epochs[0].items())))


def epoch_sizes(metric: Metric, periods: Sequence[str]) -> list[int]:
    """Numbers of these periods in each epoch, in which a client keeps its permanent response; [1] of unknown periods, ()."""
    if metric.hold is None or not periods:
        return [max(1, len(periods))]
    return list(Counter(epoch_numbers(metric, periods)).values())


def epoch_numbers(metric: Metric, periods: Sequence[str]) -> list[int]:
    """Number of the epoch of `hold` that each of these periods is in."""
    try:
        return [period_number(metric.period, first) // (metric.hold or 1) for first in periods]
    except ValueError:
        raise SummaryError(
            f"{metric.name}: periods must be first days, YYYY-MM-DD, got {', '.join(map(repr, periods))}. "
            "Without them, reports of one epoch (hold) cannot be found. Correct them, or leave them out."
        ) from None
