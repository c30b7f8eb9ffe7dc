"""Front page of a published site: a card for each metric with the largest shares of its last period."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hubbub.metrics.metric import Metric
from hubbub_decoder.report.highlights import Highlights
from hubbub_decoder.report.rendering import Scripts, render


@dataclass(frozen=True, slots=True)
class MetricCard:
    """A metric with its last period.

    address : of its page                     data : of its files, without their suffix
    epsilon : of the published counts of the period, as text
    all_periods : epsilon of those of all periods together, for one person
    """

    metric: Metric
    address: str
    data: str
    period: str
    num_periods: int
    epsilon: str
    all_periods: str
    highlights: Highlights


def render_front(cards: Sequence[MetricCard], scripts: Scripts) -> str:
    """HTML page with a card for each metric, and a search; the table of the catalogue names owner, kind and epsilon."""
    return render(
        "published.html.j2",
        scripts,
        {},
        {
            "cards": cards,
            "path": (),
        },
    )
