"""`associate` with three parts: the table of three parts, its margins and conditional shares, the test of mutual independence, and refusals."""

from __future__ import annotations

import csv
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image
from scipy import stats

from hubbub import Metric, SummaryError, UnaryResponse
from hubbub.cli import main
from hubbub.summary import Reports, write_reports
from hubbub_decoder import CandidateError, associate, simulate
from hubbub_decoder.association.components import Components, Sample
from hubbub_decoder.association.dependence import fit_dependence
from hubbub_decoder.association.joint_shares import Ratio
from hubbub_decoder.association.margins import contrasts, fit_point
from hubbub_decoder.association.moments import CohortMoments, subsets
from tests.decoder.association.test_association import ALPHA, CARRIERS, FLIGHT, OS, PAID, strings

CHANCES: dict[str, Any] = {"prob_p": 0.2, "prob_q": 0.8, "prob_f": 0.25}
TRIP = Metric.joint("trip", (Metric.string("carrier", strings()), PAID, OS))
BITS = Metric.joint("bits", tuple(Metric.boolean(name, UnaryResponse(**CHANCES)) for name in "abc"))
VALUES = ["true", "false"]


def counts_of(table: Any, rng: np.random.Generator, size: int, *names: list[str]) -> dict[Any, int]:
    """Random numbers of clients of each combination."""
    drawn = rng.multinomial(size, np.ravel(table) / np.sum(table))
    return dict(zip(itertools.product(*names), drawn.tolist(), strict=True))


def test_three_way_table_is_exact_without_noise() -> None:
    """Three booleans without noise, one cohort: the table of the counts, and statistics by their formulas."""
    exact: dict[str, Any] = {"prob_p": 0.0, "prob_q": 1.0, "prob_f": 0.0}
    metric = Metric.joint("three", tuple(Metric.boolean(name, UnaryResponse(**exact)) for name in "abc"))
    table = np.array([[[300, 100], [50, 150]], [[80, 120], [60, 140]]])
    rows = np.repeat([0b111, 0b011, 0b101, 0b001, 0b110, 0b010, 0b100, 0b000], table.ravel()).astype(np.uint8)
    found = associate(Reports(metric, np.zeros(1000, np.uint8), rows[:, None]))
    assert np.abs(found.joint.shares - table / 1000).max() < 5e-4  # divisors N - 1 and (N - 1)(N - 2) / N in place of N
    bits = np.array([[row & 1, row >> 1 & 1, row >> 2] for row in rows]) - np.array([0.6, 0.6, 0.49])
    expected = 0.0
    for subset in subsets((0, 1, 2)):
        weight = 999 * (998 / 1000 if len(subset) == 3 else 1)
        expected += bits[:, subset].prod(axis=1).sum() ** 2 / weight / np.prod(bits[:, subset].var(axis=0, ddof=1))
    assert found.test.statistic == pytest.approx(expected, rel=1e-6)
    assert found.test.degrees_of_freedom == 4
    assert found["true", "false", "false"].given[1].share == pytest.approx(0.75, abs=2e-3)
    assert found["true", "false", "false"].given[0].share == pytest.approx(0.25, abs=1e-3)
    assert found.joint.guess.sum() == pytest.approx(1)


def test_products_of_scores_are_centred_in_each_cohort() -> None:
    """Sums of products of two and of three centred scores, at shares other than those of the reports."""
    rng = np.random.default_rng(4)
    clients = counts_of(rng.dirichlet(np.ones(24)), rng, 600, CARRIERS, VALUES, ["a", "b", "c"])
    components = tuple(
        Components.of_part(part, CARRIERS if part.name == "carrier" else None) for part in TRIP.components
    )
    sample = Sample.from_reports(simulate(TRIP, clients, rng, form=Reports), components)
    points = [np.full(len(component), 1 / len(component)) for component in components]
    moments = CohortMoments.of_sample(sample, points)
    for cohort, blocks in enumerate(zip(*map(sample.blocks, range(3)), strict=True)):
        scores = [contrasts(len(z)).T @ (ratios / (z @ ratios)) for z, (_, ratios) in zip(points, blocks, strict=True)]
        a, b, c = (matrix - matrix.mean(axis=1, keepdims=True) for matrix in scores)
        assert np.allclose(moments.crosses[0, 2][cohort], a @ c.T)
        assert np.allclose(moments.crosses[0, 1, 2][cohort], np.einsum("an,bn,cn->abc", a, b, c))


def test_three_way_margins_are_the_tables_of_pairs(unseen_seed: int) -> None:
    rng = np.random.default_rng(unseen_seed)
    clients = counts_of(rng.dirichlet(np.ones(24)), rng, 20_000, CARRIERS, VALUES, ["a", "b", "c"])
    reports = simulate(TRIP, clients, rng, form=Reports)
    found = associate(reports, {"carrier": CARRIERS})
    for pair, axis in zip(found.pairs, (2, 1, 0), strict=True):
        assert np.allclose(found.joint.shares.sum(axis=axis), pair.joint.shares)
    alone = associate(reports, {"carrier": CARRIERS}, parts=("carrier", "os"))
    assert np.allclose(alone.joint.shares, found.pairs[1].joint.shares)
    assert np.allclose(alone.joint.std_errors, found.pairs[1].joint.std_errors, rtol=0.05)
    assert found.joint.guess.min() >= 0
    json.dumps(found.to_dict(), allow_nan=False)


def test_parity_is_pairwise_independent_and_not_mutually(unseen_seed: int) -> None:
    """c is true if a and b are equal: each pair is independent, and c is certain given both."""
    rng = np.random.default_rng(unseen_seed)
    table = [1 if (a == b) == (c == "true") else 0 for a, b, c in itertools.product(VALUES, VALUES, VALUES)]
    found = associate(simulate(BITS, counts_of(table, rng, 40_000, *[VALUES] * 3), rng, form=Reports))
    assert found.test.p_value < 1e-9
    assert all(pair.test.p_value > ALPHA for pair in found.pairs)
    cell = found["true", "true", "true"]
    assert abs(cell.share - 0.25) < 6 * cell.std_error + 0.02
    assert cell.given[1].share > 0.8
    assert cell.guess > 0.2
    assert found.total_variation > 0.3


@pytest.mark.slow
def test_three_way_cells_and_conditionals_cover_on_random_tasks(unseen_seed: int) -> None:
    """30 random tasks: the mean squared z of the cells is near 1.

    With 4 independent cells in each task the mean is chi-squared(120) / 120, which leaves [.47, 1.75] with a probability of 1e-6.
    """
    rng = np.random.default_rng(unseen_seed)
    squares, covered = [], []
    for _ in range(30):
        params = strings(
            32, int(rng.integers(1, 3)), prob_p=float(rng.uniform(0.1, 0.25)), prob_f=float(rng.choice([0, 0.25]))
        )
        chances: dict[str, Any] = {"prob_p": params.mechanism.prob_p, "prob_q": 0.8, "prob_f": params.mechanism.prob_f}
        metric = Metric.joint(
            "trip",
            (
                Metric.string("a", params),
                Metric.boolean("b", UnaryResponse(**chances)),
                Metric.categorical("c", ("x", "y"), UnaryResponse(**chances)),
            ),
        )
        names = [f"a{rng.integers(10**9)}" for _ in range(int(rng.integers(2, 4)))]
        clients = counts_of(rng.dirichlet(np.full(len(names) * 4, 2.0)), rng, 30_000, names, VALUES, ["x", "y"])
        found = associate(simulate(metric, clients, rng, form=Reports), {"a": names})
        for values, count in clients.items():
            cell = found[values]
            squares.append(((cell.share - count / 30_000) / cell.std_error) ** 2)
            given = sum(number for other, number in clients.items() if other[0] == values[0])
            covered.append(cell.given[0].low <= count / given <= cell.given[0].high)
    assert 0.45 < np.mean(np.minimum(squares, 36)) < 1.8
    assert np.mean(covered) > 0.8


def test_pairing_three_parts_at_random_has_the_moments_of_the_test(unseen_seed: int) -> None:
    """Over random pairings of all parts within the cohorts the statistic has mean df. 60 pairings, alpha = 1e-6."""
    rng = np.random.default_rng(unseen_seed)
    clients = counts_of(rng.dirichlet(np.ones(24)), rng, 4_000, CARRIERS, VALUES, ["a", "b", "c"])
    clients |= {("heavy", "true", "a"): 800}
    reports = simulate(TRIP, clients, rng, form=Reports)
    components = tuple(
        Components.of_part(part, CARRIERS if part.name == "carrier" else None) for part in TRIP.components
    )
    sample = Sample.from_reports(reports, components)
    points, statistics, freedom = [fit_point(sample, part) for part in range(3)], [], 0
    for _ in range(60):
        orders = [
            np.concatenate([rng.permutation(np.arange(a, b)) for a, b in itertools.pairwise(sample.starts)])
            for _ in range(3)
        ]
        rows = tuple(part[order] for part, order in zip(sample.rows, orders, strict=True))
        moments = CohortMoments.of_sample(Sample(components, rows, sample.starts), points)
        margins = [moments.margin(part) for part in range(3)]
        tests = [fit_dependence(moments, margins, subset).test for subset in subsets((0, 1, 2))]
        statistics.append(sum(test.statistic for test in tests))
        freedom = sum(test.degrees_of_freedom for test in tests)
    assert abs(np.mean(statistics) - freedom) < stats.norm.isf(ALPHA / 2) * np.sqrt(2 * freedom / 60) * 1.25


def test_fieller_interval_has_its_ends_at_z_standard_errors() -> None:
    cells, sums = np.array([0.1, 0.1, -0.01]), np.array([0.3, 0.01, 0.3])
    ratio = Ratio(cells, sums, np.full(3, 4e-4), np.full(3, 1e-4), np.full(3, 9e-4))
    low, high = ratio.interval(1.96)
    for end in (low, high):
        distance = (cells - end * sums) / np.sqrt(4e-4 - 2 * end * 1e-4 + end**2 * 9e-4)
        assert np.allclose(np.abs(distance[[0, 2]]), 1.96)
    assert np.isnan([low[1], high[1]]).all()  # the condition has a share of a third of its standard error
    assert low[0] < ratio.shares[0] < high[0]


@pytest.mark.parametrize(
    ("metric", "options", "error", "message"),
    [
        (
            FLIGHT,
            {"parts": ("carrier", "origin", "os")},
            SummaryError,
            "parts must be two of carrier, origin, got carrier",
        ),
        (TRIP, {"parts": ("carrier", "paid", "paid")}, SummaryError, "parts must be two or three of carrier, paid, os"),
        (TRIP, {}, CandidateError, "carrier: a string part needs candidates"),
        (TRIP, {"candidates": {"carrier": [f"c{i}" for i in range(130)]}}, CandidateError, "more than 1,000"),
    ],
)
def test_unusable_arguments_of_three_parts_are_refused(
    metric: Metric, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    names = ("AA", "EWR") if metric is FLIGHT else ("AA", "true", "a")
    reports = simulate(metric, {names: 200}, np.random.default_rng(0), form=Reports)
    with pytest.raises(error, match=message):
        associate(reports, **options)


def test_command_shows_three_parts(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    clients: dict[Any, int] = {("AA", "true", "a"): 9000, ("AA", "false", "b"): 6000, ("UA", "true", "b"): 9000}
    reports = simulate(TRIP, clients, rng, form=Reports)
    write_reports(reports, tmp_path / "trip.parquet")
    (tmp_path / "carriers.txt").write_text("AA\nUA\n")
    listed = f"carrier={tmp_path / 'carriers.txt'}"
    arguments = ["associate", str(tmp_path / "trip.parquet"), "--part-candidates", listed]
    shown = CliRunner().invoke(
        main, [*arguments, "--out", str(tmp_path / "cells.csv"), "--plot", str(tmp_path / "map.png"), "--all"]
    )
    assert shown.exit_code == 0, shown.output
    text = " ".join(shown.stdout.split())
    assert "guessed share of os for each carrier and paid" in text
    assert "carrier, paid and os are not mutually independent: score test of mutual independence" in text
    assert "paid and os depend on each other" in text
    assert "AA x true x a" in text
    with (tmp_path / "cells.csv").open() as lines:
        assert len(list(csv.DictReader(lines))) == 4 * 2 * 4
    with Image.open(tmp_path / "map.png") as image:
        assert image.width > 200
    found = json.loads(CliRunner().invoke(main, [*arguments, "--json"]).stdout)
    assert found["parts"] == ["carrier", "paid", "os"]
    assert found["independence"]["p_value"] < 1e-9
    assert [pair["parts"] for pair in found["pairs"]] == [["carrier", "paid"], ["carrier", "os"], ["paid", "os"]]
    pair = json.loads(CliRunner().invoke(main, [*arguments, "--parts", "os,carrier", "--json"]).stdout)
    assert pair["parts"] == ["os", "carrier"]


def test_three_way_association_describes_itself() -> None:
    found = associate(simulate(BITS, {("true",) * 3: 300, ("false",) * 3: 300}, np.random.default_rng(2), form=Reports))
    assert repr(found).startswith("<Association of a, b and c: 600 reports")
    page = found._repr_html_()
    assert "a, b and c are not mutually independent" in " ".join(page.split())
    assert page.count("score test of independence") == 3
