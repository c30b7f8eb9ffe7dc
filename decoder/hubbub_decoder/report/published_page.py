"""Front page of a published site: a card for each metric with the largest shares of its last period."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hubbub.metrics.metric import Metric
from hubbub_decoder.report.rendering import Scripts, render
from hubbub_decoder.results.decoding import Decoding
from hubbub_decoder.results.document import group_name
from hubbub_decoder.results.ordinal import number_texts

MAX_SHARES = 5
"""Largest number of shares on a card."""


@dataclass(frozen=True, slots=True)
class CardShare:
    """A share with its interval, and the part of the card's width that its bar has, in percent."""

    label: str
    share: float
    interval: tuple[float, float]
    width: float


@dataclass(frozen=True, slots=True)
class MetricCard:
    """A metric with its last period.

    address : of its page                     data : of its files, without their suffix
    shares  : the largest detected ones, or those of categories; num_more : how many more there are
    epsilon : central epsilon of the period, as text
    mean    : of an ordinal metric, as text
    """

    metric: Metric
    address: str
    data: str
    period: str
    num_reports: int
    num_periods: int
    shares: tuple[CardShare, ...]
    num_more: int
    mean: str
    epsilon: str

    @classmethod
    def of(
        cls, decoding: Decoding, period: str, num_periods: int, *, address: str, data: str, epsilon: str
    ) -> MetricCard:
        """Card of the last of some periods."""
        known = [each for each in decoding if not math.isnan(each.share)]
        listed = [each for each in known if each.detected] if decoding.is_tested else known
        shown = listed[:MAX_SHARES]
        largest = max((each.share for each in shown), default=1.0)
        shares = tuple(
            CardShare(
                group_name(each.group), each.share, each.interval, 100 * max(0.0, each.share) / max(largest, 1e-9)
            )
            for each in shown
        )
        mean = "" if decoding.numbers is None else number_texts(decoding.numbers.mean)[0]
        more = len(listed) - len(shown)
        return cls(
            decoding.metric, address, data, period, decoding.num_reports, num_periods, shares, more, mean, epsilon
        )


def render_front(cards: Sequence[MetricCard], scripts: Scripts) -> str:
    """HTML page with a card for each metric, and a search; the table of the catalogue names owner, kind and epsilon."""
    return render("published.html.j2", scripts, {}, cards=cards, path=())
