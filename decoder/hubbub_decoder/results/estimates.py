"""Result types: `ShareEstimate`, `Estimate` of one candidate, `FitTest`, and `Finding` with its `Level`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from hubbub_decoder.result import Result


@dataclass(frozen=True, slots=True, eq=False)
class ShareEstimate(Result):
    """Estimated share of the reports, with standard error and confidence interval.

    Not clipped to [0, 1]; all fields are nan where the reports do not determine the share.
    """

    share: float
    std_error: float
    low: float
    high: float


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
        interval = f"{self.share:z.2%} ({self.low:z.2%} .. {self.high:z.2%})"
        return f"<Estimate {' = '.join(map(repr, self.group))}: {interval}{', detected' if self.detected else ''}>"

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


class Level(StrEnum):
    """How much a finding matters: `note`, `warning` or `problem`, from the least to the most."""

    NOTE = "note"
    """Nothing is wrong; the finding says how the result was made."""
    WARNING = "warning"
    """The result can be used within the limits that the finding names."""
    PROBLEM = "problem"
    """The result is wrong or may be wrong: find the cause before you use it."""

    @property
    def label(self) -> str:
        """Word before a finding.

        >>> Level.PROBLEM.label
        'Problem'
        """
        return self.value.capitalize()


@dataclass(frozen=True, slots=True)
class Finding:
    """Finding about a result: what was found, and what to do. `str(finding)` is both in one line, `finding.line` with the level before it.

    kind   : stable word for programs, such as few_reports
    text   : what was found, with its numbers and its meaning
    remedy : next step; may be empty
    level  : how much it matters
    """

    kind: str
    text: str
    remedy: str = ""
    level: Level = Level.WARNING

    def __str__(self) -> str:
        return f"{self.text} {self.remedy}" if self.remedy else self.text

    @property
    def line(self) -> str:
        """The level in a word, what was found and what to do, as in the terminal.

        >>> Finding("few_reports", "Only 7 reports.", "Decode 30.").line
        'Warning: Only 7 reports. Decode 30.'
        """
        return f"{self.level.label}: {self}"
