"""Two releases of the definitions: a metric of every kind and mechanism, and what people may answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from hubbub import Buckets, Definitions, Estimand, Metric, Params, Several, UnaryResponse
from hubbub.mechanisms.privset import PrivSet
from hubbub.mechanisms.subset import SubsetSelection
from hubbub.metrics.discovery import Discovery
from hubbub.metrics.group import Group
from hubbub.metrics.periods import PeriodKind

NOISE: dict[str, Any] = {"prob_p": 0.125, "prob_q": 0.875, "prob_f": 0.25}
ONCE: dict[str, Any] = {"prob_p": 0, "prob_q": 1, "prob_f": 0.5}
"""A report is the permanent response, so the reports of one response are equal."""

PAGES = tuple(f"page{number}.example" for number in range(8))
APPROVED = (*PAGES, *(f"absent{number}.example" for number in range(8)))
"""Pages that are used, and others."""
PARAMS = Params(num_bits=32, num_hashes=2, num_cohorts=4, **NOISE)
RESPONSE = Params(num_bits=64, num_hashes=2, num_cohorts=4, **ONCE)
OS = Metric.categorical("os", ("linux", "macos", "other"), UnaryResponse(**NOISE), other="other", period="week")
THEME = SubsetSelection(num_values=4, num_ones=1, prob_q=0.7, permanent_q=0.75)
BASKET = PrivSet(num_values=6, max_items=2, num_ones=2, prob_hit=0.75)
PACKAGES = PrivSet(num_values=16, max_items=2, num_ones=2, prob_hit=0.75)
CANDIDATES = {"homepage": APPROVED, "search": APPROVED, "fingerprint": APPROVED, "packages": PAGES[:5]}
"""Candidates of the analyst. Of hashed sets, the counts of few cohorts tell only few apart."""
EXPIRY = date(2026, 4, 8)
"""A Wednesday, so reports of the week before it are in the queues of many people."""
VERSION = Group("version", ("1.x", "2.x", "other"))


@dataclass(frozen=True)
class Question:
    """A metric of the app.

    answers : values that people give
    """

    metric: Metric
    answers: Sequence[Any]


FIRST = (
    Question(Metric.string("homepage", PARAMS, period="week"), PAGES),
    Question(Metric.string("search", PARAMS, period="week", hold=2), PAGES[:5]),
    Question(Metric.string("fingerprint", RESPONSE, period="week"), PAGES[:6]),
    Question(OS, ("linux", "macos", "other")),
    Question(Metric.boolean("dark", UnaryResponse(**ONCE)), (True, False)),
    Question(Metric.boolean("updated", UnaryResponse(**NOISE), period="week", group=VERSION), (True, False)),
    Question(
        Metric.ordinal(
            "delay",
            Buckets((0, 10, 50, 100), several=Several.MAX, unit="ms", default=0),
            UnaryResponse(**NOISE),
            period="week",
        ),
        (0, 10, 50),
    ),
    Question(
        Metric.ordinal(
            "size",
            Buckets((0, 512), estimate=Estimand.MEAN, default=0),
            UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0),
            period="week",
        ),
        (0, 128, 512),
    ),
    Question(
        Metric.set("plugins", ("spelling", "preview", "vim"), UnaryResponse(**NOISE), period="month"),
        # with the item that a client is asked about, or without it: equal answers to the question are one unit
        ((), ("spelling", "preview", "vim")),
    ),
    Question(
        Metric.set("basket", ("curl", "git", "vim", "zsh"), BASKET, period="month"),
        ((), ("git",), ("git", "zsh")),
    ),
    Question(
        Metric.set("packages", None, PACKAGES, num_cohorts=4, period="month"), ((), PAGES[:1], (PAGES[0], PAGES[3]))
    ),
    Question(Metric.categorical("theme", ("dark", "light", "system"), THEME, period="month"), ("dark", "light")),
    Question(
        Metric.joint(
            "os_and_dark",
            (replace(OS, period=PeriodKind.DAY), Metric.boolean("is_dark", UnaryResponse(**NOISE))),
            period="month",
        ),
        tuple({"os": name, "is_dark": dark} for name in ("linux", "macos") for dark in (True, False)),
    ),
    Question(Metric.boolean("trial", UnaryResponse(**NOISE), period="week", expires=EXPIRY), (True, False)),
    Question(Metric.boolean("retired", UnaryResponse(**NOISE), period="week"), (True, False)),
)


def _second(question: Question) -> Question:
    """A question of the second release: `os` with less noise."""
    if question.metric.name != "os":
        return question
    return replace(question, metric=replace(question.metric, hold=4))


SECOND = tuple(_second(question) for question in FIRST if question.metric.name != "retired")


ALPHABET = "abcdefgh"
DISCOVERED = Question(
    Metric.string(
        "command",
        Params(num_bits=64, num_hashes=1, num_cohorts=32, prob_p=0, prob_q=1, prob_f=0.1),
        discover=Discovery(longest=4, step=2, alphabet=ALPHABET, held_out=0.25),
        period="week",
    ),
    ("cafe", "cafe", "head"),
)
"""What the analyst has no list of. A person of the server also gives answers that nobody else gives."""
TRAVELLED = Question(Metric.string("travelled", RESPONSE), PAGES[:1])
WITHHELD = (TRAVELLED.metric.name, "page", "tags")
"""Metrics of strings without candidates; two of them are those of the packed release."""


def definitions_of(*releases: Sequence[Question]) -> Definitions:
    """Return the definitions of these releases, each version once, the newest last."""
    return Definitions(list(dict.fromkeys(question.metric for release in releases for question in release)))
