"""Front page: a card for each version of a metric, with search, filters and an order, all of them in the address."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hubbub.metrics.metric import Metric
from hubbub_decoder.batch_decoding.tasks import UnreadableFile
from hubbub_decoder.documents.document import trend_axis
from hubbub_decoder.explore.view import READING_TWICE
from hubbub_decoder.report.about import period_text
from hubbub_decoder.report.highlights import Highlight, Highlights, State
from hubbub_decoder.report.rendering import NO_SCRIPTS, render

WAITING, FAILED, SKIPPED = "waiting", "failed", "not decoded"
_STATES = (FAILED, *State, SKIPPED, WAITING)
_PILLS: Mapping[str, str] = {FAILED: "bad", State.PROBLEM: "bad", State.WARNING: "warning", State.GOOD: "good"}
_MOST_LETTERS = 200  # of a search


@dataclass(frozen=True, slots=True)
class Card:
    """A metric version.

    address    : of its page                       periods  : the newest one with enough reports
    is_open    : whether more reports of it may be accepted
    history    : highlights of periods, the last one last; None: not decoded
    reason     : why there are none of the last period
    """

    metric: Metric
    address: str
    title: str
    periods: tuple[str, ...]
    is_open: bool
    state: str
    history: tuple[Highlights | None, ...]
    reason: str = ""

    @property
    def last(self) -> Highlights | None:
        """Highlights of the last period."""
        return self.history[-1]

    @property
    def period(self) -> str:
        """The periods, in words."""
        return period_text(self.metric, self.periods)

    @property
    def pill(self) -> str:
        """Class of the state's color."""
        return _PILLS.get(self.state, "plain")

    @property
    def trend(self) -> tuple[list[tuple[int, Highlight]], tuple[float, float]]:
        """Number of each period in which the largest share of the last one is known, with the share, and both ends of their axis."""
        label = self.last.shares[0].label if self.last is not None and self.last.shares else None
        shown = [
            (number, highlights.shares) for number, highlights in enumerate(self.history) if highlights is not None
        ]
        known = [(number, share) for number, shares in shown for share in shares if share.label == label]
        axis = trend_axis((share.low for _, share in known), (share.high for _, share in known))
        return (known if len(known) > 1 else []), axis

    @property
    def words(self) -> str:
        """Text that a search looks through."""
        about = self.metric
        return " ".join((about.name, about.description, about.owner, about.purpose)).lower()


_ORDERS: Mapping[str, tuple[Callable[[Card], Any], bool]] = {
    "state": (lambda card: _STATES.index(card.state), False),
    "name": (lambda card: card.metric.name, False),
    "reports": (lambda card: card.last.num_reports if card.last else 0, True),
    "newest period": (lambda card: card.periods, True),
}
"""Keys by which cards are sorted, each with whether the largest comes first."""


def render_explore(cards: Sequence[Card], problems: Sequence[UnreadableFile], query: Mapping[str, str]) -> str:
    """HTML page of the cards that a query chooses: q (words), owner, kind, state, sort."""
    words = query.get("q", "")[:_MOST_LETTERS].lower().split()
    chosen = {name: query.get(name, "") for name in ("owner", "kind", "state")}
    shown = [
        card
        for card in cards
        if all(word in card.words for word in words)
        and chosen["owner"] in ("", card.metric.owner)
        and chosen["kind"] in ("", str(card.metric.kind))
        and chosen["state"] in ("", card.state)
    ]
    sort = query.get("sort", "")
    key, is_reversed = _ORDERS.get(sort, _ORDERS["state"])
    filters = [
        ("owner", "Owner", "any", sorted({card.metric.owner for card in cards if card.metric.owner})),
        ("kind", "Kind", "any", sorted({str(card.metric.kind) for card in cards})),
        ("state", "State", "any", [str(state) for state in _STATES if any(card.state == state for card in cards)]),
        ("sort", "Sort by", "", list(_ORDERS)),
    ]
    return render(
        "explore.html.j2",
        NO_SCRIPTS,
        {},
        {
            "cards": sorted(sorted(shown, key=lambda card: card.metric.name), key=key, reverse=is_reversed),
            "num_cards": len(cards),
            "reading_twice": READING_TWICE if any(card.is_open for card in shown) else "",
            "num_waiting": sum(card.state == WAITING for card in cards),
            "problems": problems,
            "filters": filters,
            "chosen": chosen | {"sort": sort},
            "query": query.get("q", "")[:_MOST_LETTERS],
            "path": (),
        },
    )
