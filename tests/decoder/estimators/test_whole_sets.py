"""Shares of the items of whole sets: estimates, variances and the mean number of items against the enumerated law of rows."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from hubbub import Metric, PrivSet, Secret
from hubbub.encoding.encoder import Encoder
from hubbub.privacy import epsilon
from hubbub.summary import BitCounts, Reports
from hubbub_decoder import decode, describe, simulate
from hubbub_decoder.array_types import Floats
from hubbub_decoder.audit.audit import audit_metric
from hubbub_decoder.documents.finding import Severity
from hubbub_decoder.errors import AuditError, PopulationError
from hubbub_decoder.estimators.items import fit_whole_sets
from hubbub_decoder.kinds.operations import operations_of
from hubbub_decoder.model.evidence import Evidence
from tests.support.enumerate_rows import set_distribution

NAMES = ("a", "b", "c", "d", "e")
MECHANISMS = (
    PrivSet(num_values=7, max_items=2, num_ones=1, prob_hit=0.75),
    PrivSet(num_values=8, max_items=3, num_ones=2, prob_hit=0.9375),
    PrivSet(num_values=10, max_items=5, num_ones=3, prob_hit=0.984375),
)


def metric_of(mechanism: PrivSet, **fields: Any) -> Metric:
    return Metric.set("packages", NAMES, mechanism, **fields)


def moments(mechanism: PrivSet, own: tuple[int, ...]) -> tuple[Floats, Floats]:
    """Mean and covariance of the item bits of a client with these items, over all rows."""
    rows = np.array(
        [[bit in row for bit in range(5)] for row in combinations(range(mechanism.num_values), mechanism.num_ones)]
    )
    law = np.array(set_distribution(mechanism, own))
    mean = law @ rows
    return mean, (rows * law[:, None]).T @ rows - np.outer(mean, mean)


def evidence_of(mechanism: PrivSet, sets: list[tuple[int, ...]], reports: int = 10**9) -> Evidence:
    """Evidence with the expected counts of equally many clients with each of the sets."""
    per_set, k = reports // len(sets), mechanism.num_values
    ones = np.zeros((1, k), np.int64)
    for own in sets:
        ones[0, :5] += np.rint(per_set * moments(mechanism, own)[0]).astype(np.int64)
    return Evidence(BitCounts(metric_of(mechanism), [per_set * len(sets)], ones))


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: f"w={mechanism.num_ones}")
def test_shares_and_variances_are_those_of_the_enumerated_law(mechanism: PrivSet) -> None:
    """Sets of different sizes: unbiased, also for the items of sets above m, each of which counts m over the size."""
    sets = [(), (0,), (0, 1), (0, 1, 2, 3, 4), (2, 3, 4)]
    m, evidence = mechanism.max_items, evidence_of(mechanism, sets)
    fit = fit_whole_sets(evidence, "reporters", mechanism)
    expected = [math.fsum(min(1, m / len(own)) for own in sets if item in own) / 5 for item in range(5)]
    assert fit.shares == pytest.approx(np.array(expected), abs=1e-7)
    kept = [own for own in sets if len(own) <= m]
    exact = evidence_of(mechanism, kept)
    fit = fit_whole_sets(exact, "reporters", mechanism)
    noise = np.mean([np.diag(moments(mechanism, own)[1]) for own in kept], axis=0)
    scale = exact.num_reports * (mechanism.prob_q - mechanism.prob_p) ** 2
    assert fit.law.variances * scale == pytest.approx(noise, rel=1e-6)
    population = fit_whole_sets(exact, "population", mechanism).law.variances
    assert (population - fit.law.variances) * exact.num_reports == pytest.approx(
        fit.shares * (1 - fit.shares), abs=1e-6
    )


@pytest.mark.parametrize("target", ["reporters", "population"])
@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: f"w={mechanism.num_ones}")
def test_mean_number_of_items_has_the_variance_of_equal_sizes_as_a_bound(mechanism: PrivSet, target: Any) -> None:
    """Exact where all sets have one size; with sizes 0 and m the enumerated variance is below it."""
    m, scale = mechanism.max_items, (mechanism.prob_q - mechanism.prob_p) ** 2
    full = tuple(range(m))
    cases: list[list[tuple[int, ...]]] = [[()], [(0,)], [full], [(), full], [(), (1,), full]]
    for sets in cases:
        evidence = evidence_of(mechanism, sets)
        law = fit_whole_sets(evidence, target, mechanism).mean_law
        sizes = [len(own) for own in sets]
        assert law.shares * 5 == pytest.approx([np.mean(sizes)], abs=1e-6)
        noise = float(np.mean([moments(mechanism, own)[1].sum() for own in sets]))
        exact = noise / scale + (np.var(sizes) if target == "population" else 0)
        bound = float(law.variances[0]) * 25 * evidence.num_reports
        if len(sets) == 1:
            assert bound == pytest.approx(exact, rel=1e-5)
        else:
            assert exact < bound * (1 + 1e-6)


def test_population_of_several_reports_of_each_client_has_the_clients_as_well() -> None:
    mechanism = MECHANISMS[1]
    once = evidence_of(mechanism, [(), (0, 1, 2)])
    days = ["2026-03-01", "2026-03-02", "2026-03-03"]
    thrice = Evidence(BitCounts(once.metric, 3 * once.counts.reports, 3 * once.counts.ones, days))
    one, three = (fit_whole_sets(evidence, "population", mechanism).mean_law for evidence in (once, thrice))
    noise = float(np.mean([moments(mechanism, own)[1].sum() for own in ((), (0, 1, 2))]))
    exact = noise / (mechanism.prob_q - mechanism.prob_p) ** 2 / 3 + np.var([0, 3])
    assert exact / once.num_reports / 25 <= float(three.variances[0]) < float(one.variances[0])


def test_client_and_simulation_have_one_law(unseen_seed: int) -> None:
    """Each bit's shares of both agree to 6 standard errors, for sets below and above the limit of two items."""
    metric, rng = metric_of(MECHANISMS[0]), np.random.default_rng(unseen_seed)
    for value in ("", "b", "a,d", "a,b,c,e"):
        items = tuple(value.split(",")) if value else ()
        encoded = np.array(
            [list(Encoder(metric, Secret(rng.bytes(32)), rng.bytes).encode(items).bits) for _ in range(3_000)]
        )
        counts = simulate(metric, {value: 3_000}, rng)
        assert isinstance(counts, BitCounts)
        assert encoded.mean(axis=0) == pytest.approx(counts.ones[0] / 3_000, abs=6 * (2 * 0.25 / 3_000) ** 0.5)


def test_decoding_has_intervals_tests_and_the_mean_number_of_items(unseen_seed: int) -> None:
    """Item "a" of 60 % is detected, nothing is known of a set's size above m; each figure is within 6 standard errors."""
    metric = metric_of(MECHANISMS[1])
    population = {"a,b": 6_000, "b,c,d": 2_000, "": 2_000}
    counts = simulate(metric, population, np.random.default_rng(unseen_seed))
    decoding = decode(counts)
    for name, share in zip(NAMES, (0.6, 0.8, 0.2, 0.2, 0.0), strict=True):
        row = decoding[name]
        assert row.share == pytest.approx(share, abs=6 * row.std_error)
        assert row.low < row.share < row.high
    assert decoding["a"].detected
    assert decoding.listed_total.share == pytest.approx(1.8, abs=6 * decoding.listed_total.std_error)
    law = describe(metric, num_reports=10_000).accuracy
    for row in decoding:
        assert row.std_error == pytest.approx(float(law.std_error(min(max(row.share, 0), 1))), rel=1e-9)
    chosen = decode(counts, ["c"])
    assert [row.share for row in chosen] == [decoding["c"].share]
    reports = simulate(metric, population, np.random.default_rng(unseen_seed), form=Reports)
    assert decode(reports)["a"].share == pytest.approx(0.6, abs=6 * decoding["a"].std_error)


def test_shares_of_larger_sets_are_between_the_bounds_that_a_note_states(unseen_seed: int) -> None:
    """Sets of 5 items, of which a report stands for 3, and of 1: the shares are within both bounds, by 6 standard errors."""
    population = {"a,b,c,d,e": 10_000, "a": 10_000, "": 5_000}
    decoding = decode(simulate(metric_of(MECHANISMS[1]), population, np.random.default_rng(unseen_seed)))
    (note,) = decoding.warnings
    assert (note.kind, note.severity) == ("larger_sets", Severity.NOTE)
    assert "A client with more than 3 items reports a random 3 of them" in note.text
    assert "estimates are lower bounds: the share of an item is at most its estimate times" in note.text
    assert "the mean number of items counts no more than 3 of a client" in note.text
    for name, share in (("a", 0.8), ("b", 0.4)):
        row = decoding[name]
        assert row.share - 6 * row.std_error < share < (row.share + 6 * row.std_error) * 5 / 3
    total = decoding.listed_total
    assert total.share == pytest.approx((3 * 10_000 + 10_000) / 25_000, abs=6 * total.std_error)  # of 2.4 items
    assert decoding["b"].share == pytest.approx(0.4 * 3 / 5, abs=6 * decoding["b"].std_error)


def test_no_note_stands_where_no_set_can_be_larger() -> None:
    assert not decode(simulate(metric_of(MECHANISMS[2]), {"a": 20_000}, np.random.default_rng(1))).warnings


def test_row_of_a_forged_report_is_one_that_the_service_accepts() -> None:
    for mechanism in MECHANISMS:
        influence = fit_whole_sets(evidence_of(mechanism, [(0,)]), "reporters", mechanism).influence(np.arange(5))
        assert (influence.rows.sum(axis=1) == mechanism.num_ones).all()
        assert influence.rows[np.arange(5), np.arange(5)].all()
        assert (influence.cohorts == 0).all()
        assert influence.highest == pytest.approx((1 - mechanism.prob_p) / (mechanism.prob_q - mechanism.prob_p))


def test_audit_of_whole_sets_reaches_their_epsilon(unseen_seed: int) -> None:
    """The default number of clients gives a bound of 95 % of the claim with power 99 %; 85 % is missed with probability below 1e-6."""
    metric = metric_of(MECHANISMS[0])
    found = audit_metric(metric, trials=60_000, confidence=1 - 1e-6, seed=unseen_seed % 2**32)
    assert 0.7 * epsilon(metric) < found.bound.epsilon <= epsilon(metric)
    assert not found.refuted


def test_audit_of_a_set_that_blanks_fill_up_is_refused_by_name() -> None:
    with pytest.raises(AuditError, match=r"packages: the true set of .* has random blanks"):
        audit_metric(metric_of(MECHANISMS[0]), values=[("a",), ("c", "d")])


def test_values_of_a_population_are_lists_of_items() -> None:
    operations = operations_of(metric_of(MECHANISMS[0]))
    assert operations.positions(["a,c", "", "b"]).tolist() == [[[0, 2]], [[7, 7]], [[1, 7]]]
    with pytest.raises(PopulationError, match="'z' is not one of its 5 items"):
        operations.positions(["a,z"])
    assert operations.audited_values() == [("a", "b"), ("c", "d"), ("d", "e"), None]
