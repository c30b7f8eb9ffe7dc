"""`decode_each` over several periods: the change over all of them, and one false discovery rate for all changes of a candidate."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from hubbub import Metric, Params, UnaryResponse
from hubbub.metrics.group import Group
from hubbub.summary import BitCounts
from hubbub_decoder import Trends, compare, decode_each, simulate
from hubbub_decoder.array_types import Floats
from hubbub_decoder.comparison.compare import category_changes
from hubbub_decoder.comparison.covariance import Sample
from hubbub_decoder.comparison.results import Overlap
from hubbub_decoder.inference.multiple_testing import family_q_values
from hubbub_decoder.model.evidence import Evidence, combine
from hubbub_decoder.report.write import write_trend_report
from tests.support.panels import Clients, simulate_panel

NAMES = ("a", "b", "c", "d", "e")
NOISE = UnaryResponse(prob_p=0.1, prob_q=0.9, prob_f=0.5)
WITHOUT_PERMANENT_NOISE = UnaryResponse(prob_p=0.1, prob_q=0.9, prob_f=0)
SURVEY = Metric.categorical("os", NAMES, NOISE, period="week")
HOMEPAGE = Metric.string(
    "homepage",
    Params(num_bits=32, num_hashes=1, num_cohorts=8, prob_p=0.1, prob_q=0.9, prob_f=0.5),
    period="week",
)
TOOLS = Metric.set("tools", NAMES, NOISE, period="week")
AGE = Metric.ordinal("age", [0, 18, 40, 60, 120], NOISE, period="week")


def weeks(number: int) -> list[str]:
    return [(date(2026, 3, 2) + timedelta(weeks=i)).isoformat() for i in range(number)]


def of_shares(shares: list[float], seed: int, noise: UnaryResponse = NOISE, clients: int = 100_000) -> list[BitCounts]:
    """Counts of weeks in which "a" has these shares, "e" has none and the others share the rest; new clients every week."""
    metric, rng = Metric.categorical("os", NAMES, noise, period="week"), np.random.default_rng(seed)
    populations = [
        {"a": round(clients * share)} | dict.fromkeys("bcd", round(clients * (1 - share) / 3)) for share in shares
    ]
    return [
        simulate(metric, population, rng, periods=[week])
        for population, week in zip(populations, weeks(len(shares)), strict=True)
    ]


def test_growth_that_no_pair_of_weeks_shows_is_found(unseen_seed: int) -> None:
    """Five weeks: in standard errors of two weeks, .0051, a step is 2 and the change over all 7.8. It is detected from 2.8 on, or earlier."""
    trends = decode_each(of_shares([0.30, 0.31, 0.32, 0.33, 0.34], unseen_seed))
    assert trends.overall is not None
    assert trends.overall["a"].detected
    assert abs(trends.overall["a"].change - 0.04) < 6 * trends.overall["a"].std_error
    assert "a" in trends.changed


def test_a_share_that_leaps_and_returns_is_found_between_its_weeks(unseen_seed: int) -> None:
    """A leap of 19 standard errors, and no change from the first to the last week."""
    trends = decode_each(of_shares([0.3, 0.3, 0.4, 0.3, 0.3], unseen_seed))
    assert "a" in trends.changed
    assert [bool(comparison["a"].detected) for comparison in trends.comparisons][1:3] == [True, True]
    assert trends.overall is not None
    assert abs(trends.overall["a"].change) < 6 * trends.overall["a"].std_error


def test_two_periods_have_one_change(unseen_seed: int) -> None:
    before, after = of_shares([0.3, 0.32], unseen_seed)
    trends = decode_each([before, after])
    assert trends.overall == trends.comparisons[0]
    assert trends.comparisons[0].to_dict() == compare(before, after).to_dict()
    assert decode_each([before]).overall is None
    assert decode_each([before]).changed == ()


@pytest.mark.parametrize(
    ("noise", "same_clients", "number", "size"),
    [
        (WITHOUT_PERMANENT_NOISE, True, 9, 3),
        (NOISE, False, 9, 3),
        (UnaryResponse(prob_p=0.001, prob_q=0.999, prob_f=0.6), True, 9, 1),  # nearly all noise is permanent
        (NOISE, True, 3, 1),
    ],
)
def test_ends_have_as_many_periods_as_show_a_steady_change_best(
    noise: UnaryResponse, same_clients: bool, number: int, size: int
) -> None:
    counts = of_shares([0.3] * number, 1, noise, clients=2_000)
    overall = decode_each(counts, same_clients=same_clients).overall
    assert overall is not None
    assert overall.a.periods == tuple(weeks(number)[:size])
    assert overall.b.periods == tuple(weeks(number)[-size:])
    sums = sum(counts[1:size], counts[0]), sum(counts[1 - size :], counts[-size]) if size > 1 else counts[-1]
    alone = compare(*sums, same_clients=same_clients)
    assert [change.change for change in overall] == [alone[change.candidate].change for change in overall]
    if same_clients:  # `compare` takes the periods of one sample for those of the same clients
        assert [change.std_error for change in overall] == [alone[change.candidate].std_error for change in overall]


def test_error_holds_if_only_the_periods_of_an_end_share_clients(unseen_seed: int) -> None:
    """The worst case: the same clients in the first half of the weeks, other ones in the second. 400 changes of a share of 0.

    Their squares in standard errors have a chi-squared law, with a mean within 1 +- .4 but for a chance of 1e-6. Without the noise that the
    periods of an end share, the mean would be 1.8.
    """
    noise = UnaryResponse(prob_p=0.05, prob_q=0.95, prob_f=0.6)
    metric = Metric.categorical("os", NAMES, noise, period="week")
    rng, scores = np.random.default_rng(unseen_seed), []
    for _ in range(100):
        halves: list[Clients] = [({"a": 4_000}, range(3)), ({"a": 4_000}, range(3, 6))]
        counts = simulate_panel(metric, halves, weeks(6), rng)
        ends = [Sample(Evidence(combine(end)), np.zeros(5)) for end in (counts[:2], counts[-2:])]
        changes, variances = category_changes(ends[0], ends[1], NAMES, Overlap.unknown(), "reporters")
        scores += (changes**2 / variances)[1:].tolist()
    assert np.mean(scores) == pytest.approx(1, abs=0.4)


def comings_and_goings(kind: str, number: int, clients: int) -> list[Clients]:
    """Clients of the same shares in every period."""
    every = {"a": clients // 2, "b": clients // 4, "c": clients // 4}
    quarter = {name: count // 4 for name, count in every.items()}
    match kind:
        case "same":
            return [(every, range(number))]
        case "new":
            return [(every, [i]) for i in range(number)]
        case "growing":
            return [(quarter, range(i, number)) for i in range(number)]
        case "halves":
            return [(every, range(number // 2)), (every, range(number // 2, number))]
        case _:  # each stays for four periods
            return [(quarter, range(max(0, i), min(number, i + 4))) for i in range(-3, number)]


@pytest.mark.slow
def test_constant_shares_are_found_to_change_in_at_most_five_of_a_hundred_trends(unseen_seed: int) -> None:
    """240 trends of six weeks, of every kind with shares and of clients that come and go; more than 31 have a chance of 1e-6 at .05."""
    rng, found = np.random.default_rng(unseen_seed), 0
    metrics = [SURVEY, replace(SURVEY, hold=2), AGE, TOOLS, HOMEPAGE]
    kinds = ("same", "new", "growing", "halves", "staying")
    runs = [(metric, kind) for metric in metrics for kind in kinds] * 5
    runs += [(SURVEY, "alone"), (AGE, "alone"), (HOMEPAGE, "alone"), (TOOLS, "alone")] * 29
    for metric, kind in runs[:240]:
        clients = comings_and_goings("new" if kind == "alone" else kind, 6, 8_000)
        if metric is AGE:
            of_age = {"a": "5", "b": "20", "c": "50"}
            clients = [({of_age[name]: count for name, count in values.items()}, when) for values, when in clients]
        names = [*NAMES, "x", "y"] if metric is HOMEPAGE else None
        found += bool(
            decode_each(simulate_panel(metric, clients, weeks(6), rng), names, same_clients=kind != "alone").changed
        )
    assert found <= binom.isf(1e-6, 240, 0.05)


def test_families_are_found_as_benjamini_and_hochberg_find_them(unseen_seed: int) -> None:
    """Against the definition: the smallest rate q at which p / w <= q R / M; R counts families."""
    rng = np.random.default_rng(unseen_seed)
    for _ in range(100):
        p: Floats = rng.random((rng.integers(1, 9), rng.integers(1, 6))) ** rng.integers(1, 6)
        weights = rng.dirichlet(np.ones(p.shape[1]))
        q = family_q_values(p, weights)
        for rate in (0.01, 0.05, 0.2):
            smallest = np.sort(np.min(p / weights, axis=1))
            ranks = np.flatnonzero(smallest <= rate * np.arange(1, len(p) + 1) / len(p))
            discoveries = 0 if not len(ranks) else int(ranks[-1]) + 1
            assert ((q <= rate).any(axis=1)).sum() == discoveries
            assert ((q <= rate) == (p / weights <= rate * discoveries / len(p))).all()
    unknown = np.array([[math.nan, math.nan], [0.01, math.nan]])
    np.testing.assert_allclose(family_q_values(unknown, np.array([0.5, 0.5])), [[math.nan, math.nan], [0.02, math.nan]])


@pytest.fixture(scope="module")
def grown() -> Trends:
    return decode_each(of_shares([0.2, 0.3, 0.4], 1))


def test_trends_of_three_periods_are_loaded_again(grown: Trends) -> None:
    assert Trends.from_dict(json.loads(json.dumps(grown.to_dict()))) == grown
    assert grown.to_dict()["overall"]["a"]["periods"] == weeks(3)[:1]


def test_page_has_the_change_over_all_periods_first(grown: Trends, tmp_path: Path) -> None:
    write_trend_report(grown, tmp_path / "trend.html")
    page = (tmp_path / "trend.html").read_text()
    assert grown.overall is not None
    _, *rows = page.partition('id="changes"')[2].partition("</table>")[0].split("<tr data-i=")
    assert len(rows) == sum(len(test.detected) for test in (grown.overall, *grown.comparisons))
    assert (f">{weeks(3)[0]}<" in rows[0], f">{weeks(3)[-1]}<" in rows[0]) == (True, True)
    assert f"Changed: {len(grown.changed)} of 5 (false discovery rate 5%)." in page


def test_values_of_a_group_are_compared_with_their_neighbours_alone(unseen_seed: int) -> None:
    """They have no order, so the first and the last are not compared, and q-values do not count what is not shown."""
    group, rng = Group("version", ("1.x", "2.x", "other")), np.random.default_rng(unseen_seed)
    metric = replace(SURVEY, group=group)
    counts = [
        simulate(metric.in_group(value), {"a": number, "b": 5_000}, rng, periods=weeks(1))
        for value, number in zip(group.values, (1_000, 3_000, 9_000), strict=True)
    ]
    trends = decode_each(counts, by="version")
    assert trends.overall is None
    assert "a" in trends.changed
    p = np.array([[pair[name].p_value for pair in trends.comparisons] for name in trends.candidates])
    q = np.array([[pair[name].q_value for pair in trends.comparisons] for name in trends.candidates])
    np.testing.assert_array_equal(q, family_q_values(p, np.array([0.5, 0.5])))
    assert Trends.from_dict(trends.to_dict()) == trends


@pytest.mark.slow
def test_equal_values_of_a_group_are_found_to_differ_in_at_most_five_of_a_hundred_trends(unseen_seed: int) -> None:
    """300 metrics with two to five values; more than 36 with a detected change have a chance of 1e-6 at .05."""
    rng, found = np.random.default_rng(unseen_seed), 0
    for number in range(300):
        group = Group("version", (*(f"{i}.x" for i in range(1, 2 + number % 4)), "other"))
        metric = replace(SURVEY, group=group)
        counts = [
            simulate(metric.in_group(value), {"a": 2_000, "b": 3_000}, rng, periods=weeks(1)) for value in group.values
        ]
        found += bool(decode_each(counts, by="version").changed)
    assert found <= binom.isf(1e-6, 300, 0.05)
