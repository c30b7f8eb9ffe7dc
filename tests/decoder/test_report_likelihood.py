"""The full likelihood of retained reports: by hand, at the ends, by enumeration, and from simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom, chi2

import hubbub_decoder.report_likelihood as likelihood_module
from hubbub import Metric, Params
from hubbub.errors import SummaryError
from hubbub.summary import BitCounts
from hubbub.summary.kernel import count_bits
from hubbub_decoder.design_matrix import DesignMatrix, bit_positions, design_matrix
from hubbub_decoder.fit import fit
from hubbub_decoder.report_likelihood import ReportFit, fit_reports
from hubbub_decoder.simulate import simulate_reports

ALPHA = 1e-6
Floats = NDArray[np.float64]
Reports = tuple[NDArray[np.uint16], NDArray[np.uint8]]


def string_params(
    k: int, h: int, m: int, p: float = 0.25, q: float = 0.75, f: float = 0.0, scheme: str = "murmur3-v1"
) -> Params:
    return Params(num_bits=k, num_hashes=h, num_cohorts=m, prob_p=p, prob_q=q, prob_f=f, hash_scheme=scheme)


def simulated(params: Params, people: dict[str, int], seed: int, without_value: int = 0) -> Reports:
    chunks = list(
        simulate_reports(Metric.string("x", params), people, np.random.default_rng(seed), without_value=without_value)
    )
    return np.concatenate([cohorts for cohorts, _ in chunks]), np.concatenate([rows for _, rows in chunks])


def enumerated_ratios(params: Params, names: list[str]) -> Floats:
    """r of every component, cohort and pattern of k <= 8 bits, from the definition: (m, components, 2**k).

    The average unlisted string is the mean over all choices of h bits (murmur3-v1), or of h times one of k (google-md5).
    """
    k, h, m = params.num_bits, params.num_hashes, params.num_cohorts
    patterns = (np.arange(1 << k)[:, None] >> np.arange(k)) & 1

    def chance(bits: set[int]) -> Floats:
        one = np.array([params.q_star if bit in bits else params.p_star for bit in range(k)])
        return np.asarray(np.prod(np.where(patterns, one, 1 - one), axis=1))

    if params.hash_scheme == "google-md5":
        strings = [set(hashes) for hashes in itertools.product(range(k), repeat=h)]
    else:
        strings = [set(hashes) for hashes in itertools.combinations(range(k), h)]
    average = np.mean([chance(bits) for bits in strings], axis=0)
    positions = bit_positions(names, params)
    none = chance(set())
    return np.array([
        [*(chance(set(positions[v, c].tolist())) / none for v in range(len(names))), average / none, np.ones(1 << k)]
        for c in range(m)
    ])  # fmt: skip


def shares_of(fitted: ReportFit) -> Floats:
    return np.append(fitted.shares, [fitted.unlisted, fitted.without_value])


def test_two_reports_by_hand() -> None:
    """One report has all 8 bits set and one has none, h = 1: r of a string is 3 and 1/3, of no value 1.

    log(1 + 2 z) + log(1 - 2/3 z) is largest at z = 1/2, where J = (2 / 2)**2 + (2/3 / (2/3))**2 = 2
    """
    params = string_params(8, 1, 1)
    fitted = fit_reports(np.array([0, 0]), np.array([[255], [0]], np.uint8), params, design_matrix([], params))
    assert (fitted.unlisted, fitted.without_value) == pytest.approx((0.5, 0.5), abs=1e-5)
    assert fitted.scatter == 0  # every bit has the same share
    assert fitted.covariance == pytest.approx(np.array([[0.5, -0.5], [-0.5, 0.5]]), abs=1e-4)
    assert fitted.std_errors == pytest.approx([math.sqrt(1 / 2 - 1 / 8)] * 2, abs=1e-4)


def test_without_noise_shares_are_counts_and_errors_none() -> None:
    """f = 0, p = 0, q = 1, with a candidate that nobody has and no string unlisted."""
    params = string_params(64, 2, 4, 0, 1, 0)
    people = {"a": 311, "b": 430, "c": 52, "nobody": 0}
    cohorts, rows = simulated(params, people, 4, without_value=80)
    fitted = fit_reports(cohorts, rows, params, design_matrix(list(people), params))
    assert shares_of(fitted) == pytest.approx(np.array([311, 430, 52, 0, 0, 80]) / 873, abs=1e-6)
    assert fitted.held.tolist() == [False, False, False, True, True, False]
    assert np.all(fitted.std_errors <= 1.01 / 873)  # sqrt(x (1 - x) / N) would be 0.016
    assert fitted.distance < 1e-3


@pytest.mark.parametrize("scheme", ["murmur3-v1", "google-md5"])
@pytest.mark.parametrize(("p", "q", "f"), [(0.25, 0.75, 0.0), (0.5, 0.75, 0.5), (0.75, 0.25, 0.25), (0.05, 0.9, 0.0)])
def test_the_fit_is_the_maximum_of_the_pattern_likelihood_and_its_covariance_the_inverse_information(
    p: float, q: float, f: float, scheme: str, monkeypatch: pytest.MonkeyPatch, unseen_seed: int
) -> None:
    """k = 8, tau**2 left out: the likelihood of every pattern from its definition, its score and its Hessian by finite differences."""
    monkeypatch.setattr(likelihood_module, "_scatter", lambda *_: 0.0)
    monkeypatch.setattr(likelihood_module, "_CLOSE", 1e-4)  # the information is of the last but one step
    params = string_params(8, 2, 4, p, q, f, scheme)
    names = ["a", "b", "c", "d"]
    cohorts, rows = simulated(params, {"a": 3000, "b": 1000, "u": 400, "w": 300}, unseen_seed, without_value=800)
    fitted = fit_reports(cohorts, rows, params, design_matrix(names, params))
    ratios = enumerated_ratios(params, names)
    counts = np.zeros((4, 256))
    np.add.at(counts, (cohorts, rows[:, 0]), 1)

    def log_likelihood(free: Floats) -> float:
        z = np.append(free, 1 - free.sum())
        return float(
            np.sum(counts * np.log(np.einsum("v,cvs->cs", z, ratios), where=counts > 0, out=np.zeros((4, 256))))
        )

    def gradient(free: Floats) -> Floats:
        z = np.append(free, 1 - free.sum())
        mixture = np.einsum("v,cvs->cs", z, ratios)
        return np.asarray(np.einsum("cvs,cs->v", ratios[:, :-1] - ratios[:, -1:], np.divide(counts, mixture)))

    best = shares_of(fitted)[:-1]
    step = 1e-5
    one = np.eye(len(best)) * step
    score = np.array([(log_likelihood(best + e) - log_likelihood(best - e)) / (2 * step) for e in one])
    hessian = np.array([(gradient(best + e) - gradient(best - e)) / (2 * step) for e in one])
    inverse = np.linalg.inv(-hessian)
    errors = np.sqrt(np.diag(inverse))
    assert score * errors == pytest.approx(gradient(best) * errors, abs=1e-3)
    assert math.sqrt(gradient(best) @ inverse @ gradient(best)) < 2e-3  # standard errors from the maximum
    assert fitted.covariance[:-1, :-1] == pytest.approx(inverse, rel=1e-3, abs=1e-3 * errors.min() ** 2)


def test_single_precision_and_blocks_change_nothing_that_matters(
    monkeypatch: pytest.MonkeyPatch, unseen_seed: int
) -> None:
    """Double precision and blocks of 64 reports: the same shares to a thousandth of a standard error."""
    params = string_params(40, 2, 4, 0.25, 0.75, 0.25)
    names = [f"v{i}" for i in range(20)]
    cohorts, rows = simulated(params, dict.fromkeys(names[:15], 400), unseen_seed)
    design = design_matrix(names, params)
    single = fit_reports(cohorts, rows, params, design)
    monkeypatch.setattr(likelihood_module, "_SINGLE_RANGE", 0)
    monkeypatch.setattr(likelihood_module, "_CELLS_AT_ONCE", 1)
    double = fit_reports(cohorts, rows, params, design)
    error = np.sqrt(np.diag(double.covariance))
    assert np.all(np.abs(shares_of(single) - shares_of(double)) < 1e-3 * error)
    assert np.sqrt(np.diag(single.covariance)) == pytest.approx(error, rel=1e-3)


def test_the_order_of_the_reports_changes_nothing(unseen_seed: int) -> None:
    params = string_params(16, 2, 4)
    cohorts, rows = simulated(params, {"a": 600, "b": 300}, unseen_seed)
    design = design_matrix(["a", "b", "c"], params)
    shuffled = np.random.default_rng(unseen_seed).permutation(len(cohorts))
    one, other = (
        fit_reports(cohorts, rows, params, design),
        fit_reports(cohorts[shuffled], rows[shuffled], params, design),
    )
    assert shares_of(one) == pytest.approx(shares_of(other), abs=1e-3 * one.std_errors.max())


@pytest.mark.parametrize(("p", "q", "h", "unlisted"), [(0.25, 0.75, 2, 0), (0.25, 0.75, 2, 1), (0.2, 0.8, 1, 1)])
def test_intervals_cover_the_shares_among_those_who_reported(
    p: float, q: float, h: int, unlisted: int, unseen_seed: int
) -> None:
    """40 fits of 12 candidates, with and without two large unlisted strings (a fifth of the reports).

    Estimates of one fit depend on each other a little, so the count is tested as that of half as many independent
    ones: between the binomial's quantiles of alpha = 1e-6 at coverage .95, 240 of them.
    """
    params = string_params(16, h, 32, p, q)
    names = [f"v{i}" for i in range(12)]
    people = dict.fromkeys(names[:8], 400) | ({"u1": 500, "u2": 300} if unlisted else {})
    design = design_matrix(names, params)
    rng = np.random.default_rng(unseen_seed)
    covered: list[bool] = []
    for _ in range(40):
        cohorts, rows = simulated(params, people, int(rng.integers(1 << 62)), without_value=200)
        fitted = fit_reports(cohorts, rows, params, design)
        truth = np.array([people.get(name, 0) for name in names]) / len(rows)
        covered.extend(np.abs(fitted.shares - truth) < 1.96 * fitted.std_errors[:-2])
    share = float(np.mean(covered))
    low, high = binom.ppf([ALPHA / 2, 1 - ALPHA / 2], 240, 0.95) / 240
    assert low <= share <= high


def test_the_scatter_is_the_sum_of_squared_shares_of_unlisted_strings(unseen_seed: int) -> None:
    """Mean of 30 fits of ever other strings, k = 64, 64 cohorts; 6 standard errors of the mean, which the fits show."""
    params = string_params(64, 2, 64, 0.15, 0.85)
    rng = np.random.default_rng(unseen_seed)
    found = []
    for _ in range(30):
        tag = int(rng.integers(1 << 30))
        names = [f"{tag}-{i}" for i in range(3)]
        people = {names[0]: 1600, names[1]: 800, f"{tag}-u1": 1200, f"{tag}-u2": 400}
        cohorts, rows = simulated(params, people, int(rng.integers(1 << 62)))
        found.append(fit_reports(cohorts, rows, params, design_matrix(names, params)).scatter)
    assert abs(np.mean(found) - (0.3**2 + 0.1**2)) < 6 * np.std(found, ddof=1) / math.sqrt(30)


def test_the_hashing_of_unlisted_strings_is_in_the_standard_errors(
    monkeypatch: pytest.MonkeyPatch, unseen_seed: int
) -> None:
    """One unlisted string of 40 % in 8 cohorts: without tau**2 the errors would be several times too small.

    30 fits of 6 candidates: z**2 is 1 on average. Hashes are shared within a fit, so the mean is taken for one of 30 values of chi-squared
    with one degree of freedom: in [0.20, 2.8] but for alpha = 1e-6 on either side.
    """
    params = string_params(32, 2, 8)
    rng = np.random.default_rng(unseen_seed)
    squares: dict[bool, list[float]] = {True: [], False: []}
    scatter = likelihood_module._scatter
    for _ in range(30):
        tag = int(rng.integers(1 << 30))
        names = [f"{tag}-{i}" for i in range(6)]
        people = dict.fromkeys(names[:4], 1500) | {f"{tag}-unlisted": 4000}
        cohorts, rows = simulated(params, people, int(rng.integers(1 << 62)))
        truth = np.array([people.get(name, 0) for name in names]) / len(rows)
        for known in squares:
            monkeypatch.setattr(likelihood_module, "_scatter", scatter if known else lambda *_: 0.0)
            fitted = fit_reports(cohorts, rows, params, design_matrix(names, params))
            squares[known].append(float(np.mean(((fitted.shares - truth) / fitted.std_errors[:-2]) ** 2)))
    low, high = chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], 30) / 30
    assert low < np.mean(squares[True]) < high
    assert np.mean(squares[False]) > 2 * np.mean(squares[True])


@pytest.mark.parametrize("scheme", ["murmur3-v1", "google-md5"])
def test_standard_errors_are_smaller_than_those_of_bit_counts(scheme: str, unseen_seed: int) -> None:
    """k = 8, h = 2, p = .225, q = .775, f = 0: 1.3 times or more, in theory 1.4 to 1.6."""
    params = string_params(8, 2, 64, 0.225, 0.775, scheme=scheme)
    names = [f"v{i}" for i in range(40)]
    cohorts, rows = simulated(params, dict.fromkeys(names, 1500), unseen_seed)
    design = design_matrix(names, params)
    full = fit_reports(cohorts, rows, params, design)
    marginal = fit(BitCounts(params, *count_bits(cohorts, rows, 64, 8)), design)
    ratio = np.sqrt(np.diag(marginal.covariance)[:40] / np.diag(full.covariance)[:40])
    assert np.median(ratio) > 1.3


def test_candidates_that_no_cohort_separates_get_no_share_of_their_own() -> None:
    """Two columns of the same bits, which `design_matrix` would merge: nan, and the others are as if they were one."""
    params = string_params(16, 2, 4)
    cohorts, rows = simulated(params, {"a": 800, "b": 500}, 1)
    one = design_matrix(["a", "b"], params)
    twice = DesignMatrix(params, (("a",), ("b",), ("b too",)), one.matrix[:, [0, 1, 1]])
    fitted, expected = (fit_reports(cohorts, rows, params, design) for design in (twice, one))
    assert np.isnan(fitted.shares).tolist() == [False, True, True]
    assert fitted.shares[0] == pytest.approx(expected.shares[0], abs=1e-3 * expected.std_errors[0])


def test_reports_that_are_not_of_the_parameters_are_refused() -> None:
    params = string_params(16, 2, 4)
    design = design_matrix(["a"], params)
    rows = np.zeros((3, 2), np.uint8)
    with pytest.raises(SummaryError, match=r"rows must be \(n, 2\) for n = 2"):
        fit_reports(np.zeros(2, np.int64), rows, params, design)
    with pytest.raises(SummaryError, match=r"n = 0 >= 1"):
        fit_reports(np.zeros(0, np.int64), rows[:0], params, design)
    with pytest.raises(SummaryError, match=r"cohorts must be in \[0, 4\), got 0 to 4"):
        fit_reports(np.array([0, 4, 1]), rows, params, design)
    with pytest.raises(SummaryError, match="made for other parameters"):
        fit_reports(np.zeros(3, np.int64), rows, string_params(16, 1, 4), design)
