"""PrivSet: privacy loss and law of rows against enumeration, sampling, parameters."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations, permutations

import numpy as np
import pytest
from scipy import stats

from hubbub import Buckets, DefinitionError, Metric, ParameterError, Params, PrivSet, SubsetSelection
from hubbub.mechanisms.privset import numbers_of_rows
from hubbub.testing import SeededBytes
from tests.support.enumerate_rows import row_distribution, set_distribution, true_sets

SIZES = [(2, 1, 1), (3, 1, 1), (4, 2, 1), (4, 2, 2), (5, 2, 2), (6, 2, 3), (6, 3, 2), (7, 3, 3), (8, 4, 2)]
"""k, m and w."""


def mechanisms(k: int, m: int, w: int, seed: int) -> Iterator[PrivSet]:
    """Yield two mechanisms of these sizes, of a small and a large epsilon."""
    touching, missing = numbers_of_rows(k, m, w)
    for epsilon in np.random.default_rng(seed).uniform([0.1, 2.0], [2.0, 5.0]):
        odds = math.exp(epsilon) * touching / missing
        yield PrivSet(num_values=k, max_items=m, num_ones=w, prob_hit=odds / (1 + odds))


def sets_of(mechanism: PrivSet) -> list[tuple[int, ...]]:
    """Return all sets of own values, also those of more than m."""
    items = range(mechanism.num_items)
    return [own for size in range(len(items) + 1) for own in combinations(items, size)]


@pytest.mark.parametrize(("k", "m", "w"), SIZES)
def test_epsilon_is_the_largest_loss_of_all_rows_and_sets(k: int, m: int, w: int, unseen_seed: int) -> None:
    """Between true sets, and between clients whose true sets are random: sets that fill m buckets each reach it, no pair exceeds it."""
    for mechanism in mechanisms(k, m, w, unseen_seed):
        for reports in (1, 2) if math.comb(k, w) <= 20 else (1,):
            laws = np.array([set_distribution(mechanism, own, reports) for own in sets_of(mechanism)])
            assert laws.sum(axis=1) == pytest.approx(1, rel=1e-12)
            loss = max(float(np.log(one / other).max()) for one, other in permutations(laws, 2))
            assert mechanism.epsilon(k, (), reports) == pytest.approx(loss, rel=1e-9)
        rows = [set(row) for row in combinations(range(k), w)]
        touching, missing = numbers_of_rows(k, m, w)
        for true_set in combinations(range(k), m):  # blank buckets are like all others
            touches = [bool(row.intersection(true_set)) for row in rows]
            assert (sum(touches), len(rows) - sum(touches)) == (touching, missing)
        assert math.exp(mechanism.epsilon(k, (), 1)) == pytest.approx(
            (mechanism.prob_hit / touching) / ((1 - mechanism.prob_hit) / missing), rel=1e-9
        )
        assert mechanism.epsilon(k, (), math.inf) == math.inf


@pytest.mark.parametrize(("k", "m", "w"), SIZES)
def test_law_of_bits_depends_on_the_own_value_alone(k: int, m: int, w: int, unseen_seed: int) -> None:
    """P(bit) is p + (q - p) times the probability that the true set has the bit, 1 or m over the size, for sets of every size."""
    for mechanism in mechanisms(k, m, w, unseen_seed):
        rows = np.array([[bit in row for bit in range(k)] for row in combinations(range(k), w)])
        p, q = mechanism.prob_p, mechanism.prob_q
        for own in sets_of(mechanism):
            ones = np.array(set_distribution(mechanism, own)) @ rows
            kept = np.array([(item in own) * min(1, m / max(1, len(own))) for item in range(mechanism.num_items)])
            assert ones[: mechanism.num_items] == pytest.approx(p + (q - p) * kept, rel=1e-9)


@pytest.mark.parametrize(("k", "m", "w"), SIZES)
def test_covariances_of_two_bits(k: int, m: int, w: int, unseen_seed: int) -> None:
    for mechanism in mechanisms(k, m, w, unseen_seed):
        own = tuple(range(m))
        rows, law = list(combinations(range(k), w)), set_distribution(mechanism, own)
        for first, second in combinations(range(k), 2):
            both = math.fsum(chance for row, chance in zip(rows, law, strict=True) if first in row and second in row)
            mine = (first in own) + (second in own)
            means = mechanism.prob_q**mine * mechanism.prob_p ** (2 - mine)
            (neither, one), permanent = mechanism.noise_covariances()
            expected = (neither, one, mechanism.own_covariance)[mine]
            assert both - means == pytest.approx(expected, rel=1e-9, abs=1e-12)
            assert permanent == (0, 0)
            assert neither + mechanism.prob_p**2 <= one + mechanism.prob_p * mechanism.prob_q + 1e-15  # P_0 <= P_1


@pytest.mark.parametrize(("d", "w"), [(3, 1), (4, 1), (5, 2), (6, 3)])
def test_sets_of_one_value_are_subset_selection(d: int, w: int) -> None:
    one, other = (
        PrivSet(num_values=d, max_items=1, num_ones=w, prob_hit=0.75),
        SubsetSelection(num_values=d, num_ones=w, prob_q=0.75),
    )
    assert set_distribution(one, (0,)) == pytest.approx(row_distribution(other, 1)[0], rel=1e-9)
    assert one.epsilon(d, (), 3) == pytest.approx(other.epsilon(d, (1,), 3), rel=1e-12)
    assert one.blanket(d, (), (1,)).weight == pytest.approx(other.blanket(d, (1,), (1,)).weight, rel=1e-12)
    assert one.noise_covariances()[0] == pytest.approx(other.noise_covariances()[0], rel=1e-9, abs=1e-15)


def test_row_with_one_one_is_the_discrete_wheel() -> None:
    """q = e**epsilon / (m e**epsilon + k - m) (Wang et al. 2020)."""
    wheel = PrivSet(num_values=20, max_items=4, num_ones=1, prob_hit=0.625)
    weight = math.exp(wheel.epsilon(20, (), 1))
    assert wheel.prob_q == pytest.approx(weight / (4 * weight + 16), rel=1e-12)


@pytest.mark.parametrize(("k", "m", "w"), [(4, 2, 1), (5, 2, 2), (6, 3, 2)])
def test_stated_collision_and_information_are_bounds(k: int, m: int, w: int, unseen_seed: int) -> None:
    for mechanism in mechanisms(k, m, w, unseen_seed):
        for own in sets_of(mechanism):
            once, twice = (np.array(set_distribution(mechanism, own, reports)) for reports in (1, 2))
            for law, reports in ((once, 1), (twice, 2)):
                collision = math.log((law * law).sum())
                assert collision <= mechanism.log_collision(k, len(own), reports) + 1e-9
                if len(own) == m:  # one true set
                    assert collision == pytest.approx(mechanism.log_collision(k, m, reports), rel=1e-9)
            shared = float((twice * np.log(twice / np.outer(once, once).ravel())).sum())
            assert shared <= mechanism.mutual_information(k, (), 1) + 1e-9


def test_reports_have_the_enumerated_law(unseen_seed: int) -> None:
    """G-tests at 1e-6 of 20,000 rows of each size of own values: the client's rows and the simulated ones."""
    mechanism = PrivSet(num_values=6, max_items=2, num_ones=2, prob_hit=0.8125)
    rng, states = np.random.default_rng(unseen_seed), np.random.RandomState(np.random.PCG64(unseen_seed))
    num_bytes, permanent = mechanism.permanent_response(6)
    report = mechanism.instantaneous_response(6, rng.bytes)
    rows = [sum(1 << bit for bit in row) for row in combinations(range(6), 2)]
    for own in ((), (1,), (0, 3), (0, 1, 3)):
        bits, law = sum(1 << bit for bit in own), np.array(set_distribution(mechanism, own))
        encoded = Counter(report(permanent(bits, rng.bytes(num_bytes))) for _ in range(20_000))
        positions = np.tile([*own, 6], (20_000, 1))
        (simulated,) = mechanism.simulate(positions, 6, 1, states)
        drawn = Counter((simulated @ (1 << np.arange(6))).tolist())
        for seen in (encoded, drawn):
            observed = np.array([seen[row] for row in rows])
            assert observed.sum() == 20_000
            assert stats.power_divergence(observed, law * 20_000, lambda_="log-likelihood").pvalue > 1e-6


@pytest.mark.parametrize(("k", "m", "w"), [(9, 4, 3), (9, 3, 4), (12, 5, 6)])
def test_number_of_ones_in_the_true_set_is_exact(k: int, m: int, w: int, unseen_seed: int) -> None:
    """G-test at 1e-6 of 20,000 rows: P(j) is t C(m, j) C(k - m, w - j) / (N - N_0), in the client and in the simulation."""
    mechanism = PrivSet(num_values=k, max_items=m, num_ones=w, prob_hit=1 - 2**-8)
    rng, states = np.random.default_rng(unseen_seed), np.random.RandomState(np.random.PCG64(unseen_seed))
    report, true_set = mechanism.instantaneous_response(k, rng.bytes), (1 << m) - 1
    touching, _ = numbers_of_rows(k, m, w)
    law = [
        2**-8,
        *((1 - 2**-8) * math.comb(m, j) * math.comb(k - m, w - j) / touching for j in range(1, min(m, w) + 1)),
    ]
    assert math.fsum(law) == pytest.approx(1, rel=1e-12)
    encoded = [report(true_set) for _ in range(20_000)]
    assert {row.bit_count() for row in encoded} == {w}
    (simulated,) = mechanism.simulate(np.tile(np.arange(m), (20_000, 1)), k, 1, states)
    assert (simulated.sum(axis=1) == w).all()
    for seen in (
        Counter((row & true_set).bit_count() for row in encoded),
        Counter(simulated[:, :m].sum(axis=1).tolist()),
    ):
        observed = np.array([seen[j] for j in range(len(law))])
        assert stats.power_divergence(observed, np.array(law) * 20_000, lambda_="log-likelihood").pvalue > 1e-6


def test_true_set_is_a_function_of_bits_and_bytes(unseen_seed: int) -> None:
    """Each possible true set is equally frequent, by a chi-squared test at 1e-6; equal bytes give equal sets, and words decide, not their order."""
    mechanism = PrivSet(num_values=8, max_items=3, num_ones=2, prob_hit=0.875)
    rng = np.random.default_rng(unseen_seed)
    num_bytes, respond = mechanism.permanent_response(8)
    for own in ((), (0,), (1, 4), (0, 2, 4), (0, 1, 2, 4), (0, 1, 2, 3, 4)):
        bits = sum(1 << bit for bit in own)
        block = rng.bytes(num_bytes)
        assert respond(bits, block) == respond(bits, block)
        seen = Counter(respond(bits, rng.bytes(num_bytes)) for _ in range(6_000))
        possible = [sum(1 << bit for bit in true_set) for true_set in true_sets(mechanism, own)]
        assert set(seen) <= set(possible)
        observed = [seen[true_set] for true_set in possible]
        assert len(possible) == 1 or stats.chisquare(observed).pvalue > 1e-6
    words = [5, 4, 3, 2, 1, 2**63, 256, 255]
    block = b"".join(word.to_bytes(8, "little") for word in words)
    assert respond(0b11111, block) == 0b11100
    assert respond(0b00001, block) == 0b11000001


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"num_values": 1},
            "num_values must be an integer in \\[2, 1024\\], got 1: pass the number of values and of blanks",
        ),
        ({"num_values": 1025}, "num_values must be an integer in \\[2, 1024\\], got 1025"),
        ({"max_items": 0}, "max_items must be an integer in \\[1, 4\\], got 0: half of the 8 bits"),
        ({"max_items": 5}, "max_items must be an integer in \\[1, 4\\], got 5"),
        ({"max_items": True}, "max_items must be an integer"),
        ({"num_ones": 0}, "num_ones must be an integer in \\[1, 4\\], got 0"),
        ({"num_ones": 5}, "num_ones must be an integer in \\[1, 4\\], got 5"),
        ({"prob_hit": 0.25}, "prob_hit must be above 0.464286, the share of all rows that touch a set of 2, got 0.25"),
        ({"prob_hit": 1.5}, "prob_hit must be a number in \\[0, 1\\], got 1.5"),
        ({"prob_hit": math.nan}, "prob_hit must be a number"),
        ({"prob_hit": "0.5"}, "prob_hit must be a number"),
    ],
)
def test_parameters_out_of_range_are_refused(fields: dict[str, float], message: str) -> None:
    usual = {"num_values": 8, "max_items": 2, "num_ones": 2, "prob_hit": 0.75}
    with pytest.raises(ParameterError, match=message):
        PrivSet(**{**usual, **fields})  # type: ignore[arg-type]  # also wrong ones


def test_metrics_of_one_value_refuse_it() -> None:
    mechanism = PrivSet(num_values=4, max_items=1, num_ones=1, prob_hit=0.75)
    refused: list[Callable[[], Metric]] = [
        lambda: Metric.categorical("theme", ("a", "b", "c", "d"), mechanism),
        lambda: Metric.ordinal("delay", Buckets((0, 10, 20, 30, 40), default=0), mechanism),
    ]
    wide = PrivSet(num_values=8, max_items=1, num_ones=1, prob_hit=0.75)
    refused += [lambda: Metric.string("page", Params(num_bits=8, num_hashes=1, num_cohorts=1, mechanism=wide))]
    for define in refused:
        with pytest.raises(ParameterError, match="PrivSet reports sets of items, got the hash scheme"):
            define()


@pytest.mark.parametrize("true_set", [0, 0b1, 0b111, 0b11111111])
def test_report_of_no_true_set_ends_with_an_error(true_set: int) -> None:
    """Positions are drawn until enough differ, which never happens if there are fewer."""
    report = PrivSet(num_values=8, max_items=2, num_ones=4, prob_hit=0.875).instantaneous_response(
        8, SeededBytes("rows")
    )
    with pytest.raises(ValueError, match=f"a true set has 2 bits, got {true_set.bit_count()}"):
        report(true_set)


def test_fields_and_digest() -> None:
    mechanism = PrivSet(num_values=8, max_items=2, num_ones=2, prob_hit=0.75)
    assert mechanism.fields == {"max_items": 2, "num_ones": 2, "prob_hit": 0.75}
    assert PrivSet.of_fields(mechanism.fields, 8) == mechanism
    assert mechanism.digest_fields == {"max_items": 2, "w": 2, "hit": 3 << 22}
    with pytest.raises(ParameterError, match="num_ones is missing: pass max_items, num_ones and prob_hit"):
        PrivSet.of_fields({"max_items": 2, "prob_hit": 0.75}, 8)
    with pytest.raises(ParameterError, match="num_values = 8 needs as many bits, got 9"):
        mechanism.check_block(9, "set-row-v1")
    with pytest.raises(DefinitionError, match="plugins: prob_hit must be below 1, got 1"):
        PrivSet(num_values=8, max_items=2, num_ones=2, prob_hit=1).require_collectable("plugins")
