"""Least squares with fixed effects: by hand, without noise, by enumeration, and compared with a dense solution in numpy."""

from __future__ import annotations

import itertools
import math
from unittest.mock import Mock

import numpy as np
import pytest
from scipy import linalg, sparse
from scipy.stats import norm

import hubbub_decoder.estimators.least_squares as fit_module
from hubbub import Metric, Params
from hubbub.summary import BitCounts
from hubbub_decoder import decode
from hubbub_decoder.estimators.least_squares import fit_least_squares
from hubbub_decoder.model.bit_covariance import report_covariance
from hubbub_decoder.model.design_matrix import design_matrix
from hubbub_decoder.model.evidence import Evidence, bit_shares, debias
from hubbub_decoder.model.random_string import RandomStringMoments
from hubbub_decoder.model.vectorized_hashing import bit_positions
from hubbub_decoder.simulation import simulate
from tests.support.paths import DOCS

ALPHA = 1e-6


def string_params(
    k: int, h: int, m: int, p: float = 0.25, q: float = 0.75, f: float = 0.5, scheme: str = "murmur3-v1"
) -> Params:
    return Params(num_bits=k, num_hashes=h, num_cohorts=m, prob_p=p, prob_q=q, prob_f=f, hash_scheme=scheme)


@pytest.mark.parametrize(("p", "q", "f"), [(0.25, 0.75, 0.5), (0.75, 0.25, 0.5), (0.0, 1.0, 0.0), (0.5, 0.75, 0.0)])
def test_debias_is_unbiased_with_the_stated_variance(p: float, q: float, f: float) -> None:
    """By enumeration of all sums of 3 truly set and 2 truly unset bits."""
    params = string_params(8, 1, 1, p, q, f)
    mean = mean_square = mean_variance = 0.0
    for noise in itertools.product((0, 1), repeat=5):
        chance = math.prod(
            star if bit else 1 - star
            for bit, star in zip(noise, 3 * [params.mechanism.q_star] + 2 * [params.mechanism.p_star], strict=True)
        )
        t, variance = debias(np.array([[sum(noise)]]), np.array([5]), params)
        mean += chance * t[0, 0]
        mean_square += chance * t[0, 0] ** 2
        mean_variance += chance * variance[0, 0]
    assert mean == pytest.approx(3, abs=1e-12)
    assert mean_variance == pytest.approx(mean_square - mean**2, abs=1e-12)


@pytest.mark.parametrize("scheme", ["murmur3-v1", "google-md5"])
@pytest.mark.parametrize(("k", "h"), [(8, 1), (9, 2), (24, 3), (255, 2)])
def test_trace_by_classes_of_bits_is_that_of_the_whole_covariance(scheme: str, k: int, h: int) -> None:
    """google-md5: bits below 256 modulo k are hit more often; k = 255 has one such bit."""
    moments = RandomStringMoments.from_params(string_params(k, h, 1, scheme=scheme))
    root = np.random.default_rng(k).normal(size=(k, k))
    assert moments.trace_of_product(root) == pytest.approx(np.trace(root @ moments.covariance @ root.T))


@pytest.mark.parametrize("scheme", ["murmur3-v1", "google-md5"])
def test_random_string_moments_match_hashed_strings(scheme: str, unseen_seed: int) -> None:
    """alpha = 1e-6 over all k**2 moments; 100,000 strings detect a difference of 0.01."""
    params = string_params(10, 3, 1, scheme=scheme)
    n = 100_000
    positions = bit_positions([f"{unseen_seed}-{i}" for i in range(n)], params)[:, 0, :]
    bits = np.zeros((n, 11))
    np.put_along_axis(bits, positions.astype(np.intp), 1, axis=1)
    bits = bits[:, :10]
    expected = RandomStringMoments.from_params(params).second_moment
    z = (bits.T @ bits / n - expected) / np.sqrt(expected * (1 - expected) / n)
    assert np.abs(z).max() < norm.isf(ALPHA / 2 / 100)


@pytest.mark.parametrize(("p", "q", "f"), [(0.25, 0.75, 0.5), (0.8, 0.3, 0.25), (0.0, 1.0, 0.0)])
def test_report_covariance_matches_enumeration(p: float, q: float, f: float) -> None:
    """3 candidates, the unlisted strings (all pairs of 4 bits), no value, and 2**4 reports."""
    params = string_params(8, 2, 1, p, q, f)
    small = Params(num_bits=4, num_hashes=2, num_cohorts=1, prob_p=p, prob_q=q, prob_f=f)
    columns = [(1, 1, 0, 0), (0, 1, 1, 0), (0, 1, 0, 1)]
    shares, unlisted = [0.4, 0.2, 0.1], 0.2
    pairs = [tuple(int(i in pair) for i in range(4)) for pair in itertools.combinations(range(4), 2)]
    mixture = [*zip(columns, shares, strict=True), *((pair, unlisted / 6) for pair in pairs), ((0, 0, 0, 0), 0.1)]
    mean, second = np.zeros(4), np.zeros((4, 4))
    for bits, weight in mixture:
        for report in itertools.product((0, 1), repeat=4):
            ones = np.array(report)
            chance = np.array([params.mechanism.q_star if bit else params.mechanism.p_star for bit in bits])
            probability = weight * np.prod(np.where(ones == 1, chance, 1 - chance))
            mean += probability * ones
            second += probability * np.outer(ones, ones)
    block = sparse.csr_array(np.array(columns, float).T)
    found = report_covariance(block, np.array(shares), unlisted, RandomStringMoments.from_params(small), small)
    assert found == pytest.approx(second - np.outer(mean, mean), abs=1e-12)


def test_number_of_fits_is_the_one_that_the_pages_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 4 of the mathematics, and the module's docstring: x is fitted four times."""
    fits = Mock(side_effect=fit_module.normal_equations)
    monkeypatch.setattr(fit_module, "normal_equations", fits)
    params = string_params(16, 2, 4)
    counts = simulate(Metric.string("x", params), {"a": 500}, np.random.default_rng(1))
    fit_least_squares(Evidence(counts), design_matrix(["a"], params))
    page = (DOCS / "explanation" / "mathematics" / "counts.md").read_text()
    section = page.partition("\n## 4. ")[2].partition("\n## ")[0]
    assert fits.call_count == 4
    assert "$x$ is fitted four times" in section
    assert "four times" in str(fit_module.__doc__)
    assert "three times" not in section + str(fit_module.__doc__)


def test_least_squares_agrees_with_dense_numpy(monkeypatch: pytest.MonkeyPatch, unseen_seed: int) -> None:
    monkeypatch.setattr(fit_module, "_FITS", 1)
    params = string_params(16, 2, 4)
    names = [f"v{i}" for i in range(10)]
    counts = simulate(
        Metric.string("x", params), dict.fromkeys(names, 2000), np.random.default_rng(unseen_seed), no_value=5000
    )
    design = design_matrix(names, params)
    found = fit_least_squares(Evidence(counts), design)

    average = RandomStringMoments.from_params(params)
    y = bit_shares(counts)
    total = np.average(y.sum(axis=1), weights=counts.reports) / 2
    nothing = sparse.csr_array((16, 10))
    covariance = (
        report_covariance(nothing, np.zeros(10), total, average, params)
        / (params.mechanism.q_star - params.mechanism.p_star) ** 2
    )
    full = linalg.block_diag(*(covariance / n for n in counts.reports))
    whiten = np.linalg.inv(np.linalg.cholesky(full))
    x = np.column_stack([design.matrix.toarray(), np.tile(average.mean, 4)])
    solution, *_ = np.linalg.lstsq(whiten @ x, whiten @ y.ravel(), rcond=None)
    assert np.append(found.shares, found.totals[1]) == pytest.approx(solution, abs=1e-7)
    covariance, listed = np.linalg.inv(x.T @ np.linalg.inv(full) @ x), np.array([1] * 10 + [0])
    sums = np.array([listed, 1 - listed, np.ones(11)])
    assert found.variances == pytest.approx(np.diag(covariance)[:10], rel=1e-5)
    assert found.total_variances == pytest.approx(np.diag(sums @ covariance @ sums.T), rel=1e-5)


def test_least_squares_without_noise_is_exact() -> None:
    """p = 0, q = 1, f = 0. Each cohort has its own mixture of values; the estimate is that of all reports."""
    params = string_params(64, 2, 4, 0, 1, 0)
    people = {"a": 311, "b": 430, "c": 52}
    counts = simulate(Metric.string("x", params), people, np.random.default_rng(4), no_value=80)
    decoding = decode(counts, list(people))
    for name, number in people.items():
        assert decoding[name].share == pytest.approx(number / 873, abs=0.01 / 873)  # a hundredth of a report
        # a tenth of a report in each of 4 cohorts; sqrt(x (1 - x) / N) would be 0.016
        assert decoding[name].std_error < 0.3 / 873
    assert decoding.no_value.share == pytest.approx(80 / 873, abs=1e-5)
    assert decoding.unlisted.share == pytest.approx(0, abs=1e-5)


def test_inverting_all_bits_changes_no_estimate() -> None:
    """Reports under (p, q) with every bit inverted are reports under (1 - p, 1 - q), where p > q."""
    params, inverted = string_params(16, 2, 4, 0.25, 0.75), string_params(16, 2, 4, 0.75, 0.25)
    rng = np.random.default_rng(5)
    names = ["a", "b", "c", "d"]
    counts = simulate(Metric.string("x", params), dict.fromkeys(names, 3000), rng)
    one = decode(counts, names)
    other = decode(BitCounts(inverted, counts.reports, counts.reports[:, None] - counts.ones), names)
    for name in names:
        assert one[name].share == pytest.approx(other[name].share, abs=1e-9)
        assert one[name].std_error == pytest.approx(other[name].std_error, rel=1e-6)


def test_ignores_cohorts_without_reports() -> None:
    params = string_params(32, 2, 4)
    counts = simulate(Metric.string("x", params), {"a": 40_000, "b": 20_000}, np.random.default_rng(3))
    reports, ones = counts.reports.copy(), counts.ones.copy()
    reports[2], ones[2] = 0, 0
    decoding = decode(BitCounts(params, reports, ones), ["a", "b", "c"])
    assert abs(decoding["a"].share - 2 / 3) < 6 * decoding["a"].std_error
    assert math.isfinite(decoding.unlisted.share)


def test_undetermined_shares_are_nan_and_warned_about() -> None:
    """a + c = b + d in every bit of the only cohort, so these four shares are not determined; e is determined."""
    params = string_params(64, 2, 1)
    by_bits: dict[tuple[int, ...], str] = {}
    for i in range(200_000):
        name = f"w{i}"
        by_bits.setdefault(tuple(bit_positions([name], params)[0, 0].tolist()), name)
        if i % 500 == 0 and all(pair in by_bits for pair in ((0, 1), (1, 2), (2, 3), (0, 3), (10, 20))):
            break
    square = [by_bits[pair] for pair in ((0, 1), (1, 2), (2, 3), (0, 3))]
    alone = by_bits[10, 20]
    counts = simulate(
        Metric.string("x", params), {square[0]: 3000, square[2]: 3000, alone: 6000}, np.random.default_rng(8)
    )
    decoding = decode(counts, [*square, alone])
    assert all(math.isnan(decoding[name].share) and not decoding[name].detected for name in square)
    assert abs(decoding[alone].share - 0.5) < 6 * decoding[alone].std_error
    assert math.isfinite(decoding.listed_total.share)  # the sum of the four is determined
    assert any("The shares of 4 candidates are not determined" in warning.text for warning in decoding.warnings)


@pytest.mark.slow
def test_least_squares_estimates_unlisted_variance(unseen_seed: int) -> None:
    """tau**2 is the sum of squared shares of the unlisted strings: 0.3**2 for one string; alpha = 1e-6 on each side, 20 runs."""
    params = string_params(32, 2, 32)
    rng = np.random.default_rng(unseen_seed)
    names = [f"v{i}" for i in range(10)]
    population = {**dict.fromkeys(names, 7000), "not on the list": 30_000}
    scatters = [
        fit_least_squares(
            Evidence(simulate(Metric.string("x", params), population, rng)), design_matrix(names, params)
        ).nuisance.unlisted_variance
        for _ in range(20)
    ]
    none = fit_least_squares(
        Evidence(simulate(Metric.string("x", params), dict.fromkeys(names, 7000), rng)),
        design_matrix(names, params),
    )
    error = np.std(scatters, ddof=1) / math.sqrt(20)
    assert abs(np.mean(scatters) - 0.09) < 0.01 + 6 * error
    assert none.nuisance.unlisted_variance < 6 * none.nuisance.unlisted_variance_error
