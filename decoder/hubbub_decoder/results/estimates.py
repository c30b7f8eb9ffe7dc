"""Result types: `ShareEstimate`, `Estimate` of one candidate, `FitTest` and `Finding`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten

from hubbub_decoder.result import Result

_MOST_LETTERS = 60  # of a text in a repr


def share_text(share: float, low: float, high: float, sign: str = "") -> str:
    """Return a share with its interval in one line; sign : "+" for a change.

    >>> share_text(0.3, 0.25, 0.35), share_text(0.01, -0.01, 0.03, "+")
    ('30.00% (25.00% .. 35.00%)', '+1.00% (-1.00% .. +3.00%)')
    """
    share_shown, low_shown, high_shown = (f"{each:{sign}z.2%}" for each in (share, low, high))
    return f"{share_shown} ({low_shown} .. {high_shown})"


def short_names(names: Sequence[str]) -> str:
    """Return the names of a group for a repr, cut to one short line."""
    shown = repr(names[0] if len(names[0]) <= _MOST_LETTERS else names[0][:_MOST_LETTERS] + "...")
    return shown if len(names) == 1 else f"{shown} and {len(names) - 1} more"


@dataclass(frozen=True, slots=True, eq=False)
class ShareEstimate(Result):
    """Estimated share of the reports, with standard error and confidence interval.

    Not clipped to [0, 1]; all fields are nan where the reports do not determine the share.
    """

    share: float
    std_error: float
    low: float
    high: float

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {share_text(self.share, self.low, self.high)}>"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Estimate(ShareEstimate):
    """Estimate of one candidate; all numbers are nan if the candidate was screened out or is not determined.

    share, std_error : share of the reports that carry the candidate, unbiased, may be negative
    low, high        : confidence interval at `Decoding.confidence`, not clipped. Of a string metric, low > 0 exactly where
                       p_value < (1 - confidence) / 2
    p_value          : one-sided; null hypothesis: no report carries the candidate
    q_value          : p_value adjusted for the number of candidates, for detection at the false discovery rate `Decoding.fdr`
    detected         : q_value <= fdr and p_value < (1 - confidence) / 2; so `low` of a detected candidate is above 0
    selection_adjusted_low, selection_adjusted_high : interval adjusted for the selection of detected candidates (Benjamini and
                       Yekutieli 2005), wider than low .. high; nan if not detected
    simultaneous_low, simultaneous_high : categories: intervals that cover all categories together with probability
                       `Decoding.confidence`; nan for strings
    posterior_median : shrunken share, biased; at most 1 in total over all candidates, and of the least expected total variation.
                       This field and the next three are nan if the reports do not determine the listed total
    credible_low, credible_high : posterior quantiles; they cover `Decoding.confidence` of all candidates on average, but fewer of those
                       with a share above 0
    posterior_mean   : shrunken share of the least expected squared error; all of them are nonnegative and add up to the listed total,
                       cut to [0, 1]. It may be outside credible_low .. credible_high where few of many candidates are present
    indistinguishable_from : candidates with the same bits in every cohort; the share is the total of the group

    Categories are not tested: p_value, q_value and the selection-adjusted interval are nan, and detected is false.
    """

    candidate: str
    p_value: float = math.nan
    q_value: float = math.nan
    detected: bool = False
    selection_adjusted_low: float = math.nan
    selection_adjusted_high: float = math.nan
    posterior_median: float = math.nan
    credible_low: float = math.nan
    credible_high: float = math.nan
    indistinguishable_from: tuple[str, ...] = ()
    posterior_mean: float = math.nan
    simultaneous_low: float = math.nan
    simultaneous_high: float = math.nan

    def __repr__(self) -> str:
        interval = share_text(self.share, self.low, self.high)
        return f"<Estimate {short_names(self.group)}: {interval}{', detected' if self.detected else ''}>"

    @property
    def group(self) -> tuple[str, ...]:
        """The candidate, and those that are indistinguishable from it."""
        return (self.candidate, *self.indistinguishable_from)

    def true_share(self, truth: Mapping[str, float]) -> float:
        """Return the share of the group for true shares by candidate, 0 if missing, of a demonstration or a test."""
        return sum(truth.get(name, 0.0) for name in self.group)

    @property
    def interval(self) -> tuple[float, float]:
        """Confidence interval (low, high), with negative limits raised to 0."""
        return max(self.low, 0.0), max(self.high, 0.0)

    @property
    def selection_adjusted_interval(self) -> tuple[float, float]:
        """Interval adjusted for selection, with negative limits raised to 0; nan if not detected."""
        return max(self.selection_adjusted_low, 0.0), max(self.selection_adjusted_high, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class FitTest(Result):
    """Goodness-of-fit test; null hypothesis: some set of strings and shares explains the reports under the metric's parameters.

    name      : patterns, patterns_of_one_cohort, number_of_ones, coincident_hashes, equal_cohorts, ones_by_cohort, share_with_value,
                thresholds or even_bits
    statistic : chi-squared with `degrees_of_freedom` under the null hypothesis (even_bits: squared standard errors)
    p_value   : in [0, 1], Bonferroni-corrected for the number of cohorts or bits that the test examines
    """

    name: str
    statistic: float
    degrees_of_freedom: int
    p_value: float

    def __repr__(self) -> str:
        return f"<FitTest {self.name}: p = {self.p_value:.2g}>"


@dataclass(frozen=True, slots=True)
class Finding:
    """Warning about a result: what was found, and what to do. `str(finding)` is both in one line.

    kind   : stable word for programs, such as few_reports
    text   : what was found, with its numbers and its meaning
    remedy : next step; may be empty
    """

    kind: str
    text: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.text} {self.remedy}" if self.remedy else self.text

    def __repr__(self) -> str:
        return f"<Finding {self.kind}: {shorten(self.text, _MOST_LETTERS, placeholder=' ...')}>"
