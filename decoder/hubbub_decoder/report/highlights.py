"""Highlights of a decoding: the few numbers that the card of a metric shows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from hubbub_decoder.documents.document import group_name
from hubbub_decoder.documents.finding import Severity
from hubbub_decoder.results.decoding import Decoding
from hubbub_decoder.results.estimates import Estimate
from hubbub_decoder.results.ordinal import number_texts

_MOST_SHARES = 20
_MAX_WIDTH = 0.2
"""Of the interval of a share: a wider one needs more reports."""


class State(StrEnum):
    """What a metric's last period says about itself, the most urgent first."""

    PROBLEM = "problem"
    WARNING = "warning"
    NOISE = "nothing detected"
    FEW = "few reports"
    EMPTY = "no reports"
    GOOD = "good"


@dataclass(frozen=True, slots=True)
class Highlight:
    """A share with its interval."""

    label: str
    share: float
    low: float
    high: float

    @property
    def interval(self) -> tuple[float, float]:
        """Both ends."""
        return self.low, self.high


@dataclass(frozen=True, slots=True)
class Highlights:
    """The largest shares of a decoding.

    shares     : the largest ones that are detected, or not tested, as those of categories; at most 20
    num_listed : number of all of these
    mean       : of an ordinal metric, as text
    """

    num_reports: int
    shares: tuple[Highlight, ...]
    num_listed: int
    mean: str
    state: State

    @classmethod
    def of_nothing(cls) -> Highlights:
        """Highlights of a period without a report."""
        return cls(0, (), 0, "", State.EMPTY)

    @classmethod
    def of(cls, decoding: Decoding) -> Highlights:
        """Highlights of a decoding."""
        known = [estimate for estimate in decoding if not math.isnan(estimate.share)]
        listed = [estimate for estimate in known if estimate.detected is not False]
        mean = "" if decoding.numbers is None else number_texts(decoding.numbers.mean)[0]
        shares = tuple(map(_highlight, listed[:_MOST_SHARES]))
        return cls(decoding.num_reports, shares, len(listed), mean, _state(decoding, shares, mean))


def _highlight(estimate: Estimate) -> Highlight:
    return Highlight(group_name(estimate.group), estimate.share, estimate.low, estimate.high)


def _state(decoding: Decoding, shares: Sequence[Highlight], mean: str) -> State:
    severities = {finding.severity for finding in decoding.warnings}
    if Severity.PROBLEM in severities or not decoding.diagnose().fits:
        return State.PROBLEM
    if Severity.WARNING in severities:
        return State.WARNING
    if not (shares or mean):
        return State.NOISE
    return State.FEW if any(share.high - share.low > _MAX_WIDTH for share in shares) else State.GOOD
