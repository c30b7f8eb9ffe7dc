"""What is said of one candidate, of a share, and of the fit: numbers, and nothing of how they are shown."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShareEstimate:
    """A share of the reports with its interval, not clipped to [0, 1]; nan where the reports do not determine it."""

    share: float
    std_error: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Estimate(ShareEstimate):
    """What the reports say about one candidate.

    Where it was not fitted all numbers are nan.

    share, std_error : of the share of reports that carry it, among those who reported
    low, high        : the interval of the decoding's level, not clipped: below 0 means "may well be none"
    p_value          : one-sided, of the hypothesis that nobody reported it
    q_value          : the false discovery rate at which it is called found
    detected         : q_value <= the decoding's fdr
    selected_low, selected_high : the wider interval that holds although the candidate was picked for being detected; else nan
    best_guess       : of the distribution as a whole: shrunk, biased, all of them at most 1 together
    guess_low, guess_high : hold `level` of the candidates on average over all of them, not of those that are there
    same_bits        : candidates no report can tell from this one; the share is of all of them together
    """

    candidate: str
    p_value: float
    q_value: float
    detected: bool
    selection_adjusted_low: float
    selection_adjusted_high: float
    posterior_median: float
    credible_low: float
    credible_high: float
    indistinguishable_from: tuple[str, ...] = ()

    @property
    def interval(self) -> tuple[float, float]:
        """The interval cut at 0, where shares begin."""
        return max(self.low, 0.0), max(self.high, 0.0)

    @property
    def selection_adjusted_interval(self) -> tuple[float, float]:
        """The interval for who looks at it because it was detected, cut at 0; nan where it was not."""
        return max(self.selection_adjusted_low, 0.0), max(self.selection_adjusted_high, 0.0)


@dataclass(frozen=True, slots=True)
class FitTest:
    """Whether any strings, in any shares, could have given these reports under the metric's parameters.

    name      : patterns, patterns of one cohort, number of ones, coincident hashes, equal cohorts, ones by cohort, share with a value,
                or even bits
    statistic : chi-squared with so many degrees of freedom where nothing is wrong (even bits: a Student's t squared)
    p_value   : corrected for the number of cohorts or bits the test looked at
    """

    name: str
    statistic: float
    degrees_of_freedom: int
    p_value: float
