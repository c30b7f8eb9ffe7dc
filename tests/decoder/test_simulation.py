"""Simulated reports have the distribution of the client's reports: bits, pairs of bits, patterns and cohorts."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2_contingency, chisquare, norm

from hubbub import Buckets, Discovery, Encoder, Estimand, Metric, Params, Secret, UnaryResponse
from hubbub.errors import ParameterError
from hubbub.mechanisms.bernoulli import draw_bits
from hubbub.metrics.kinds import KindWord
from hubbub.summary import BitCounts, PatternCounts, Reports
from hubbub.testing import SeededBytes
from hubbub_decoder import PopulationError
from hubbub_decoder.model.bit_covariance import report_covariance
from hubbub_decoder.model.design_matrix import design_matrix
from hubbub_decoder.model.random_string import RandomStringMoments
from hubbub_decoder.model.repetition import epoch_numbers
from hubbub_decoder.simulation import (
    consecutive_periods,
    simulate,
    simulate_each_period,
    simulate_reports,
    simulate_two_periods,
)
from tests.support import google_md5

ALPHA = 1e-6

STRING = Metric.string("s", Params(num_bits=8, num_hashes=2, num_cohorts=4, prob_p=0.25, prob_q=0.8, prob_f=0.25))
ASYMMETRIC = Metric.string(
    "s",
    Params(num_bits=8, num_hashes=2, num_cohorts=4, prob_p=0.25, prob_q=0.8, permanent_p=0.1, permanent_q=0.6),
)
OS = Metric.categorical("os", ("a", "b", "c"), UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5))
YES = Metric.boolean("yes", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5))


def client_counts(metric: Metric, population: dict[str, int], no_value: int, seed: int) -> PatternCounts:
    """Pattern counts of one report per value, each from a new client with its own secret."""
    random_bytes = SeededBytes(seed)
    values: list[str | bool | None] = [value for value, count in population.items() for _ in range(count)]
    if metric.kind.word is KindWord.BOOLEAN:
        values = [value == "true" for value in values]
    values += [None] * no_value
    return PatternCounts.from_reports(
        metric, [Encoder(metric, Secret.generate(random_bytes), random_bytes).encode(value) for value in values]
    )


@pytest.mark.parametrize(
    ("metric", "population"),
    [
        (STRING, {"x": 9000, "y": 6000, "z": 0}),
        (ASYMMETRIC, {"x": 9000, "y": 6000}),
        (OS, {"a": 6000, "c": 3000}),
        (YES, {"true": 3000, "false": 3000}),
    ],
    ids=["string", "asymmetric", "categorical", "boolean"],
)
def test_pattern_counts_agree_with_the_clients(metric: Metric, population: dict[str, int], unseen_seed: int) -> None:
    """Two-sample chi-squared over cohort x pattern at alpha = 1e-6; every cell expects at least 5."""
    client = client_counts(metric, population, 1000, unseen_seed)
    ours = simulate(metric, population, np.random.default_rng(unseen_seed), no_value=1000, form=PatternCounts)
    assert ours.num_reports == client.num_reports
    cells = np.stack([client.counts.ravel(), ours.counts.ravel()])
    rare = cells.sum(axis=0) < 10
    pooled = np.column_stack([cells[:, ~rare], cells[:, rare].sum(axis=1)])
    assert chi2_contingency(pooled[:, pooled.sum(axis=0) > 0]).pvalue > ALPHA


def test_bit_pairs_agree_with_the_clients(unseen_seed: int) -> None:
    """Chi-squared test for each cohort and pair of bits (4 x 28 tests, 2 x 4 cells), alpha = 1e-6 in total."""
    population = {"x": 9000, "y": 6000}
    client = client_counts(STRING, population, 0, unseen_seed).counts
    ours = simulate(STRING, population, np.random.default_rng(unseen_seed), form=PatternCounts).counts
    patterns = np.arange(256)
    for cohort, (i, j) in itertools.product(range(4), itertools.combinations(range(8), 2)):
        both = (patterns >> i & 1) * 2 + (patterns >> j & 1)
        tables = [np.bincount(both, weights=counts[cohort], minlength=4) for counts in (client, ours)]
        assert chi2_contingency(np.stack(tables)).pvalue > ALPHA / (4 * 28), (cohort, i, j)


class EveryFraction:
    """Fake numpy generator that returns every fraction of 16 binary digits once."""

    def randint(self, _high: int, *, size: tuple[int, ...], dtype: type) -> NDArray[np.uint8]:
        return np.repeat(np.arange(256, dtype=dtype), 256).reshape(size)

    def random(self, num: int) -> NDArray[np.float64]:
        return np.arange(num) / 256


@pytest.mark.parametrize("numerator", [0, 1, 255, 256, 257, 0x5A5A, 0xFF00, 0xFFFF, 0x10000])
def test_draw_bits_has_the_exact_probability(numerator: int) -> None:
    bits = draw_bits(numerator / 2**16, (2**16,), cast(np.random.RandomState, EveryFraction()))
    assert np.count_nonzero(bits) == numerator


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["murmur3-v1", "google-md5"])
def test_bit_counts_have_the_mean_and_covariance_of_the_decoder_model(scheme: str, unseen_seed: int) -> None:
    """5000 summaries of 300 reports: means and covariances of 3 cohorts x 8 bits, alpha = 1e-6 in total.

    Cohort sizes are random, so counts are divided by the cohort's number of reports.
    """
    params = Params(num_bits=8, num_hashes=2, num_cohorts=3, prob_p=0.2, prob_q=0.9, prob_f=0.25, hash_scheme=scheme)
    metric, rng, n = Metric.string("s", params), np.random.default_rng(unseen_seed), 5000
    population = {"x": 150, "y": 60, "z": 30}
    drawn = [simulate(metric, population, rng, no_value=60) for _ in range(n)]
    shares = np.array([0.5, 0.2, 0.1])
    design = design_matrix(list(population), params)
    tests = 3 * (8 + 64)
    for cohort, bits in enumerate(design.blocks()):
        deviation = np.stack([(d.ones[cohort] - d.reports[cohort] * _expected(bits @ shares, params)) for d in drawn])
        scaled = deviation / np.sqrt([d.reports[cohort] for d in drawn])[:, None]
        covariance = report_covariance(bits, shares, 0, RandomStringMoments.from_params(params), params)
        # cohorts are drawn without replacement from 300 reports: the variance of a mean is 1 - 1/3 of a population's
        fixed = covariance - (1 / 3) * (params.mechanism.q_star - params.mechanism.p_star) ** 2 * _value_covariance(
            bits.toarray(), shares
        )
        spread = np.sqrt(np.diag(fixed))
        z = scaled.mean(axis=0) / (spread / np.sqrt(n))
        assert np.abs(z).max() < norm.isf(ALPHA / 2 / tests)
        error = np.sqrt((np.outer(spread**2, spread**2) + fixed**2) / n)
        z = (scaled.T @ scaled / n - fixed) / error
        assert np.abs(z).max() < norm.isf(ALPHA / 2 / tests)


def _expected(mu: np.ndarray, params: Params) -> np.ndarray:
    return params.mechanism.p_star + (params.mechanism.q_star - params.mechanism.p_star) * mu


def _value_covariance(bits: np.ndarray, shares: np.ndarray) -> np.ndarray:
    mu = bits @ shares
    return np.asarray((bits * shares) @ bits.T - np.outer(mu, mu))


def test_cohorts_are_uniform(unseen_seed: int) -> None:
    """Chi-squared at alpha = 1e-6, 64 cohorts, 1e6 reports, for bit counts and pattern counts."""
    params = Params(num_bits=8, num_hashes=1, num_cohorts=64, prob_p=0.25, prob_q=0.75, prob_f=0)
    metric, rng = Metric.string("s", params), np.random.default_rng(unseen_seed)
    assert chisquare(simulate(metric, {"x": 1_000_000}, rng).reports).pvalue > ALPHA
    assert chisquare(simulate(metric, {"x": 1_000_000}, rng, form=PatternCounts).counts.sum(axis=1)).pvalue > ALPHA


def test_number_of_reports_does_not_depend_on_the_block_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hubbub_decoder.simulation.CELLS_PER_BLOCK", 100)
    population = {f"v{i}": i for i in range(40)}
    rng = np.random.default_rng(0)
    total = sum(population.values()) + 7
    assert simulate(STRING, population, rng, no_value=7).num_reports == total
    assert simulate(STRING, population, rng, no_value=7, form=PatternCounts).num_reports == total
    chunks = list(simulate_reports(STRING, population, rng, no_value=7))
    assert sum(len(cohorts) for cohorts, _ in chunks) == total
    assert max(len(cohorts) for cohorts, _ in chunks) <= 100 // 8


def test_report_without_noise_is_the_bloom_filter() -> None:
    params = Params(num_bits=12, num_hashes=3, num_cohorts=4, prob_p=0, prob_q=1, prob_f=0)
    counts = simulate(Metric.string("s", params), {"x": 1000}, np.random.default_rng(0))
    bits = design_matrix(["x"], params).matrix.toarray().reshape(4, 12)
    assert np.array_equal(counts.ones, bits * counts.reports[:, None])
    patterns = simulate(
        Metric.string("s", params), {"x": 1000}, np.random.default_rng(0), form=PatternCounts
    ).bit_counts()
    assert np.array_equal(patterns.ones, bits * patterns.reports[:, None])


def test_same_seed_gives_the_same_summary() -> None:
    one, same, other = (simulate(STRING, {"x": 1000}, np.random.default_rng(s)) for s in (1, 1, 2))
    assert one == same != other
    assert isinstance(one, BitCounts)


def test_unknown_category_becomes_other_or_is_rejected() -> None:
    with_other = Metric.categorical("os", ("a", "rest"), UnaryResponse(prob_p=0, prob_q=1, prob_f=0), other="rest")
    counts = simulate(with_other, {"a": 3, "b": 4, "c": 5}, np.random.default_rng(0))
    assert counts.ones.tolist() == [[3, 9]]
    with pytest.raises(PopulationError, match=r"'b' is not a value of this categorical metric \(a, b_\)"):
        simulate(
            Metric.categorical("os", ("a", "b_"), UnaryResponse(prob_p=0, prob_q=1, prob_f=0)),
            {"b": 1},
            np.random.default_rng(0),
        )
    with pytest.raises(ParameterError, match="must be an integer >= 0, got -1"):
        simulate(STRING, {"b": -1}, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("metric", "population", "no_value", "message"),
    [
        ("s", {"a": 1}, 0, "metric must be a Metric, got str"),
        (STRING, {"a": 1.5}, 0, "must be an integer >= 0, got 1.5"),
        (STRING, {1: 1}, 0, "must be a string, got 1"),
        (STRING, 5, 0, "must be a dict .* got int"),
        (STRING, "abc", 0, "must be a dict .* got str"),
        (STRING, ["a", 5], 0, "must be a string, a bool or None, got 5"),
        (STRING, {"a": 1}, -1, "no_value must be an integer >= 0, got -1"),
        (STRING, {"a": 1}, 1.0, "no_value must be an integer >= 0, got 1.0"),
    ],
)
@pytest.mark.parametrize("form", [BitCounts, PatternCounts, Reports])
def test_rejects_arguments_of_the_wrong_type(
    form: Any, metric: Any, population: Any, no_value: Any, message: str
) -> None:
    with pytest.raises((PopulationError, ParameterError), match=message):
        simulate(metric, population, np.random.default_rng(0), form=form, no_value=no_value)


@pytest.mark.parametrize("hold", [1, 2, None])
def test_clients_of_every_kind_repeat_their_permanent_response_within_an_epoch(hold: int | None) -> None:
    """Without instantaneous noise, all reports of a client in one epoch are equal, and those of another epoch differ."""
    chances: dict[str, Any] = {"prob_p": 0, "prob_q": 1, "prob_f": 0.5}
    string = Metric.string("s", Params(num_bits=64, num_hashes=2, num_cohorts=8, **chances), hold=hold)
    systems = Metric.categorical("os", tuple("abcdefghij"), UnaryResponse(**chances), hold=hold)
    parts = (Metric.string("s", string.params), Metric.categorical("os", tuple("abcdefghij"), UnaryResponse(**chances)))
    populations: dict[Metric, dict[Any, int]] = {
        string: {"x": 50, "y": 20},
        systems: {"a": 50, "j": 20},
        Metric.ordinal("n", range(0, 60, 5), UnaryResponse(**chances), hold=hold): {"1": 50, "50": 20},
        Metric.joint("joint", parts, hold=hold): {("x", "a"): 40, (None, "b"): 20, ("y", None): 10},
    }
    for metric, population in populations.items():
        periods = consecutive_periods(metric, 4)
        blocks = [rows for _, rows in simulate_reports(metric, population, np.random.default_rng(0), periods=periods)]
        assert sum(map(len, blocks)) == 4 * 70
        epochs = epoch_numbers(metric, periods) if hold else [0] * 4
        for start in range(0, len(blocks), 4):
            for i, j in itertools.combinations(range(4), 2):
                equal = (blocks[start + i] == blocks[start + j]).all(axis=1)
                assert equal.all() if epochs[i] == epochs[j] else not equal.all(), (metric.kind, i, j)


def test_clients_without_a_number_report_the_default() -> None:
    metric = Metric.ordinal("n", Buckets((0, 10, 20, 30), default=12), UnaryResponse(prob_p=0, prob_q=1, prob_f=0))
    counts = simulate(metric, ["1", None, "12", None], np.random.default_rng(0), no_value=5)
    assert (counts.reports.tolist(), counts.ones.tolist()) == ([9], [[1, 8, 0]])


@pytest.mark.parametrize("number", range(17))
def test_number_of_a_mean_reaches_the_thresholds_below_it(number: int) -> None:
    """Of 16 cohorts with thresholds in (c, c + 1], without noise: those below the number have the bit, whatever the thresholds are."""
    metric = Metric.ordinal(
        "n", Buckets((0, 16), estimate=Estimand.MEAN, default=0), UnaryResponse(prob_p=0, prob_q=1, prob_f=0)
    )
    counts = simulate(metric, {str(number): 5000}, np.random.default_rng(0))
    assert (counts.ones[:, 0] == counts.reports * (np.arange(16) < number)).all()
    for cohort in range(16):
        assert int(metric.kind.true_bits(number, cohort)) == (cohort < number)


EXACT: dict[str, Any] = {"prob_p": 0, "prob_q": 1, "prob_f": 0}
WORD = Metric.string("s", Params(num_bits=32, num_hashes=2, num_cohorts=8, **EXACT))
IMPORTED = Metric.string("g", replace(WORD.params, hash_scheme="google-md5"))
PREFIXES = Metric.string("d", replace(WORD.params, num_cohorts=128), discover=Discovery(longest=3))
LETTERS = Metric.categorical("c", ("a", "b", "z"), UnaryResponse(**EXACT), other="z")
YES_OR_NO = Metric.boolean("b", UnaryResponse(**EXACT))


@pytest.mark.parametrize(
    ("metric", "values"),
    [
        (WORD, ["x", "", "\N{EURO SIGN}"]),
        (PREFIXES, ["x", "abcde"]),
        (LETTERS, ["a", "z", "unknown"]),
        (YES_OR_NO, ["true", "false"]),
        (Metric.ordinal("o", Buckets((0, 10, 20, 30)), UnaryResponse(**EXACT)), ["-5", "10", "1e9"]),
        (Metric.joint("one", (WORD, LETTERS)), [(None, "a"), (None, "b")]),
        (Metric.joint("two", (WORD, YES_OR_NO)), [("x", "true"), ("y", None), (None, "false"), (None, None)]),
        (
            Metric.joint("three", (LETTERS, WORD, YES_OR_NO)),
            [("a", "7", "true"), (None, "7", None), ("q", None, "false")],
        ),
    ],
    ids=lambda argument: argument.name if isinstance(argument, Metric) else "",
)
def test_reports_without_noise_are_the_true_bits_of_the_client(metric: Metric, values: list[Any]) -> None:
    """Of every kind, in every cohort; values are those that a client records, numbers and booleans as text."""

    def recorded(part: Metric, value: str | None) -> Any:
        if value is None or part.kind.word is KindWord.STRING or part.kind.word is KindWord.CATEGORICAL:
            return value
        return part.kind.parse_value(value)

    reports = list(simulate_reports(metric, dict.fromkeys(values, 200), np.random.default_rng(0), no_value=200))
    cohorts, rows = (np.concatenate(arrays) for arrays in zip(*reports, strict=True))
    assert len(rows) == 200 * (len(values) + 1)
    nothing = (None,) * len(metric.components) if len(metric.blocks) > 1 else None
    for at, (cohort, row) in enumerate(zip(cohorts.tolist(), rows, strict=True)):
        value = [*values, nothing][at // 200]
        true = (
            tuple(recorded(part, text) for part, text in zip(metric.components, value, strict=True))
            if len(metric.blocks) > 1
            else recorded(metric, value)
        )
        assert int.from_bytes(row.tobytes(), "little") == metric.kind.true_bits(true, cohort)


def test_imported_reports_without_noise_have_the_bits_of_google_rappor() -> None:
    """Of 40 values in 8 cohorts, the two hashes of some coincide."""
    values = [str(i) for i in range(40)]
    numbers_of_ones = set()
    reports = simulate_reports(IMPORTED, dict.fromkeys(values, 20), np.random.default_rng(0))
    cohorts, rows = (np.concatenate(arrays) for arrays in zip(*reports, strict=True))
    for number, (cohort, row) in enumerate(zip(cohorts.tolist(), rows, strict=True)):
        positions = set(google_md5.bit_positions(values[number // 20].encode(), cohort, 32, 2))
        assert int.from_bytes(row.tobytes(), "little") == sum(1 << position for position in positions)
        numbers_of_ones.add(len(positions))
    assert numbers_of_ones == {1, 2}


@pytest.mark.parametrize("form", [BitCounts, PatternCounts, Reports])
@pytest.mark.parametrize("hold", [None, 2])
def test_single_periods_repeat_the_permanent_response(form: Any, hold: int | None) -> None:
    """Without noise of single reports, the counts of two periods of one epoch are equal, and those of two epochs are not."""
    metric = Metric.string(
        "s", Params(num_bits=8, num_hashes=2, num_cohorts=4, prob_p=0, prob_q=1, prob_f=0.5), hold=hold
    )
    periods = consecutive_periods(metric, 4)
    population = {"x": 9000, "y": 6000}
    parts = simulate_each_period(metric, population, np.random.default_rng(1), form=form, no_value=500, periods=periods)
    assert [part.periods for part in parts] == [(period,) for period in periods]
    assert {part.num_reports for part in parts} == {15_500}
    ones = [(part if form is BitCounts else part.bit_counts()).ones.tolist() for part in parts]
    epochs = epoch_numbers(metric, periods) if hold else [0] * 4
    for (first, a), (second, b) in itertools.combinations(zip(epochs, ones, strict=True), 2):
        assert (a == b) is (first == second)


def test_single_periods_have_the_law_of_their_sum(unseen_seed: int) -> None:
    """Total ones of 400 draws; mean and variance of both are compared at 1e-6 (variances by a normal approximation of their logarithm)."""
    rng = np.random.default_rng(unseen_seed)
    metric = Metric.boolean("yes", UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5))
    periods, number = consecutive_periods(metric, 3), 400
    together = [int(simulate(metric, {"true": 300}, rng, periods=periods).ones.sum()) for _ in range(number)]
    alone = [
        sum(
            int(part.ones.sum())
            for part in simulate_each_period(metric, {"true": 300}, rng, form=BitCounts, periods=periods)
        )
        for _ in range(number)
    ]
    a, b = np.array(together, float), np.array(alone, float)
    limit = norm.isf(ALPHA / 4)
    assert abs(a.mean() - b.mean()) < limit * np.sqrt((a.var() + b.var()) / number)
    assert abs(np.log(a.var() / b.var())) < limit * np.sqrt(4 / number)


def test_booleans_of_a_population_are_those_of_the_client() -> None:
    """As `Client.record` takes them: alone, in a combination, and in two periods."""
    noise = UnaryResponse(prob_p=0.25, prob_q=0.75, prob_f=0.5)
    joint = Metric.joint("both", (OS, YES))
    for metric, population, as_text in (
        (YES, {True: 300, False: 100}, {"true": 300, "false": 100}),
        (joint, {("a", True): 300, (None, False): 100}, {("a", "true"): 300, (None, "false"): 100}),
    ):
        drawn, expected = (
            simulate(metric, cast("Any", of), np.random.default_rng(1), form=Reports) for of in (population, as_text)
        )
        assert drawn.num_reports == expected.num_reports == 400
        assert np.array_equal(drawn.rows, expected.rows)
    weekly = Metric.boolean("yes", noise, period="week")
    pairs = [
        simulate_two_periods(weekly, cast("Any", {pair: 100}), np.random.default_rng(1))
        for pair in ((True, False), ("true", "false"))
    ]
    assert pairs[0] == pairs[1]
