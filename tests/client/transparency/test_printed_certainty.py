"""Every certainty that users read, against exact odds: the notice, the page of the state and the catalogue, for random definitions.

The odds are fractions. They are the largest likelihood ratio over every pair of values, "no value" among them, and every output of t
reports of one permanent response. No closed form of `hubbub.privacy` is used.
"""

from __future__ import annotations

import html
import itertools
import math
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from fractions import Fraction
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from hubbub import Buckets, Definitions, Metric, Params, Policy, UnaryResponse, consent_notice, load_definitions
from hubbub.cli.catalogue import catalogue_pages, metric_path
from hubbub.metrics.buckets import Estimand
from hubbub.metrics.kinds import OrdinalKind
from hubbub.privacy import Unit, privacy_figures
from hubbub.privacy.ledger import Account
from hubbub.privacy.plain_words import CERTAIN
from hubbub.sdk.storage.state import State
from hubbub.sdk.transparency.state_page import state_page
from tests.support.enumerate_mechanism import bloom_filters
from tests.support.html import without_word_spans

FOREVER = math.inf
KINDS = ("string", "asymmetric string", "categorical", "boolean", "ordinal", "default", "mean", "joint")
EXPIRES = date(2099, 1, 1)
SAME_TIMES = ("return to earlier values, at the same times", "cross the client's threshold at the same times")


def random_noise(chance: random.Random, *, asymmetric: bool = False, permanent: bool = True) -> dict[str, Any]:
    p, q = sorted((chance.uniform(0, 0.45), chance.uniform(0.5, 1)))
    noise = {"prob_p": chance.choice([p, p, 0.0]), "prob_q": chance.choice([q, q, 1.0])}
    if asymmetric:
        return noise | {"permanent_p": chance.uniform(0.02, 0.4), "permanent_q": chance.uniform(0.45, 0.95)}
    return noise | {"prob_f": chance.uniform(0.1, 0.9) if permanent else 0.0}


def random_metric(kind: str, chance: random.Random) -> Metric:
    """A metric that the default policy allows; one in three has `hold`, one in six no permanent noise."""
    while True:
        metric = _random_metric(kind, chance)
        if privacy_figures(metric, Policy()).objection is None:
            return replace(
                metric, expires=EXPIRES, description=f"Question about {metric.name}", owner="ada@example.org"
            )


def _random_metric(kind: str, chance: random.Random) -> Metric:
    hold = chance.choice([None, None, chance.randint(1, 5)])
    noise = random_noise(chance, asymmetric=kind == "asymmetric string", permanent=chance.random() > 1 / 6)
    sizes: dict[str, Any] = {"num_bits": chance.randint(8, 9), "num_hashes": chance.randint(1, 2), "num_cohorts": 2}
    edges = tuple(range(chance.randint(3, 5)))
    match kind:
        case "string" | "asymmetric string":
            return Metric.string("m", Params(**sizes, **noise), hold=hold)
        case "categorical":
            return Metric.categorical("m", ("a", "b", "c")[: chance.randint(2, 3)], UnaryResponse(**noise), hold=hold)
        case "boolean":
            return Metric.boolean("m", UnaryResponse(**noise), hold=hold)
        case "ordinal":
            return Metric.ordinal("m", Buckets(edges), UnaryResponse(**noise), hold=hold)
        case "default":
            return Metric.ordinal("m", Buckets(edges, default=0), UnaryResponse(**noise), hold=hold)
        case "mean":
            return Metric.ordinal(
                "m", Buckets((0, 9), default=0, estimate=Estimand.MEAN), UnaryResponse(**noise), hold=hold
            )
        case _:
            parts = (
                Metric.boolean("x", UnaryResponse(**noise)),
                Metric.categorical("y", ("a", "b"), UnaryResponse(**noise)),
            )
            return Metric.joint("m", parts, hold=hold)


@cache
def bit_odds(params: Params, reports: float) -> tuple[Fraction | float, Fraction | float]:
    """Largest likelihood ratio of a bit that is one for the first value only, and of one that is one for the second only."""
    a, b, p, q = (
        Fraction(probability)
        for probability in (
            params.mechanism.permanent_q,
            params.mechanism.permanent_p,
            params.mechanism.prob_p,
            params.mechanism.prob_q,
        )
    )
    if reports == FOREVER:  # the permanent bit is known
        return ratio(a, b), ratio(1 - b, 1 - a)
    t = int(reports)
    ones = [q**s * (1 - q) ** (t - s) for s in range(t + 1)]
    zeros = [p**s * (1 - p) ** (t - s) for s in range(t + 1)]
    of_one, of_zero = ([c * x + (1 - c) * y for x, y in zip(ones, zeros, strict=True)] for c in (a, b))
    possible = [(x, y) for x, y in zip(of_one, of_zero, strict=True) if x or y]
    return max(ratio(x, y) for x, y in possible), max(ratio(y, x) for x, y in possible)


def ratio(numerator: Fraction, denominator: Fraction) -> Fraction | float:
    return numerator / denominator if denominator else math.inf


@cache
def odds(metric: Metric, reports: float) -> Fraction | float:
    """Largest likelihood ratio of reports of one permanent response, over every pair of values."""
    if len(metric.blocks) > 1:
        return math.prod(odds(part, reports) for part in metric.components)
    k, params = metric.num_bits, metric.params
    has_default = isinstance(metric.kind, OrdinalKind) and not metric.kind.has_no_value
    sizes = {params.num_hashes} if has_default else {0, params.num_hashes}
    first, second = bit_odds(params, reports)
    return max(
        first ** (x & ~y).bit_count() * second ** (y & ~x).bit_count()
        for x, y in itertools.product(bloom_filters(k, sizes), repeat=2)
    )


def require_certainty(printed: str, exact: Fraction | float, *, tight: bool = True) -> None:
    """The printed percentage is at least the exact one, and at most 1 above it."""
    percent = 100.0 if exact == math.inf else 100 * Fraction(exact) / (1 + Fraction(exact))
    if printed.startswith(CERTAIN):
        assert percent > Fraction("99.9") or not tight
        return
    (found,) = re.findall(r"^at most ([\d.]+) % sure", printed)
    assert Fraction(found) >= percent
    assert Fraction(found) <= percent + 1 or not tight


def expected_steps(metric: Metric) -> Iterator[tuple[str, Fraction | float]]:
    """Words of the notice that begin each certainty, and the exact odds."""
    figures = privacy_figures(metric, Policy())
    yield "from one report, ", odds(metric, 1)
    of_unit = odds(metric, {"value": FOREVER, "epoch": metric.hold or 1, "period": 1}[figures.unit])
    if figures.unit == "epoch":
        yield "from the reports of ", of_unit
    units = 1 if figures.unit == "value" else int(figures.units_enrollment)
    yield "from all reports until you withdraw your consent, ", of_unit**units
    yield "from all reports ever, if you then agree again any number of times, ", of_unit ** int(figures.units_lifetime)


CASES = [(kind, case) for kind in KINDS for case in range(5)]


@pytest.mark.parametrize(("kind", "case"), CASES)
def test_notice_prints_exact_certainties_with_their_condition(kind: str, case: int, unseen_seed: int) -> None:
    metric = random_metric(kind, random.Random(unseen_seed + case))  # noqa: S311
    text = consent_notice(Definitions([metric]), app="Example", recipient="Example Ltd")
    (line,) = [line for line in text.splitlines() if line.startswith("- m: ")]
    steps = line.removeprefix("- m: ").rstrip(".").split("; ")
    is_of_value = privacy_figures(metric, Policy()).unit == "value"
    assert ("practically certain that" in steps.pop()) if is_of_value else True
    for step, (words, exact) in zip(steps, expected_steps(metric), strict=True):
        assert step.startswith(words)
        if "from all reports" in words:
            assert ("as long as " in step, "whether or not your answer changes" in step) == (
                is_of_value,
                not is_of_value,
            )
        require_certainty(step.rpartition(", ")[2], exact)
    assert ("can see that an answer changed, when, and whether it is an earlier answer again" in text) == is_of_value


@pytest.mark.parametrize(
    ("kind", "condition", "change"),
    [
        ("boolean", "as long as your answer does not change", "if your answer changes"),
        (
            "mean",
            "as long as your number stays on the same side of a limit that this device chose at random",
            "if it crosses",
        ),
        ("ordinal", "as long as your number stays in the same range", "if it leaves this range"),
        ("joint", "as long as none of your answers changes", "if one of your answers changes"),
    ],
)
def test_condition_names_what_must_not_change(kind: str, condition: str, change: str) -> None:
    chance = random.Random(1)  # noqa: S311
    metric = next(
        m for m in (random_metric(kind, chance) for _ in range(99)) if privacy_figures(m, Policy()).unit == "value"
    )
    text = consent_notice(Definitions([metric]), app="Example", recipient="Example Ltd")
    assert text.count(condition) == 2
    assert change in text
    assert ("without an answer can be a change" in text) == (kind != "mean")


def cell(metric: Metric, units: int, reports: int, *, known: bool = True) -> str:
    """What the page of the state says about reports that cost some units."""
    figures = privacy_figures(metric, Policy())
    account = Account(
        subject="",
        digest=metric.digest,
        metric=metric.name,
        period=metric.period,
        next_period_start="2026-11-23",
        unit=figures.unit,
        epsilon_per_unit=figures.epsilon_unit,
        units=units,
        reports=reports,
        reserved_units=100,
    )
    state = State()
    state.accounts[account.key] = account
    page = without_word_spans(state_page(state, definitions=Definitions([metric]) if known else None))
    (found,) = re.findall(r'data-label="most that these reports can reveal">(.*?)</td>', page)
    return unescape(found)


def test_page_states_one_report_after_one_report() -> None:
    """Without the definition the page knows the epsilon of any number of reports only, and says so."""
    homepage = load_definitions(Path(__file__).parents[3] / "examples" / "metrics.toml")["homepage"]
    change = "as long as your answer does not change; if your answer changes, practically certain that it changed"
    assert cell(homepage, 1, 1) == f"at most 82 % sure, {change}"
    assert (
        cell(homepage, 1, 1, known=False) == f"at most 99 % sure from any number of reports of these answers, {change}"
    )
    weekly = Metric.boolean("weekly", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5), hold=7)
    assert cell(weekly, 1, 1) == "at most 63 % sure, whether or not your answer changes"
    assert (
        cell(weekly, 1, 1, known=False)
        == "at most 75 % sure from all reports of these epochs, whether or not your answer changes"
    )


def divisions(reports: int, units: int, longest: float) -> Iterator[tuple[int, ...]]:
    """Numbers of reports of each unit."""
    most = int(min(reports, longest))
    return (division for division in itertools.product(range(1, most + 1), repeat=units) if sum(division) == reports)


@pytest.mark.parametrize(("kind", "case"), CASES)
def test_page_prints_exact_certainties_of_the_reports_made(kind: str, case: int, unseen_seed: int) -> None:
    """The true bound is that of the worst division of the reports over the units. The printed one is close for one unit, for
    one report of each unit, and for one report more; otherwise it is an upper bound."""
    metric = random_metric(kind, random.Random(unseen_seed + case))  # noqa: S311
    unit = privacy_figures(metric, Policy()).unit
    for reports in (1, 2, 3, 5):
        for units in range(1, min(reports, 3) + 1):
            ways = list(divisions(reports, units, {"value": FOREVER, "epoch": metric.hold or 1, "period": 1}[unit]))
            if not ways:
                continue
            exact = max(math.prod(odds(metric, reports_of_unit) for reports_of_unit in way) for way in ways)
            shown = cell(metric, units, reports)
            require_certainty(shown, exact, tight=units in (1, reports, reports - 1))
            assert ("as long as " in shown, "practically certain that" in shown) == (unit == "value", unit == "value")
            require_certainty(cell(metric, units, reports, known=False), exact, tight=False)


@pytest.mark.parametrize(("kind", "case"), CASES)
def test_catalogue_prints_exact_certainties(kind: str, case: int, unseen_seed: int) -> None:
    metric = random_metric(kind, random.Random(unseen_seed + case))  # noqa: S311
    figures = privacy_figures(metric, Policy())
    page = unescape(
        without_word_spans(catalogue_pages(Definitions([metric]), date(2026, 11, 23))[metric_path(metric.name)])
    )
    found = {
        label: (text, note)
        for label, text, note in re.findall(r"<dt>(After [^<]*)</dt><dd>([^<]*)<small>([^<]*)</small>", page)
    }
    of_unit = odds(metric, {"value": FOREVER, "epoch": metric.hold or 1, "period": 1}[figures.unit])
    require_certainty(found["After one report"][0], odds(metric, 1))
    if figures.unit != "period":
        (label,) = [label for label in found if label.startswith("After all reports of one ")]
        require_certainty(found[label][0], of_unit)
    text, note = found["After all reports of a lifetime"]
    require_certainty(text, of_unit ** int(figures.units_lifetime))
    assert (html.unescape(note).endswith(SAME_TIMES), "After a change" in found) == (figures.unit == "value",) * 2


@pytest.mark.parametrize("kind", KINDS)
def test_show_counts_no_value_only_where_it_is_a_value(kind: str) -> None:
    """Regression: with a default, a period without a recording has the bucket of the default, and "no value" is no further value."""
    chance = random.Random(1)  # noqa: S311
    drawn = (random_metric(kind, chance) for _ in range(99))
    figures = next(figures for figures in (privacy_figures(m, Policy()) for m in drawn) if figures.unit == "value")
    notes = {row.label: row.note for row in figures.rows()}
    for label in ("per enrollment", "lifetime"):
        assert ("no value" in notes[label]) == (kind not in ("default", "mean"))
        assert notes[label].endswith(SAME_TIMES)
        assert notes[label].endswith(figures.of_operator()[Unit.LIFETIME].condition.sentence)


@pytest.mark.parametrize(
    ("url", "words", "absent"),
    [
        ("https://telemetry.example.org", "The connection is encrypted.", "not encrypted"),
        ("http://127.0.0.1:8000", "The connection is not encrypted", "The connection is encrypted"),
        (None, "The connection is encrypted if the address begins with https.", "not encrypted"),
    ],
)
def test_page_says_whether_the_connection_is_encrypted(url: str | None, words: str, absent: str) -> None:
    page = state_page(State(), url=url)
    assert words in page
    assert absent not in page
