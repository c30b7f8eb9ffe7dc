"""Evidence: the counts that a decoding starts from, their sums, and what the model derives from them alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import add
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from hubbub.errors import SummaryError
from hubbub.metrics.metric import Metric
from hubbub.metrics.params import Params
from hubbub.summary import BitCounts, PatternCounts, Reports
from hubbub.summary.pattern_counts import MAX_PATTERN_BITS
from hubbub.text import format_count
from hubbub_decoder.array_types import Flags, Floats
from hubbub_decoder.model.pattern_likelihood import supports_pattern_likelihood
from hubbub_decoder.model.random_string import RandomStringMoments
from hubbub_decoder.model.repetition import Repetition


def debias(ones: NDArray[np.int64], reports: NDArray[np.int64], params: Params) -> tuple[Floats, Floats]:
    """Unbiased estimate of the number of reports whose true bit is one, and its variance.

    A reported bit is one with probability q* where the true bit is one, and p* where it is zero.
    docs/explanation/mathematics.md, equation (1.1).

        t = (c - p* n) / (q* - p*)        Var t = (c (1 - p* - q*) + n p* q*) / (q* - p*)**2

    ones    : (m, k) int    c, reported ones per cohort and bit
    reports : (m,) int      n, reports per cohort
    returns : (m, k) t, which may be negative, and its variance given the true bits; p > q is allowed
    Source: Erlingsson et al. 2014, section 4; the variance as in Cobalt's basic_rappor_analyzer.

    >>> params = Params(num_bits=8, num_hashes=1, num_cohorts=1, prob_p=0.25, prob_q=0.75, prob_f=0)
    >>> t, variance = debias(np.array([[35]]), np.array([100]), params)  # 20 x 3/4 + 80 x 1/4 = 35
    >>> t.tolist(), variance.tolist()  # 100 x 3/16 / (1/2)**2
    ([[20.0]], [[75.0]])
    """
    p_star, q_star = params.mechanism.p_star, params.mechanism.q_star
    n = reports[:, None]
    t = (ones - p_star * n) / (q_star - p_star)
    variance = (ones * (1 - p_star - q_star) + n * p_star * q_star) / (q_star - p_star) ** 2
    return t, variance


def bit_shares(counts: BitCounts) -> Floats:
    """Estimated share of each cohort's reports whose true bit is one: y = t / n, (m, k); nan where n = 0."""
    t, _ = debias(counts.ones, counts.reports, counts.metric.params)
    with np.errstate(invalid="ignore", divide="ignore"):
        return t / counts.reports[:, None]


Collected = BitCounts | PatternCounts | Reports
"""What an aggregator has collected of one metric: counts, or the reports themselves."""

_C = TypeVar("_C", BitCounts, PatternCounts, Reports)


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a decoding starts from; each number is computed when it is first read, and once. O(m k) beside the source.

    source       : bit counts, pattern counts or reports
    same_clients : of several periods, whether the same clients report in each, with the same values: their noise then repeats
    part_of      : evidence of which this is a subset; None: of none

    >>> from hubbub import UnaryResponse
    >>> weekly = Metric.boolean("dark", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5), period="week", hold=2)
    >>> evidence = Evidence(BitCounts(weekly, [300], [[120]], ["1970-01-05", "1970-01-12", "1970-01-19"]))
    >>> evidence.num_clients, round(evidence.repetition.per_response, 3), evidence.bit_shares.round(3).tolist()
    (100.0, 1.667, [[0.3]])
    """

    source: Collected
    same_clients: bool = True
    part_of: Evidence | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.source, BitCounts | PatternCounts | Reports):
            raise SummaryError(
                f"summary must be BitCounts, PatternCounts or Reports, got {type(self.source).__name__}: "
                "hubbub.summary.read_collected(path) reads whichever a file holds"
            )

    def as_fitted(self) -> Evidence:
        """Return the evidence in the form that is fitted: reports of few bits as pattern counts, which hold the same information."""
        if isinstance(self.source, Reports) and supports_pattern_likelihood(self.params):
            return replace(self, source=self.source.pattern_counts())
        return self

    @property
    def metric(self) -> Metric:
        """Definition of the metric."""
        return self.source.metric

    @property
    def params(self) -> Params:
        """Parameters of the metric."""
        return self.source.metric.params

    @property
    def periods(self) -> tuple[str, ...]:
        """First days of the periods; () if unknown."""
        return self.source.periods

    @cached_property
    def collected(self) -> Collected:
        """The source; without its periods if each has other clients, since reports of unknown periods count as independent."""
        return self.source if self.same_clients else replace(self.source, periods=())

    @cached_property
    def counts(self) -> BitCounts:
        """Bit counts."""
        return self.collected.bit_counts()

    @cached_property
    def num_reports(self) -> int:
        """Number of reports."""
        return self.source.num_reports

    @property
    def num_all_reports(self) -> int:
        """N, the number of reports with those of which these are a part."""
        return self.num_reports if self.part_of is None else self.part_of.num_all_reports

    @cached_property
    def used(self) -> Flags:
        """Whether a cohort has reports, (m,)."""
        return np.asarray(self.counts.reports > 0)

    @property
    def num_used(self) -> int:
        """Number of cohorts with reports."""
        return int(self.used.sum())

    @property
    def num_independent(self) -> int:
        """Number R = m (k - 1) + 1 of independent numbers in the bit counts: the sum of all bits is the same in each cohort."""
        return self.num_used * (self.params.num_bits - 1) + 1

    @cached_property
    def repetition(self) -> Repetition:
        """Numbers of reports of a client and of a permanent response."""
        return Repetition.from_periods(self.metric, self.collected.periods)

    @property
    def num_clients(self) -> float:
        """Number of clients behind these reports."""
        return self.repetition.num_clients(self.num_reports)

    @property
    def num_all_clients(self) -> float:
        """Number of clients behind all N reports."""
        return self.repetition.num_clients(self.num_all_reports)

    @cached_property
    def random_string(self) -> RandomStringMoments:
        """Moments of the bits of a random string: the model of every string that is not a candidate."""
        return RandomStringMoments.from_params(self.params)

    @cached_property
    def bit_shares(self) -> Floats:
        """Estimated share of each cohort's reports whose true bit is one, y, (m, k); nan where a cohort has no reports."""
        return bit_shares(self.counts)

    @cached_property
    def any_value_share(self) -> float:
        """Share of the reports that have a value, if every value were a random string: their debiased ones over the sum of w."""
        ones = self.bit_shares[self.used].sum(axis=1)
        return float(np.average(ones, weights=self.counts.reports[self.used]) / self.random_string.mean.sum())

    def require(self, form: type[_C]) -> _C:
        """The collected data; raises SummaryError if they are not of this form."""
        if not isinstance(self.collected, form):
            raise SummaryError(f"{self.metric.name}: needs {form.__name__}, got {type(self.collected).__name__}")
        return self.collected

    def as_bit_counts(self) -> Evidence:
        """The same evidence in the form of bit counts."""
        return replace(self, source=self.source.bit_counts())

    def subset(self, cohorts: Flags) -> Evidence:
        """Evidence of some cohorts, (m,); the others then have no reports."""
        return replace(self, source=_take(self.source, cohorts), part_of=self)

    def held_out(self) -> Evidence:
        """Evidence of the clients that report whole values: all, or with `discover` bit counts of the held-out group."""
        kind = self.metric.kind
        if not kind.has_held_out_group:
            return self
        return self.as_bit_counts().subset(np.isin(np.arange(kind.num_cohorts), kind.whole_cohorts))


def _take(collected: Collected, cohorts: Flags) -> Collected:
    """Data of some cohorts; numbers of ones are not known by cohort."""
    if isinstance(collected, Reports):
        kept = cohorts[collected.cohorts]
        return (
            collected if kept.all() else replace(collected, cohorts=collected.cohorts[kept], rows=collected.rows[kept])
        )
    if isinstance(collected, PatternCounts):
        return replace(collected, counts=np.where(cohorts[:, None], collected.counts, 0))
    return replace(
        collected,
        reports=np.where(cohorts, collected.reports, 0),
        ones=np.where(cohorts[:, None], collected.ones, 0),
        ones_histogram=None,
    )


def combine(parts: Sequence[Collected]) -> Collected:
    """Sum of all parts, in the most informative form that all of them support: reports, else pattern counts, else bit counts.

    Raises SummaryError if counts of all values of a group are among those of single values in one period.
    """
    _check_groups(parts)
    if all(isinstance(part, Reports) for part in parts):
        return reduce(add, parts)
    if any(isinstance(part, BitCounts) or part.metric.num_bits > MAX_PATTERN_BITS for part in parts):
        return reduce(add, (part.bit_counts() for part in parts))
    return reduce(add, (part.pattern_counts() if isinstance(part, Reports) else part for part in parts))


def _check_groups(parts: Sequence[Collected]) -> None:
    """Raise SummaryError for reports that would count twice."""
    whole, of_one = (
        {
            period
            for part in parts
            if part.metric.group and (part.metric.group.value is None) is is_whole
            for period in part.periods
        }
        for is_whole in (True, False)
    )
    common = sorted(whole & of_one)
    if common:
        group = next(part.metric.group for part in parts if part.metric.group)
        raise SummaryError(
            f"{parts[0].metric.name}: {common[0]} is among counts of one {group.name} and of all of them, so its reports would count twice. "
            "Pass the files of single values, or those of all."
        )


def describe(collected: Collected) -> str:
    """Description of the form and the number of reports, for messages.

    >>> from hubbub import Metric, UnaryResponse
    >>> describe(BitCounts.empty(Metric.boolean("from_jfk", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5))))
    'bit counts of 0 reports'
    """
    if isinstance(collected, Reports):
        return format_count(collected.num_reports, "individual report")
    form = "bit counts" if isinstance(collected, BitCounts) else "pattern counts"
    return f"{form} of {format_count(collected.num_reports, 'report')}"
