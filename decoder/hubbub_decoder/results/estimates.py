"""Result types: `ShareEstimate`, and `Estimate` of one candidate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hubbub.text import short_labels
from hubbub_decoder.documents.document import format_change
from hubbub_decoder.result import Result

_MOST_LETTERS = 60  # of a text in a repr


def share_text(share: float, low: float, high: float) -> str:
    """Return a share with its interval in one line.

    >>> share_text(0.3, 0.25, 0.35)
    '30.00% (25.00% .. 35.00%)'
    """
    return f"{share:z.2%} ({low:z.2%} .. {high:z.2%})"


def change_text(change: float, low: float, high: float, digits: int = 2) -> str:
    """Return the change of a share with its interval in one line.

    >>> change_text(0.01, -0.01, 0.03)
    '+1.00 points (-1.00 .. +3.00)'
    """
    shown, *ends = (format_change(number, digits) for number in (change, low, high))
    return f"{shown} points ({' .. '.join(ends)})"


def short_names(names: Sequence[str]) -> str:
    """Return the names of a group for a repr, cut to one short line."""
    shown = repr(short_labels(names[:1], _MOST_LETTERS)[0])
    return shown if len(names) == 1 else f"{shown} and {len(names) - 1} more"


@dataclass(frozen=True, slots=True, eq=False)
class ShareEstimate(Result):
    """Estimated share of the reports, with standard error and confidence interval.

    All fields are nan where the reports do not determine the share.

    Attributes
    ----------
    share
        Unbiased estimate. It is not clipped to [0, 1].
    std_error
        Standard error of the share.
    low
        Lower end of the confidence interval, not clipped.
    high
        Upper end of the confidence interval, not clipped.
    """

    share: float
    std_error: float
    low: float
    high: float

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {share_text(self.share, self.low, self.high)}>"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Estimate(ShareEstimate):
    """Estimate of one candidate.

    All numbers are nan if the candidate was screened out or is not determined. Categories are not tested. Where nothing
    was tested, `p_value`, `q_value` and the selection-adjusted interval are nan, and `detected` is None.

    Attributes
    ----------
    candidate
        The candidate.
    share
        Share of the reports that carry the candidate. It is unbiased and may be negative.
    std_error
        Standard error of the share.
    low
        Lower end of the confidence interval at `Decoding.confidence`, not clipped. For a string metric, low > 0
        exactly where p_value < (1 - confidence) / 2.
    high
        Upper end of the confidence interval.
    p_value
        One-sided p-value. The null hypothesis is that no report carries the candidate.
    q_value
        The p-value adjusted for the number of candidates, for detection at the false discovery rate `Decoding.fdr`.
    detected
        Whether q_value <= fdr and p_value < (1 - confidence) / 2. So `low` of a detected candidate is above 0. None
        exactly where `q_value` is nan: the candidate was not tested.
    selection_adjusted_low
        Lower end of the interval adjusted for the selection of detected candidates, which is wider than low ..
        high. nan: the candidate is not detected.
    selection_adjusted_high
        Upper end of this interval.
    posterior_median
        Shrunken share. It is biased, has the least expected total variation, and is at most 1 in total over all
        candidates. This field, the credible interval and the posterior mean are nan for strings if the reports do not
        determine the listed total, and if reports may be forged (`Decoding.fabricated`).
        The limit of 1 in total does not hold for items of sets.
    credible_low
        Lower posterior quantile. The credible intervals cover `Decoding.confidence` of all candidates on average,
        but fewer of the candidates with a share above 0.
    credible_high
        Upper posterior quantile.
    indistinguishable_from
        Candidates with the same bits in every cohort. The share is the total of the group.
    posterior_mean
        Shrunken share of the least expected squared error. The means are nonnegative and add up to the listed total,
        cut to [0, 1]; if that is not determined, to at most 1. Items of sets do not exclude each other, so each of their
        means is at most 1. A mean may be outside credible_low .. credible_high where few of many candidates are present.
    simultaneous_low
        Lower end of the simultaneous interval of a category. These intervals cover all categories together with
        probability `Decoding.confidence`. nan: the metric has strings.
    simultaneous_high
        Upper end of the simultaneous interval.
    forged_reports_needed
        Least number of the received reports that would have to be forged, by the best attack on the candidate, for its
        detection to be theirs: with fewer, the others alone would detect it. None: the candidate is not detected, or
        no bound is known, for the reason that the finding `forged_reports_unknown` states.

    References
    ----------
    Benjamini and Yekutieli 2005, "False Discovery Rate-Adjusted Multiple Confidence Intervals for Selected
    Parameters".
    """

    candidate: str
    p_value: float = math.nan
    q_value: float = math.nan
    detected: bool | None = None
    selection_adjusted_low: float = math.nan
    selection_adjusted_high: float = math.nan
    posterior_median: float = math.nan
    credible_low: float = math.nan
    credible_high: float = math.nan
    indistinguishable_from: tuple[str, ...] = ()
    posterior_mean: float = math.nan
    simultaneous_low: float = math.nan
    simultaneous_high: float = math.nan
    forged_reports_needed: int | None = None

    def __repr__(self) -> str:
        interval = share_text(self.share, self.low, self.high)
        return f"<Estimate {short_names(self.group)}: {interval}{', detected' if self.detected else ''}>"

    @property
    def group(self) -> tuple[str, ...]:
        """The candidate, and those that are indistinguishable from it."""
        return (self.candidate, *self.indistinguishable_from)

    def true_share(self, truth: Mapping[str, float]) -> float:
        """Return the true share of the group, for a demonstration or a test.

        Parameters
        ----------
        truth
            True shares by candidate. A missing candidate has the share 0.

        Returns
        -------
        float
            Sum of the true shares of the group.
        """
        return sum(truth.get(name, 0.0) for name in self.group)

    @property
    def interval(self) -> tuple[float, float]:
        """Confidence interval (low, high), with negative limits raised to 0."""
        return max(self.low, 0.0), max(self.high, 0.0)

    @property
    def selection_adjusted_interval(self) -> tuple[float, float]:
        """Interval adjusted for selection, with negative limits raised to 0; nan if not detected."""
        return max(self.selection_adjusted_low, 0.0), max(self.selection_adjusted_high, 0.0)


def read_detected(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of a file with `detected` as None where nothing was tested; earlier files have false there."""
    return {**row, "detected": None if row["q_value"] is None else row["detected"]}
