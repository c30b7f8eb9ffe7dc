"""Figures of the tables in docs/explanation/privacy.md, recomputed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import numpy as np
import pytest

from hubbub import Metric, Params, Policy, UnaryResponse
from hubbub.privacy import central_epsilon, effective_group_size, epsilon, privacy_figures
from hubbub.privacy.linkability import mutual_information
from hubbub.privacy.pricing import shown_epsilon
from tests.support.attack_models import bits_that_differ, loss_of_a_change, share_matched
from tests.support.enumerate_mechanism import Floats
from tests.support.paths import DOCS

PAGE = (DOCS / "explanation" / "privacy.md").read_text()


def rows_of(header: str) -> Iterator[list[str]]:
    """Yield the cells of each row of the table with this header."""
    (table,) = re.findall(rf"^\| {re.escape(header)}.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE, flags=re.MULTILINE)
    for row in table.splitlines():
        yield [cell.strip() for cell in row.strip("|").split("|")]


def params_of(shape: str, probabilities: str) -> Params:
    *pq, response = probabilities.partition(" (")[0].split(", ")
    p, q = map(float, pq)
    if "/" in response:
        b, a = map(float, response.split(" / "))
        k, h = map(int, shape.split(", "))
        return Params(num_bits=k, num_hashes=h, num_cohorts=64, prob_p=p, prob_q=q, permanent_p=b, permanent_q=a)
    f = float(response)
    if shape == "boolean":
        return Params.one_hot(1, prob_p=p, prob_q=q, prob_f=f)
    k, h = (int(number) for number in shape.split(", "))
    return Params(num_bits=k, num_hashes=h, num_cohorts=64, prob_p=p, prob_q=q, prob_f=f)


def is_rounded(shown: str, computed: float) -> bool:
    """Return whether a printed figure equals the computed one, rounded to its last digit."""
    digits = len(shown.partition(".")[2])
    return abs(float(shown) - computed) <= 0.5 * 10.0**-digits + 1e-9


def secret_losses(params: Params) -> tuple[float, float]:
    p, q = params.mechanism.prob_p, params.mechanism.prob_q
    half = bits_that_differ(params) / 2 * math.log(q * (1 - p) / (p * (1 - q)))
    return half, half * (q - p)


EPSILON = list(rows_of("k, h | p, q, f (or permanent_p / permanent_q) | eps of 1 report"))
LIFETIME = list(rows_of("metric | p, q, f | hold"))
UNBOUNDED = list(rows_of("k, h | p, q, f | a change"))
CROWD = list(rows_of("reports of a cohort"))


def test_privacy_page_has_the_tables() -> None:
    assert (len(EPSILON), len(LIFETIME), len(UNBOUNDED), len(CROWD)) == (6, 7, 4, 2)


@pytest.mark.parametrize("row", EPSILON, ids=lambda row: " ".join(row[:2]))
def test_printed_epsilon_after_t_reports_is_current(row: list[str]) -> None:
    params = params_of(*row[:2])
    for shown, t in zip(row[2:], (1, 2, 7, 30, math.inf), strict=True):
        assert is_rounded(shown, epsilon(params, t)), (t, shown, epsilon(params, t))


@pytest.mark.parametrize("row", LIFETIME, ids=lambda row: " ".join(row[:3]))
def test_printed_lifetime_epsilon_is_current(row: list[str]) -> None:
    params, hold = params_of(*row[:2]), None if row[2] == "none" else int(row[2])
    if row[0] == "boolean":
        metric = Metric.boolean(
            "m",
            UnaryResponse(
                prob_p=params.mechanism.prob_p, prob_q=params.mechanism.prob_q, prob_f=params.mechanism.prob_f
            ),
            hold=hold,
        )
    else:
        metric = Metric.string("m", params, hold=hold)
    figures = privacy_figures(metric, Policy())
    unit = {"period": "reports"}.get(figures.unit, f"{figures.unit}s")
    epsilons = (figures.epsilon_report, figures.epsilon_unit, figures.epsilon_enrollment, figures.epsilon_lifetime)
    report, per_unit, enrollment, lifetime = (shown_epsilon(epsilon).removeprefix("0") for epsilon in epsilons)
    units = [f"{number} {unit}" for number in (figures.units_enrollment, figures.units_lifetime)]
    assert row[3:] == [report, per_unit, units[0], enrollment, units[1], lifetime]


def test_printed_central_epsilon_is_current() -> None:
    params = params_of("128, 2", ".5, .75, .5")
    for row, periods in zip(CROWD, (1, 30), strict=True):
        for shown, n in zip(row[1:], (100, 1_000, 10_000, 200_000), strict=True):
            found, digits = central_epsilon(params, n, 1e-9, periods), len(shown.partition(".")[2])
            assert 0 <= float(shown) - found < 10.0**-digits, (n, periods)


@pytest.mark.parametrize("row", UNBOUNDED, ids=lambda row: " ".join(row[:2]))
def test_printed_losses_beyond_epsilon_are_current(row: list[str], unseen_seed: int) -> None:
    """Losses to the last digit; matched shares within five standard errors of 1,000 clients, and 0.5 %."""
    params = params_of(*row[:2])
    shown = [re.findall(r"[\d.]+", cell) for cell in row[2:]]
    for (worst, mean), t in zip(shown[:3], (1, 7, 30), strict=True):
        loss = loss_of_a_change(params, t)
        assert is_rounded(worst, loss.worst), (t, loss)
        assert is_rounded(mean, loss.mean), (t, loss)
    for figure, computed in zip(shown[3], secret_losses(params), strict=True):
        assert is_rounded(figure, computed), computed
    assert is_rounded(shown[4][0], effective_group_size(params))
    rng = np.random.default_rng(unseen_seed)
    for (percent,), t in zip(shown[5:], (1, 7), strict=True):
        share = float(percent) / 100
        assert abs(share_matched(params, 1000, t, rng) - share) <= 5 * math.sqrt(share * (1 - share) / 1000) + 0.005


def test_figures_in_the_text_are_current() -> None:
    assert (
        f"$e^{{{mutual_information(params_of('64, 1', '.25, .75, .25'), math.inf):.0f}}}$ at $k$ = 64, $f$ = .25"
        in PAGE
    )


def test_secret_reveals_the_value_of_one_report(unseen_seed: int) -> None:
    """k = 128, h = 2, p = 0.25, q = 0.75, f = 0.5, 50,000 candidates: the true candidate is the likeliest in 83 % of 400 reports.

    The test requires half of 60 reports. At 80 %, fewer have probability 2e-8.
    """
    params, rng = params_of("128, 2", ".25, .75, .5"), np.random.default_rng(unseen_seed)
    ranks = [rank_with_the_secret(params, 50_000, rng) for _ in range(60)]
    assert sum(rank == 0 for rank in ranks) >= 30


def rank_with_the_secret(params: Params, candidates: int, rng: np.random.Generator) -> int:
    """Return the number of candidates with permanent bits nearer to a report than those of the true candidate (p = 1 - q)."""
    words = rng.integers(0, 1 << 64, (3, candidates, 2), dtype=np.uint64)
    prr = words[0] & words[1]  # f = 1/2: g = 1/4; the two true bits of each change little
    flips = words[2][0] & rng.integers(0, 1 << 64, 2, dtype=np.uint64)  # 1 - q = 1/4
    far: Floats = np.bitwise_count(prr ^ (prr[0] ^ flips)).sum(axis=1)
    return int((far < far[0]).sum())
