"""`describe`: what a definition buys. Privacy loss, accuracy, and what an observer learns, as figures and curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hubbub.errors import ParameterError
from hubbub.metrics.metric import Metric
from hubbub.number_checks import check_number
from hubbub.privacy import (
    Guarantee,
    PrivacyFigures,
    effective_group_size,
    guarantee_of_days,
    privacy_figures,
)
from hubbub.privacy.guarantee import guarantee_of_reports, guarantee_of_totals
from hubbub.privacy.linkability import mutual_information
from hubbub.privacy.policy import Policy
from hubbub.text import format_count
from hubbub.wire.json_values import json_value
from hubbub_decoder.errors import PlanError
from hubbub_decoder.model.distributions import binom
from hubbub_decoder.planning.law.accuracy import MAX_REPORTS, Accuracy, Population
from hubbub_decoder.planning.wishes import DISCOVERED, check_count, planner_of, repetition_of

_REPORTS_OF_A_CLIENT = (1, 2, 4, 7, 14, 30, 60, 100, 365)
DIFFERENCE_POWERS = (0.8, 0.9)
_SIZES = tuple(10 ** (step / 2) for step in range(-4, 5))


@dataclass(frozen=True, slots=True, eq=False)
class Description:
    """What a definition buys: accuracy and privacy.

    Attributes
    ----------
    metric
        The definition.
    accuracy
        Law of its estimates, for N reports of a period, T periods and M candidates.
    privacy
        Every epsilon under the default policy.
    epsilons
        Pairs (t, eps(t)) of t reports of one value, or of one epoch with `hold`, from one permanent response.
    recovery
        Pairs of t and the probability that an observer of t linked reports knows all permanent bits, for a known
        value.
    permanent_bits
        Entropy of the permanent response, in bits. It identifies a client among 2 to this power.
    group_size
        Effective group size of two reports (`hubbub.privacy.effective_group_size`).
    of_totals
        Guarantee of the totals of the T periods at delta = 1e-9: the central epsilon among the reports of one cohort,
        or the local epsilon if that is less.
    label
        Name in tables and plots.
    share
        Share whose `power` is asked for; None: none is.
    num_days
        Number of days in a row whose reports `of_days` bounds.
    difference
        Difference of a share between two groups, such as the arms of an A/B test, of which `reports_of_difference` has
        the reports; None: none is asked for.

    Raises
    ------
    ParameterError
        The difference is not in (0, 1), or `share` and `difference` are more than 1 together.
    DefinitionError
        A difference is asked for, and the metric takes no group.
    """

    metric: Metric
    accuracy: Accuracy
    privacy: PrivacyFigures
    epsilons: tuple[tuple[float, float], ...]
    recovery: tuple[tuple[int, float], ...]
    permanent_bits: float
    group_size: float
    of_totals: Guarantee
    label: str
    share: float | None = None
    num_days: int = 30
    difference: float | None = None

    def __post_init__(self) -> None:
        if self.difference is None:
            return
        check_number("difference", self.difference, "(0, 1)", hint="it is the smallest one that matters, such as 0.02")
        if (self.share or 0) + self.difference > 1:
            raise ParameterError(
                "difference must be at most 1 - share",
                f"{self.difference:g} and share = {self.share:g}: share is that of the group with the smaller one",
            )
        if not self.metric.kind.has_shares:
            raise ParameterError("difference must be of a share", f"{self.metric.name}, which estimates a mean alone")
        self.metric.kind.check_group()

    def __repr__(self) -> str:
        limit = f"detection limit {self.detection_limit:.2%} of {format_count(self.num_reports, 'report')}"
        return f"<Description of {self.metric.name}: epsilon {self.privacy.epsilon_report:.3f} of a report, {limit}>"

    @property
    def of_days(self) -> Guarantee:
        """Guarantee of all reports of a client about `num_days` days in a row, whatever is recorded."""
        return guarantee_of_days(self.metric, Policy(), self.num_days)

    @property
    def num_reports(self) -> int:
        """N, reports of a period."""
        return round(self.accuracy.clients)

    @property
    def periods(self) -> int:
        """T, periods decoded together."""
        return round(self.accuracy.repetition.per_client)

    @property
    def detection_limit(self) -> float:
        """Smallest share that is detected with probability .9; infinite if none up to 1 is."""
        return self.accuracy.detection_limit()

    @property
    def power(self) -> float | None:
        """Probability that `share` is detected; None without one."""
        return None if self.share is None else self.accuracy.power(self.share)

    @property
    def reports_of_difference(self) -> dict[float, float]:
        """Reports of a period of each of two groups that show `difference`, by the probability; empty without a difference.

        `share` is that of the group with the smaller one. None: the one that needs the most reports.
        """
        if self.difference is None:
            return {}
        law, difference = self.accuracy, self.difference
        return {power: law.clients_for_difference(difference, self.share, power) for power in DIFFERENCE_POWERS}

    def by_reports(self, sizes: Sequence[float] = _SIZES) -> list[tuple[int, float, float]]:
        """Return the accuracy for other numbers of reports.

        Parameters
        ----------
        sizes
            Numbers of reports, as multiples of N.

        Returns
        -------
        list[tuple[int, float, float]]
            Number of reports, standard error of a share of 0, and detection limit.
        """
        numbers = [max(1, round(self.accuracy.clients * size)) for size in sizes]
        laws = {number: replace(self.accuracy, clients=number) for number in numbers}
        return [(number, laws[number].std_error(0.0), laws[number].detection_limit()) for number in numbers]

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as JSON values.

        Returns
        -------
        dict[str, Any]
            Figures by name. An infinite number is the string "inf".
        """
        figures: dict[str, Any] = json_value(
            {
                "metric": self.metric.to_dict(),
                "num_reports": self.num_reports,
                "periods": self.periods,
                "num_candidates": round(self.accuracy.shares.count),
                "data": self.accuracy.data,
                "num_days": self.num_days,
                "of_days": self.of_days.to_dict(),
                "privacy": self.privacy.to_dict(),
                "epsilon_by_reports_of_a_client": [
                    {"num_reports": t, "epsilon": epsilon} for t, epsilon in self.epsilons
                ],
                "std_error": self.accuracy.std_error(0.0),
                "detection_limit": self.detection_limit,
                "share": self.share,
                "power": self.power,
                "difference": self.difference,
                "reports_of_difference": [
                    {"power": power, "num_reports": number} for power, number in self.reports_of_difference.items()
                ],
                "forged_reports": self.accuracy.forged_reports(),
                "accuracy_by_reports": [
                    {"num_reports": number, "std_error": error, "detection_limit": limit}
                    for number, error, limit in self.by_reports()
                ],
                "permanent_bits_recovered": [{"num_reports": t, "probability": chance} for t, chance in self.recovery],
                "permanent_entropy_bits": self.permanent_bits,
                "effective_group_size_2_reports": self.group_size,
                "of_totals": self.of_totals.to_dict(),
            }
        )
        return figures | self.accuracy.own_figures()


def describe(
    metric: Metric,
    *,
    num_reports: int | None = None,
    share: float | None = None,
    num_candidates: int | None = None,
    periods: int = 1,
    retained: bool = False,
) -> Description:
    """Return what a definition buys, for a number of reports of a period, or for as many as detect a share.

    Parameters
    ----------
    metric
        Definition of the metric.
    num_reports
        N, the number of reports of a period, one of each client. None: as many as detect `share`.
    share
        Share, in (0, 1), whose probability of a detection is asked for; without `num_reports`, N is such that it is .9.
    num_candidates
        M, the number of strings to look for, with shares under Zipf's law. None: 100, or the number of categories or
        buckets.
    periods
        T, the number of periods that are decoded together.
    retained
        Whether individual reports are decoded instead of their counts.

    Returns
    -------
    Description
        Accuracy and privacy of the definition.

    Raises
    ------
    ParameterError
        A number is below 1, the share is not in (0, 1), or neither `num_reports` nor `share` is given.
    PlanError
        The metric is joint, or no number of reports detects the share.

    Examples
    --------
    >>> from hubbub import UnaryResponse
    >>> survey = Metric.boolean("from_jfk", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5))
    >>> bought = describe(survey, num_reports=10_000)
    >>> round(bought.accuracy.std_error(0.0), 5), bought.permanent_bits  # sqrt(3/4 1/4) / (1/2) / 100
    (0.00866, 0.8112781244591328)
    """
    for name, number in (("num_reports", num_reports), ("num_candidates", num_candidates), ("periods", periods)):
        check_count(name, number)
    if share is not None:
        check_number("share", share, "(0, 1)", hint="it is the smallest share that matters, such as 0.01")
    if num_reports is None and share is None:
        raise ParameterError("num_reports or share must be given", "neither")
    try:
        planner = planner_of(metric.kind.word, has_shares=metric.kind.has_shares)
        number = num_candidates or len(metric.kind.estimated_values) or DISCOVERED
        shares = planner.shares(number, metric.kind)
        population = Population(num_reports or 1, repetition_of(periods, metric.hold), shares)
        accuracy = planner.accuracy(metric.kind, population, retained=retained)
        if share is not None and num_reports is None:
            accuracy = _accuracy_for(share, accuracy)
    except PlanError as problem:
        raise PlanError(f"{metric.name}: {problem}") from None
    return describe_accuracy(metric, accuracy, share)


def _accuracy_for(share: float, accuracy: Accuracy) -> Accuracy:
    """Accuracy of as many reports as detect a share; raises PlanError if no number does."""
    needed = accuracy.clients_needed(share)
    if math.isinf(needed):
        raise PlanError(
            f"`share = {share:g}` is not detected with {MAX_REPORTS:.0e} reports. Pass a larger `share`{'' if accuracy.searches else ', or fewer `num_candidates`'}."
        )
    return replace(accuracy, clients=needed)


def describe_accuracy(metric: Metric, accuracy: Accuracy, share: float | None = None) -> Description:
    """What a definition buys, given the law of its estimates, and a share whose power is asked for."""
    params, longest = metric.params, metric.hold or math.inf
    times = [t for t in _REPORTS_OF_A_CLIENT if t <= longest]
    has_response = params.mechanism.permanent_p > 0
    return Description(
        metric=metric,
        accuracy=accuracy,
        privacy=privacy_figures(metric, Policy()),
        epsilons=tuple(
            (float(t), guarantee_of_reports(metric, t).epsilon)
            for t in (*times, *([math.inf] if metric.hold is None else []))
        ),
        recovery=tuple((t, recovery_probability(metric, t)) for t in times)
        if has_response and params.mechanism.has_independent_bits
        else (),
        permanent_bits=permanent_entropy(metric),
        group_size=1.0 if metric.hold == 1 else effective_group_size(params),
        of_totals=guarantee_of_totals(
            metric, round(accuracy.repetition.per_client), max(1, round(accuracy.clients) // params.num_cohorts)
        ),
        label=metric.name,
        share=share,
    )


def recovery_probability(metric: Metric, reports: int) -> float:
    """Probability that the most likely permanent response, given t linked reports of a known value, is right in all k bits.

        prod_i sum_s max(P(B_i = 1) Bin(s; t, q), P(B_i = 0) Bin(s; t, p))

    >>> from hubbub import UnaryResponse
    >>> usual = Metric.categorical("c", ("a", "b"), UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5))
    >>> recovery_probability(usual, 1)
    1.0
    """
    params, ones = metric.params, np.arange(reports + 1)
    if_one, if_zero = (binom.pmf(ones, reports, rate) for rate in (params.mechanism.prob_q, params.mechanism.prob_p))
    right = [
        float(np.maximum(chance * if_one, (1 - chance) * if_zero).sum())
        for chance in (params.mechanism.permanent_p, params.mechanism.permanent_q)
    ]
    return float(min(right[0], 1.0) ** (params.num_bits - params.num_hashes) * min(right[1], 1.0) ** params.num_hashes)


def permanent_entropy(metric: Metric) -> float:
    """Entropy in bits of the permanent response of a value: for unary encoding (k - h) H(b) + h H(a), or that of "no value" if it is larger.

    >>> from hubbub.metrics.params import Params
    >>> symmetric = Params(num_bits=128, num_hashes=1, num_cohorts=64, prob_p=0.25, prob_q=0.75, prob_f=2 / (math.exp(2) + 1))
    >>> round(permanent_entropy(Metric.string("s", symmetric)))
    67
    """
    return mutual_information(metric, math.inf) / math.log(2)
