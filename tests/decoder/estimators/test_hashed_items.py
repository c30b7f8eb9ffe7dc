"""Shares of hashed items: the overlap of a bucket, frequent items that are used together, unlisted ones, and simulations."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from hubbub import Metric, PrivSet
from hubbub.encoding.bloom import bloom_bits
from hubbub.summary import BitCounts
from hubbub_decoder import compare, decode, decode_each, describe, simulate
from hubbub_decoder.array_types import Floats
from hubbub_decoder.documents.finding import Severity
from hubbub_decoder.errors import CandidateError
from hubbub_decoder.estimators.hashed_items import fit_hashed_sets
from hubbub_decoder.estimators.items import ItemFit
from hubbub_decoder.kinds.operations import operations_of
from hubbub_decoder.model.design_matrix import design_matrix
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.results.decoding import Decoding

ROWS = PrivSet(num_values=64, max_items=4, num_ones=5, prob_hit=0.75)
PACKAGES = Metric.set("packages", None, ROWS, num_cohorts=16)
NAMES = [f"item {number}" for number in range(60)]
MANY = 10**12


def expected(touched: Floats, metric: Metric = PACKAGES) -> Evidence:
    """Evidence with the expected counts where shares `touched` (m, k - m) of the clients of each cohort have the buckets."""
    mechanism = metric.params.mechanism
    assert isinstance(mechanism, PrivSet)
    ones = np.zeros((metric.num_cohorts, mechanism.num_values))
    ones[:, : mechanism.num_items] = mechanism.prob_p + (mechanism.prob_q - mechanism.prob_p) * touched
    return Evidence(BitCounts(metric, np.full(metric.num_cohorts, MANY), np.rint(MANY * ones).astype(np.int64)))


def buckets(names: list[str]) -> Floats:
    """Whether a name has a bucket, (names, m, k - m)."""
    columns = design_matrix(names, PACKAGES.params).matrix.toarray().T.reshape(len(names), 16, 64)
    assert not columns[:, :, ROWS.num_items :].any()
    return np.asarray(columns[:, :, : ROWS.num_items], np.float64)


def fit(evidence: Evidence, names: list[str], target: Any = "reporters") -> ItemFit:
    return fit_hashed_sets(evidence, design_matrix(names, PACKAGES.params), target, ROWS)


def test_positions_are_those_of_the_client_in_every_cohort() -> None:
    values = ["", "item 0", "item 1,item 2,item 3", "item 1,item 1"]
    positions = operations_of(PACKAGES).positions(values)
    assert positions.shape == (4, 16, 3)
    for value, of_value in zip(values, positions, strict=True):
        for cohort, bits in enumerate(of_value.tolist()):
            items = value.split(",") if value else []
            assert sum(1 << bit for bit in set(bits) - {64}) == bloom_bits(PACKAGES, items, cohort)


def test_overlap_of_independent_items_is_no_bias() -> None:
    """A sum of shares would be too large by 1 - prod (1 - x): by .05 in the mean of the first three shares."""
    shares = np.concatenate([[0.9, 0.5, 0.3], np.full(40, 0.03), np.zeros(17)])
    touched = 1 - np.prod(1 - shares[:, None, None] * buckets(NAMES), axis=0)
    found = fit(expected(touched), NAMES)
    assert found.shares == pytest.approx(shares, abs=2e-3)
    assert found.shares[:3] == pytest.approx(shares[:3], abs=1e-3)


def test_frequent_items_that_are_used_together_bias_neither() -> None:
    """Both of half of the clients, in all of them the same: in a common bucket a half and not 3/4 of the clients have a one."""
    names = next(
        pair
        for pair in (["same", f"other {number}"] for number in count())
        if (buckets(pair).sum(axis=0) == 2).any(axis=1).sum() == 2
    )
    others = [name for name in NAMES[:20] if not (buckets([name])[0] * buckets(names).sum(axis=0)).any()]
    touched = np.minimum(buckets(names).sum(axis=0), 1) / 2
    found = fit(expected(touched), [*names, *others])
    assert found.shares == pytest.approx([0.5, 0.5, *[0.0] * len(others)], abs=2e-3)


def test_unlisted_frequent_item_takes_a_free_level_in_its_cells() -> None:
    """Without one, candidates with a bucket in common would get a 16th of its half."""
    shares = np.concatenate([[0.4, 0.2], np.zeros(38)])
    unlisted = buckets(["not listed"])
    own = buckets(NAMES[:40])
    assert (own * unlisted).sum(axis=(1, 2)).max() > 0
    touched = 1 - np.prod(1 - shares[:, None, None] * own, axis=0) * (1 - unlisted[0] / 2)
    found = fit(expected(touched), NAMES[:40])
    assert found.shares == pytest.approx(shares, abs=2e-3)


def population(clients: int, rng: np.random.Generator) -> tuple[dict[str, int], Floats]:
    """Sets of 0 to 4 of the first 30 names, of which the first ones are frequent, and the shares of all 60."""
    chances = 1 / np.arange(1, 31)
    drawn: dict[str, int] = {}
    truth = np.zeros(len(NAMES))
    for _ in range(400):
        size = rng.integers(0, 5)
        own = np.sort(rng.choice(30, size, replace=False, p=chances / chances.sum()))
        value = ",".join(NAMES[item] for item in own)
        drawn[value] = drawn.get(value, 0) + clients // 400
        truth[own] += 1 / 400
    return drawn, truth


def test_decoding_has_the_errors_of_its_law(unseen_seed: int) -> None:
    """Each share within 6 standard errors, their squares of mean 1, 95 % intervals that cover: alpha 1e-6 over 16 decodings of 60 shares.

    Squares of 960 errors have a standard error of .05 in the mean, and more where shares are correlated.
    """
    rng, z, covered, means = np.random.default_rng(unseen_seed), [], [], []
    for _ in range(16):
        clients, truth = population(20_000, rng)
        decoding = decode(simulate(PACKAGES, clients, rng), NAMES, target="reporters")
        rows = [decoding[name] for name in NAMES]
        z += [(row.share - x) / row.std_error for row, x in zip(rows, truth, strict=True)]
        covered += [row.low <= x <= row.high for row, x in zip(rows, truth, strict=True)]
        total = decoding.listed_total
        means.append((total.share - truth.sum()) / total.std_error)
    assert np.abs(z).max() < 6.5
    reach = norm.isf(1e-6)
    assert np.mean(np.square(z)) == pytest.approx(1, abs=reach * 1.5 * (2 / len(z)) ** 0.5)
    assert np.mean(covered) == pytest.approx(0.95, abs=reach * 1.5 * (0.95 * 0.05 / len(z)) ** 0.5)
    assert np.mean(np.square(means)) < 1 + 6 * (2 / 16) ** 0.5


def test_changes_have_the_errors_of_both_decodings(unseen_seed: int) -> None:
    """Squares of 960 changes over their variances have the mean 1, as in the test of one decoding; the samples have no client in common."""
    rng, z = np.random.default_rng(unseen_seed), []
    for _ in range(16):
        (first, of_first), (second, of_second) = population(20_000, rng), population(40_000, rng)
        pair = (
            simulate(PACKAGES, first, rng, periods=["2026-03-02"]),
            simulate(PACKAGES, second, rng, periods=["2026-03-03"]),
        )
        changes = compare(*pair, NAMES, same_clients=False, target="reporters")
        true = dict(zip(NAMES, of_second - of_first, strict=True))
        z += [(change.change - true[change.candidate]) / change.std_error for change in changes]
        assert len(changes) == len(NAMES)
    assert np.abs(z).max() < 6.5
    assert np.mean(np.square(z)) == pytest.approx(1, abs=norm.isf(1e-6) * 1.5 * (2 / len(z)) ** 0.5)


def test_change_of_an_item_is_detected_and_no_change_of_others(unseen_seed: int) -> None:
    """Two items change by .4 and -.2, more than 20 standard errors; an unlisted item of half of the clients changes nothing."""
    rng, days = np.random.default_rng(unseen_seed), ("2026-03-02", "2026-03-03", "2026-03-04")
    summaries = []
    for number, day in enumerate(days):
        own = 10_000 * (number + 1)
        clients = {"item 3,not listed": own, "item 3": own, "item 4,not listed": 50_000 - own, "": 50_000 - own}
        summaries.append(simulate(PACKAGES, clients, rng, periods=[day]))
    trends = decode_each(summaries, NAMES)
    assert {*trends.changed} >= {"item 3", "item 4"}
    true = {"item 3": 0.4, "item 4": -0.2}
    for changes in (trends.overall, compare(summaries[0], summaries[2], NAMES)):
        assert changes is not None
        assert all(abs(change.change - true.get(change.candidate, 0)) < 6 * change.std_error for change in changes)


def test_decoding_tests_the_candidates_and_says_what_larger_sets_mean(unseen_seed: int) -> None:
    rng = np.random.default_rng(unseen_seed)
    clients, _ = population(100_000, rng)
    counts = simulate(PACKAGES, clients, rng)
    decoding = decode(counts, [*NAMES, "absent"])
    assert decoding[NAMES[0]].detected
    assert decoding[NAMES[0]].forged_reports_needed is not None
    assert decoding[NAMES[0]].indistinguishable_from == ()
    assert len(decoding.detected) <= 33
    (note,) = decoding.warnings
    assert (note.kind, note.severity) == ("larger_sets", Severity.NOTE)
    assert Decoding.from_dict(decoding.to_dict()) == decoding
    assert "packages" in str(decoding)
    law = describe(PACKAGES, num_reports=100_000, num_candidates=61).accuracy
    assert decoding["absent"].std_error == pytest.approx(law.std_error(0.0), rel=0.1)


def test_report_that_moves_an_estimate_most_is_one_that_the_service_accepts() -> None:
    influence = fit(expected(np.zeros((16, 60))), NAMES[:30]).influence(np.arange(5))
    assert (influence.rows.sum(axis=1) == ROWS.num_ones).all()
    own = buckets(NAMES[:5])
    for item, (cohort, row) in enumerate(zip(influence.cohorts, influence.rows, strict=True)):
        assert (row[: ROWS.num_items] * own[item, cohort]).sum() == 1
    assert (influence.highest > 1 / (ROWS.prob_q - ROWS.prob_p) / 2).all()


def test_too_many_candidates_and_none_are_refused() -> None:
    counts = expected(np.zeros((16, 60))).source
    with pytest.raises(
        CandidateError, match="600 candidates are too many for sets: the counts of these cohorts tell 472 apart"
    ):
        decode(counts, [f"v{number}" for number in range(600)])
    with pytest.raises(CandidateError, match="a set metric can only be decoded for given strings"):
        decode(counts)
