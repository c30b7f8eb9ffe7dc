"""`associate`: unbiased tables, honest intervals, the level of the test, and refusals."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from hubbub import Encoder, Metric, Params, Secret, SummaryError, UnaryResponse
from hubbub.errors import ParameterError
from hubbub.mechanisms.subset import SubsetSelection
from hubbub.metrics.kinds import CategoricalKind
from hubbub.summary import Reports
from hubbub.testing import SeededBytes
from hubbub_decoder import Association, CandidateError, PopulationError, associate, decode, simulate
from hubbub_decoder.association.components import Components, Sample
from hubbub_decoder.association.dependence import fit_dependence
from hubbub_decoder.association.margins import fit_point
from hubbub_decoder.association.moments import CohortMoments
from hubbub_decoder.simulation import simulate_reports
from tests.support.enumerate_rows import row_distribution

ALPHA = 1e-6
Table = NDArray[np.float64]


def strings(num_bits: int = 16, num_hashes: int = 1, **response: Any) -> Params:
    chances: dict[str, Any] = {"prob_p": 0.2, "prob_q": 0.8, "prob_f": 0.25, **response}
    return Params(num_bits=num_bits, num_hashes=num_hashes, num_cohorts=8, **chances)


CARRIER, ORIGIN = Metric.string("carrier", strings()), Metric.string("origin", strings())
PAID = Metric.boolean("paid", UnaryResponse(prob_p=0.2, prob_q=0.8, prob_f=0.25))
OS = Metric.categorical("os", ("a", "b", "c"), UnaryResponse(prob_p=0.2, prob_q=0.8, prob_f=0.25))


def rows(number: int, num_ones: int, permanent_q: float = 0.8) -> Metric:
    """Rows of subset selection of so many categories, a, b and so on."""
    mechanism = SubsetSelection(num_values=number + 1, num_ones=num_ones, prob_q=0.7, permanent_q=permanent_q)
    return Metric("rows", CategoricalKind.one_hot([chr(97 + i) for i in range(number)], None, mechanism))


FLIGHT = Metric.joint("flight", (CARRIER, ORIGIN))
CARRIERS, ORIGINS = ["AA", "UA", "DL", "B6"], ["EWR", "JFK", "LGA"]


def population(
    table: Table, first: list[str], second: list[str], size: int, rng: np.random.Generator
) -> dict[Any, int]:
    """Random numbers of clients of each pair."""
    drawn = rng.multinomial(size, table.ravel() / table.sum())
    return dict(zip(itertools.product(first, second), drawn.tolist(), strict=True))


def dependent_table(rows: int, columns: int, rng: np.random.Generator) -> Table:
    """Random joint shares with strong dependence, each at least 1 %."""
    table = rng.dirichlet(np.ones(rows * columns)).reshape(rows, columns) + 0.02
    return np.asarray(table / table.sum())


@pytest.mark.parametrize("part", [OS, rows(3, 1)], ids=["unary", "subset"])
def test_simulated_joint_reports_have_the_law_of_the_encoder(part: Metric, unseen_seed: int) -> None:
    """4,000 reports of one pair from each: bit counts per cohort within chance of each other, and all pairs of bits."""
    metric = Metric.joint("both", (Metric.string("s", strings(8)), part))
    k = metric.num_bits
    rng, random_bytes = np.random.default_rng(unseen_seed), SeededBytes(unseen_seed)
    encoded = [Encoder(metric, Secret.generate(random_bytes), random_bytes).encode(("x", "b")) for _ in range(4000)]
    real, simulated = Reports.from_reports(metric, encoded), simulate(metric, {("x", "b"): 4000}, rng, form=Reports)
    bits = [np.unpackbits(reports.rows, axis=1, count=k, bitorder="little") for reports in (real, simulated)]
    pairs = [(one_bits[:, :, None] & one_bits[:, None, :]).sum(axis=0)[np.triu_indices(k)] for one_bits in bits]
    in_cohort = [reports.bit_counts().ones.ravel() for reports in (real, simulated)]
    for one, other in (*zip(*pairs, strict=True), *zip(*in_cohort, strict=True)):
        assert stats.fisher_exact([[one, 4000 - one], [other, 4000 - other]]).pvalue > ALPHA / 200


@pytest.mark.parametrize(("num_ones", "permanent_q"), [(1, 0.8), (2, 0.5), (2, 1)])
def test_ratios_of_rows_are_those_of_the_enumerated_law(num_ones: int, permanent_q: float) -> None:
    part = rows(4, num_ones, permanent_q)
    mechanism = part.params.mechanism
    assert isinstance(mechanism, SubsetSelection)
    laws = np.array(row_distribution(mechanism, 1))
    packed = [[sum(1 << bit for bit in row)] for row in itertools.combinations(range(5), num_ones)]
    components = Components.of_part(part, None)
    assert components.names == ("a", "b", "c", "d", "(no value)")
    assert components.ratios(np.array(packed, np.uint8), 0) == pytest.approx(laws / laws[-1], rel=1e-12)


def test_no_value_and_unlisted_are_components(unseen_seed: int) -> None:
    """Shares of 10 to 25 % of "no value" and of 200 unlisted strings on both sides, within 6 standard errors."""
    rng = np.random.default_rng(unseen_seed)
    clients: dict[Any, int] = {("AA", "EWR"): 40_000, (None, "JFK"): 30_000, ("UA", None): 20_000}
    clients |= {(f"u{i}", f"w{i}"): 200 for i in range(200)}
    found = associate(simulate(FLIGHT, clients, rng, form=Reports), {"carrier": ["AA", "UA"], "origin": ["EWR", "JFK"]})
    assert found.names == (("AA", "UA", "(unlisted)", "(no value)"), ("EWR", "JFK", "(unlisted)", "(no value)"))
    for pair, count in (
        (("AA", "EWR"), 40),
        (("(no value)", "JFK"), 30),
        (("UA", "(no value)"), 20),
        (("AA", "JFK"), 0),
    ):
        cell = found[pair]
        assert abs(cell.share - count / 130) < 6 * cell.std_error + 1e-3
    assert found.test.p_value < 1e-12
    assert found["AA", "EWR"].given[0].share > 0.9


@pytest.mark.slow
def test_cells_and_conditionals_cover_on_random_tasks(unseen_seed: int) -> None:
    """40 random tasks, of which half have a part of subset selection: the mean squared z of the cells is near 1.

    The cells of a task are dependent. With 4 independent ones in each, the mean is chi-squared(160) / 160, which leaves [.52, 1.63]
    with a probability of 1e-6.
    """
    rng = np.random.default_rng(unseen_seed)
    squares: list[float] = []
    conditional: list[float] = []
    for _ in range(40):
        height, width = int(rng.integers(2, 5)), int(rng.integers(2, 4))
        params = [
            strings(
                int(rng.choice([16, 32])),
                int(rng.integers(1, 3)),
                prob_p=float(rng.uniform(0.1, 0.35)),
                prob_f=float(rng.choice([0, 0.25])),
            )
        ]
        has_noise = params[0].mechanism.has_permanent_noise
        other = [Metric.string("origin", params[0]), rows(width, 1 + (width > 2), 0.8 if has_noise else 1)]
        carrier, origin = Metric.string("carrier", params[0]), other[int(rng.integers(2))]
        first, second = (
            [f"{side}{rng.integers(10**9)}" for _ in range(n)] for side, n in (("a", height), ("b", width))
        )
        listed = {"carrier": first, "origin": second}
        if origin.kind.labels:
            second, listed = list(origin.kind.labels), {"carrier": first}
        metric = Metric.joint("flight", (carrier, origin))
        clients = population(dependent_table(height, width, rng), first, second, 30_000, rng)
        found = associate(simulate(metric, clients, rng, form=Reports), listed)
        for pair, count in clients.items():
            cell = found[pair]
            squares.append(((cell.share - count / 30_000) / cell.std_error) ** 2)
            share = count / sum(n for (one, _), n in clients.items() if one == pair[0])
            half = (cell.given[0].high - cell.given[0].low) / 2 / 1.959964
            conditional.append(((cell.given[0].share - share) / half) ** 2)
    for ratios in (squares, conditional):
        assert 0.5 < np.mean(np.minimum(ratios, 36)) < 1.7


def test_pairing_at_random_within_cohorts_has_the_moments_of_the_test(unseen_seed: int) -> None:
    """The exact null law: over random pairings of dependent reports, the statistic has mean df. 60 pairings, alpha = 1e-6."""
    rng = np.random.default_rng(unseen_seed)
    clients = population(dependent_table(4, 3, rng), CARRIERS, ORIGINS, 4_000, rng)
    clients |= {("heavy", "strong"): 800}  # unlisted on both sides
    reports = simulate(FLIGHT, clients, rng, form=Reports)
    components = (Components.of_part(CARRIER, CARRIERS), Components.of_part(ORIGIN, ORIGINS))
    sample = Sample.from_reports(reports, components)
    points = fit_point(sample, 0), fit_point(sample, 1)
    observed = []
    for _ in range(60):
        order = np.concatenate([rng.permutation(np.arange(a, b)) for a, b in itertools.pairwise(sample.starts)])
        paired = Sample(components, (sample.rows[0], sample.rows[1][order]), sample.starts)
        moments = CohortMoments.of_sample(paired, points)
        test = fit_dependence(moments, (moments.margin(0), moments.margin(1))).test
        observed.append(test.statistic)
    df = test.degrees_of_freedom
    assert abs(np.mean(observed) - df) < stats.norm.isf(ALPHA / 2) * np.sqrt(2 * df / 60) * 1.25


def test_dependence_is_exact_at_known_components() -> None:
    """One cohort, two booleans without noise: D is the covariance, the statistic N - 1 times the squared correlation."""
    exact = {"prob_p": 0.0, "prob_q": 1.0, "prob_f": 0.0}
    metric = Metric.joint(
        "two", (Metric.boolean("a", UnaryResponse(**exact)), Metric.boolean("b", UnaryResponse(**exact)))
    )
    table = np.array([[400, 100], [200, 300]])
    rows = np.repeat([0b11, 0b01, 0b10, 0b00], table.ravel()).astype(np.uint8)[:, None]
    found = associate(Reports(metric, np.zeros(1000, np.uint8), rows))
    # variances / (N - 1)
    assert np.allclose(found.joint.shares, table / 1000 - np.array([[1, -1], [-1, 1]]) * 0.1 / 1000)
    correlation = (0.4 - 0.5 * 0.6) / np.sqrt(0.25 * 0.24)
    assert found.test.statistic == pytest.approx(999 * correlation**2, rel=1e-6)
    assert found["true", "true"].given[0].share == pytest.approx(0.8, abs=1e-3)
    assert found.joint.guess.sum() == pytest.approx(1)


def test_three_parts_are_associated_in_pairs(unseen_seed: int) -> None:
    """The third part depends on the first only."""
    metric, rng = Metric.joint("three", (PAID, ORIGIN, OS)), np.random.default_rng(unseen_seed)
    clients: dict[Any, int] = {("true", place, "a"): 4000 for place in ORIGINS} | {
        ("false", place, "b"): 4000 for place in ORIGINS
    }
    reports = simulate(metric, clients, rng, form=Reports)
    dependent = associate(reports, parts=("paid", "os"))
    assert dependent.test.p_value < 1e-9
    assert dependent["true", "a"].guess > 0.4
    assert associate(reports, {"origin": ORIGINS}, parts=("paid", "origin")).test.p_value > ALPHA


def test_parts_decode_as_metrics_of_their_own(unseen_seed: int) -> None:
    rng = np.random.default_rng(unseen_seed)
    reports = simulate(FLIGHT, {("AA", "EWR"): 6000, ("UA", "JFK"): 4000}, rng, form=Reports)
    found = decode(reports.part("carrier"), ["AA", "UA"])
    assert abs(found["AA"].share - 0.6) < 6 * found["AA"].std_error
    with pytest.raises(SummaryError, match="hubbub associate"):
        decode(reports, ["AA"])


def test_guess_is_a_distribution_and_near_independence_without_dependence(unseen_seed: int) -> None:
    rng = np.random.default_rng(unseen_seed)
    clients = population(np.outer([4, 3, 2, 1], [3, 2, 1]) / 60, CARRIERS, ORIGINS, 20_000, rng)
    found = associate(simulate(FLIGHT, clients, rng, form=Reports), {"carrier": CARRIERS, "origin": ORIGINS})
    guess = found.joint.guess
    assert guess.min() >= 0
    assert guess.sum() == pytest.approx(1)
    assert (guess.sum(axis=1)[-2:] < 8 * found.margins[0].std_errors[-2:]).all()  # unlisted and no value are absent
    plain = np.abs(found.joint.shares - np.outer(*(margin.shares for margin in found.margins))).sum() / 2
    assert found.total_variation < plain
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"candidates": {"origin": ORIGINS}}, "carrier: a string part needs candidates"),
        ({"candidates": {"carrier": CARRIERS, "os": ["a"]}}, "candidates were given for 'os'"),
        (
            {"candidates": {"carrier": [f"c{i}" for i in range(80)], "origin": [f"o{i}" for i in range(80)]}},
            "more than 2,500",
        ),
    ],
)
def test_unusable_candidates_are_refused(arguments: dict[str, Any], message: str) -> None:
    reports = simulate(FLIGHT, {("AA", "EWR"): 200}, np.random.default_rng(0), form=Reports)
    with pytest.raises(CandidateError, match=message):
        associate(reports, **arguments)


def test_candidates_with_the_same_bits_are_refused() -> None:
    params = Params(num_bits=8, num_hashes=1, num_cohorts=1, prob_p=0.2, prob_q=0.8, prob_f=0.5)
    metric = Metric.joint("flight", (Metric.string("carrier", params), PAID))
    reports = simulate(metric, {("AA", "true"): 200}, np.random.default_rng(0), form=Reports)
    with pytest.raises(CandidateError, match="have the same bits in every cohort"):
        associate(reports, {"carrier": [f"c{i}" for i in range(9)]})


def test_other_reports_are_refused() -> None:
    rng = np.random.default_rng(0)
    reports = simulate(FLIGHT, {("AA", "EWR"): 200}, rng, form=Reports)
    listed = {"carrier": CARRIERS, "origin": ORIGINS}
    single = Reports(
        PAID, *(np.concatenate(parts) for parts in zip(*simulate_reports(PAID, {"true": 200}, rng), strict=True))
    )
    twice = Reports(FLIGHT, reports.cohorts, reports.rows, ["2026-01-01", "2026-01-02"])
    for given, options, message in (
        (reports.bit_counts(), {}, "--keep-reports"),
        (single, {}, "a boolean metric has no parts"),
        (twice, {}, "of 2 periods"),
        (reports, {"parts": ("carrier",)}, "parts must be two of carrier, origin, got carrier"),
        (reports, {"confidence": 1.0}, "confidence must be a number"),
        (reports, {"target": "all"}, "target must be"),
        (simulate(FLIGHT, {("AA", "EWR"): 99}, rng, form=Reports), {}, "only 99 reports"),
    ):
        with pytest.raises((SummaryError, ParameterError), match=message):
            associate(given, listed, **options)  # type: ignore[arg-type]
    assert isinstance(associate(twice, listed, same_clients=False), Association)


@pytest.mark.parametrize(
    ("population", "message"),
    [
        ({("AA",): 3}, "must have 2 values"),
        ({("AA", "EWR"): -1}, "must be an integer >= 0"),
        ({("AA", "EWR"): 1.5}, "must be an integer >= 0"),
    ],
)
def test_invalid_joint_populations_are_refused(population: Any, message: str) -> None:
    with pytest.raises((PopulationError, ParameterError), match=message):
        simulate(FLIGHT, population, np.random.default_rng(0), form=Reports)
