"""Retained reports with random effects: identities of the mixed model of their score, and recovery from simulation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom, chi2

from hubbub import Metric, Params
from hubbub.summary import Reports
from hubbub_decoder.array_types import Floats
from hubbub_decoder.estimators.least_squares import use_fixed_effects
from hubbub_decoder.estimators.reports.bit_residuals import BitResiduals, HashMoments
from hubbub_decoder.estimators.reports.mixed_effects import fit_reports_mixed, matching_priors
from hubbub_decoder.estimators.reports.one_step import fit_reports_one_step
from hubbub_decoder.estimators.reports.score_model import CandidatePriors, ScoreModel, ScoreSolver
from hubbub_decoder.inference.prior import fit_prior
from hubbub_decoder.model.design_matrix import design_matrix
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.pipeline import decode
from hubbub_decoder.simulation import simulate_reports

ALPHA = 1e-6
NAMES = [f"v{i}" for i in range(6)]
PARAMS = Params(num_bits=32, num_hashes=2, num_cohorts=8, prob_p=0.25, prob_q=0.75, prob_f=0)
N = 1000


def simulated(params: Params, people: dict[str, int], seed: int, no_value: int = 0) -> Reports:
    metric = Metric.string("x", params)
    chunks = list(simulate_reports(metric, people, np.random.default_rng(seed), no_value=no_value))
    return Reports(metric, *(np.concatenate(parts) for parts in zip(*chunks, strict=True)))


class Scored:
    """A score of N reports about 6 candidates, unlisted strings and no value: A, B and g are arbitrary, and A z = 1."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        size = len(NAMES) + 2
        root, scattered = rng.normal(size=(size, 3 * size)), rng.normal(size=(size, 2 * size))
        self.a, self.b = root @ root.T / size, scattered @ scattered.T / size / 8
        self.z, self.g = rng.dirichlet(np.ones(size)), 0.03 * rng.normal(size=size)
        self.priors = CandidatePriors(rng.normal(size=len(NAMES)) * 0.01, 1e-3 * rng.random(len(NAMES)))
        doubled = rng.normal(size=(size, 2 * size))
        self.total = self.a / 2 + doubled @ doubled.T / size / 4
        reports = simulated(PARAMS, dict.fromkeys(NAMES, 100), seed)
        residuals = BitResiduals.from_evidence(Evidence(reports), design_matrix(NAMES, PARAMS), self.z[:-1])
        sufficient = residuals.gram @ np.linalg.solve(self.a, self.b)[:-1]
        self.hashing = HashMoments(self.b, sufficient)
        self.model, self.knowing = (
            ScoreModel.from_score(self.z, self.g, self.a, self.total, self.hashing, noise, N, residuals)
            for noise in (None, self.total / 2)
        )

    def information(self, unlisted: float) -> Floats:
        """J = n A (A_T + n tau**2 B)^-1 A."""
        return N * self.a @ np.linalg.solve(self.total + N * unlisted * self.b, self.a)

    def moment(self, unlisted: float) -> Floats:
        """J x_hat, x_hat = z + A^-1 g."""
        return self.information(unlisted) @ (self.z + np.linalg.solve(self.a, self.g))


@pytest.mark.parametrize("unlisted", [0.0, 0.02])
def test_score_solver_solves_hendersons_equations(unlisted: float) -> None:
    """(J + diag(1/variance)) x = J x_hat + mean/variance, as written."""
    one = Scored(1)
    j = one.information(unlisted)
    precision, pull = np.zeros(8), np.zeros(8)
    precision[:6], pull[:6] = 1 / one.priors.variances, one.priors.means / one.priors.variances
    expected = np.linalg.solve(j + np.diag(precision), one.moment(unlisted) + pull)
    found = ScoreSolver(one.model, one.priors, unlisted).shares
    assert found == pytest.approx(expected, rel=1e-6)


def test_estimate_does_not_depend_on_its_own_prior() -> None:
    """Another prior of candidate 2 changes all other estimates, but not its own estimate and variance."""
    one = Scored(2)
    means, variances = one.priors.means.copy(), one.priors.variances.copy()
    means[2], variances[2] = 0.3, 0.5
    was, now = (
        ScoreSolver(one.model, priors, 0.01).estimates() for priors in (one.priors, CandidatePriors(means, variances))
    )
    assert (now.shares[2], now.variances[2]) == pytest.approx((was.shares[2], was.variances[2]), rel=1e-6)
    assert np.all(np.abs(np.delete(now.shares - was.shares, 2)) > 1e-6)


def test_leave_one_out_equals_refit_without_the_candidate() -> None:
    """Solved again without its row and column."""
    one = Scored(3)
    kept = [0, 1, 2, 3, 5, 6, 7]
    precision, pull = np.zeros(8), np.zeros(8)
    precision[:6], pull[:6] = 1 / one.priors.variances, one.priors.means / one.priors.variances
    j = one.information(0.01)
    right = (one.moment(0.01) + pull)[kept]
    expected = np.linalg.solve((j + np.diag(precision))[np.ix_(kept, kept)], right)
    found = ScoreSolver(one.model, one.priors, 0.01).without(np.array([4]))[:, 0]
    assert found[kept] == pytest.approx(expected, rel=1e-6)
    assert found[4] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("unlisted", [0.0, 0.02])
def test_known_noise_replaces_the_variance_of_the_score(unlisted: float) -> None:
    """v = w'(J-noise + the rest) w, w = dx_j / dg by differences; x (1 - x) / N is added, for single shares and totals."""
    one = Scored(4)
    step, flags = 1e-3, np.array([True] * 4 + [False] * 2)

    def estimates(g: Floats) -> Floats:
        model = ScoreModel.from_score(one.z, g, one.a, one.total, one.hashing, None, N, one.model.residuals)
        totals = model.totals(one.priors, unlisted, flags)
        return np.concatenate([ScoreSolver(model, one.priors, unlisted).estimates().shares, totals.shares])

    reach = np.array([(estimates(one.g + step * e) - estimates(one.g - step * e)) / 2 / step for e in np.eye(8)]).T
    less = np.sum(reach @ (one.total / 2 / N) * reach, axis=1)

    def variances(model: ScoreModel) -> Floats:
        totals = model.totals(one.priors, unlisted, flags)
        single = ScoreSolver(model, one.priors, unlisted).estimates().variances
        return np.append(single, np.diag(totals.covariance))

    model_s, found = variances(one.model), variances(one.knowing)
    x = np.clip(estimates(one.g), 0, 1)
    assert found == pytest.approx(model_s - less + x * (1 - x) / N + (0.1 / N) ** 2, rel=1e-6)


@pytest.mark.parametrize("exchangeable", [[True] * 4 + [False] * 2, [False] * 6])
def test_totals_have_a_mean_of_the_exchangeable_candidates(exchangeable: list[bool]) -> None:
    """By dense algebra: their column is one more unknown without a prior, and counts once for each in the total."""
    one, flags = Scored(7), np.array(exchangeable)
    extended = np.column_stack([np.eye(8), np.append(flags, [0, 0])])[:, : 9 if flags.any() else 8]
    size = extended.shape[1]
    precision, pull = np.zeros(size), np.zeros(size)
    precision[:6], pull[:6] = 1 / one.priors.variances, one.priors.means / one.priors.variances
    covariance = np.linalg.inv(extended.T @ one.information(0.01) @ extended + np.diag(precision))
    sums = np.zeros((3, size))
    sums[0, :6], sums[1, 6], sums[2, 7], sums[0, 8:] = 1, 1, 1, flags.sum()
    totals = one.model.totals(one.priors, 0.01, flags)
    assert totals.shares == pytest.approx(sums @ covariance @ (extended.T @ one.moment(0.01) + pull), rel=1e-5)
    assert totals.covariance == pytest.approx(sums @ covariance @ sums.T, rel=1e-5)


@pytest.mark.parametrize("seed", range(8))
def test_rounding_of_the_score_moves_no_total(seed: int) -> None:
    """10 to 80 exchangeable candidates, whose sum is known less well than the sum of all shares by a factor of 1,000.

    Relative changes by 1e-15, as between processors, move totals and their errors by at most 1e-9 standard errors.
    """
    rng, one = np.random.default_rng(seed), Scored(8)
    listed, n = int(rng.integers(10, 81)), int(rng.integers(3_000, 30_000))
    size = listed + 2
    features = np.sqrt(n) * rng.normal(size=(size, size)) / np.sqrt(size) * np.geomspace(0.1, 1.5, size)[:, None]
    truth, flags = rng.dirichlet(np.ones(size)), np.arange(listed) >= rng.integers(8)
    model = replace(
        one.model,
        y=features @ truth + rng.normal(size=size),
        features=features,
        spread=rng.exponential(20, size=size),
        of_score=np.zeros((size, size)),
        right_inverse=np.zeros((size, size)),
        num_clients=n,
    ).with_sum_constraint()
    rounded = replace(
        model,
        y=model.y * (1 + 1e-15 * rng.uniform(-1, 1, size=model.y.shape)),
        features=model.features * (1 + 1e-15 * rng.uniform(-1, 1, size=model.features.shape)),
    )
    priors = CandidatePriors(np.where(flags, 0, truth[:listed]), np.where(flags, 1e-4, 1e-2))
    was, now = (variant.totals(priors, 0.05, flags) for variant in (model, rounded))
    errors = np.sqrt(np.diag(was.covariance))
    assert now.shares == pytest.approx(was.shares, rel=0, abs=1e-9 * errors.min())
    assert np.sqrt(np.diag(now.covariance)) == pytest.approx(errors, rel=1e-9)


def test_matching_priors_reproduce_the_posterior(unseen_seed: int) -> None:
    """Mean and variance of each share; where the posterior is wider than the estimate, the mean only."""
    rng = np.random.default_rng(unseen_seed)
    v = np.full(300, 1e-6)
    x = rng.normal(np.where(np.arange(300) < 30, 0.004, 0.0), 1e-3)
    mean, variance = fit_prior(x, v).posterior(x, v)
    priors = matching_priors(x, v, mean, variance)
    joined = 1 / (1 / v + 1 / priors.variances)
    assert joined * (x / v + priors.means / priors.variances) == pytest.approx(mean, rel=1e-6, abs=1e-12)
    wide = variance > v / 1.02
    assert 0 < wide.sum() < 100
    assert joined[~wide] == pytest.approx(variance[~wide], rel=1e-6)
    assert np.all(priors.variances[wide] > 40 * v[wide])


@pytest.mark.parametrize("unlisted", [0.0, 0.02])
def test_residuals_of_a_sufficient_score_have_the_variance_of_an_efficient_estimate(unlisted: float) -> None:
    """C = X A^-1 B: E r r' = S + tau**2 V - X Cov X', and its growth with tau**2 is that for the fixed weights of the solution."""
    one = Scored(6)
    solved, residuals = ScoreSolver(one.model, one.priors, unlisted), one.model.residuals
    cov = np.linalg.inv(one.information(unlisted) + np.diag([*(1 / one.priors.variances), 0, 0]))
    k = cov @ one.information(unlisted) @ np.linalg.inv(one.a)  # derivative of the shares by the score
    known = (np.linalg.solve(one.a, one.b) @ k.T)[:-1, :-1]
    squares = float(residuals.weights @ (residuals.bits - residuals.columns @ solved.shares[:-1]) ** 2)
    expected = residuals.rows + unlisted * residuals.trace - float(np.sum(residuals.gram * cov[:-1, :-1]))
    absorbed = float(np.sum(residuals.gram * (k @ one.b @ k.T)[:-1, :-1]))
    per_unit = residuals.trace - 2 * float(np.sum(residuals.gram * known)) + absorbed
    found = solved.overdispersion()
    assert found.ratio == pytest.approx(squares / expected, rel=1e-6)
    assert found.step == pytest.approx((squares - expected) / per_unit, rel=1e-6)


def test_residuals_grow_with_the_hashing_that_the_fit_does_not_absorb(unseen_seed: int) -> None:
    """r = d - X K h with d the bits and h the score of 50 strings: the growth is the mean of r'S^-1 r, whatever K is."""
    rng = np.random.default_rng(unseen_seed)
    reports = simulated(PARAMS, dict.fromkeys(NAMES, 100), 1)
    residuals = BitResiduals.from_evidence(Evidence(reports), design_matrix(NAMES, PARAMS), np.full(7, 1 / 7))
    d, h, k = rng.normal(size=(256, 50)), rng.normal(size=(8, 50)), rng.normal(size=(7, 8)) / 10
    weighted = residuals.weights[:, None] * d
    residuals = replace(residuals, trace=float(np.sum(weighted * d)) / 50)
    hashing = HashMoments(h @ h.T / 50, residuals.columns.T @ weighted @ h.T / 50)
    none, shares = np.zeros((7, 7)), np.full(7, 0.1)
    found = float(residuals.weights @ (residuals.bits - residuals.columns @ shares) ** 2)
    per_unit = float(np.sum(residuals.weights[:, None] * (d - residuals.columns @ k @ h) ** 2)) / 50
    assert residuals.overdispersion(shares, none, k, hashing).step == pytest.approx((found - 256) / per_unit)


def test_string_scores_sum_the_weights_of_a_strings_bits() -> None:
    """X' S^-1 (b - w) of two strings in cohort 2, one of them with a single bit."""
    reports = simulated(PARAMS, dict.fromkeys(NAMES, 100), 1)
    residuals = BitResiduals.from_evidence(Evidence(reports), design_matrix(NAMES, PARAMS), np.full(7, 1 / 7))
    strings = np.zeros((256, 2))
    strings[64:96] = -2 / 32
    strings[[64 + 3, 64 + 31], 0] += 1
    strings[64 + 7, 1] += 1
    expected = residuals.columns.T @ (residuals.weights[:, None] * strings)
    assert residuals.string_scores(2, np.array([[3, 31], [7, 32]])) == pytest.approx(expected)


def test_mixed_fit_without_noise_is_exact_among_the_reporters() -> None:
    """sqrt(x (1 - x) / N) would be .014: the choice of the reporters is no error of their shares."""
    params = Params(num_bits=64, num_hashes=2, num_cohorts=4, prob_p=0, prob_q=1, prob_f=0)
    reports = simulated(params, {"v0": 300, "v1": 400, "v2": 60}, 4, no_value=240)
    fitted = fit_reports_mixed(Evidence(reports), design_matrix(NAMES, params))
    assert fitted.shares == pytest.approx(np.array([300, 400, 60, 0, 0, 0]) / 1000, abs=1e-3)
    assert np.sqrt(fitted.reporter_variances).max() < 0.002


def test_directions_without_information_are_left_out() -> None:
    root = np.random.default_rng(1).normal(size=(8, 4))
    a, scored = root @ root.T, Scored(1)
    model = ScoreModel.from_score(scored.z, scored.g, a, a, scored.hashing, None, N, scored.model.residuals)
    assert model.features.shape == (4, 8)


def test_mixed_fit_of_few_candidates_agrees_with_fixed_effects(unseen_seed: int) -> None:
    """20,000 reports, a quarter without a value: with clear shares the priors hardly matter.

    Both estimates use all of the reports, so they differ by a small part of a standard error.
    """
    people = {"v0": 8_000, "v1": 4_000, "v2": 1_500, "other": 1_500}
    reports = simulated(PARAMS, people, unseen_seed, no_value=5_000)
    evidence, design = Evidence(reports), design_matrix(NAMES, PARAMS)
    mixed, fixed = fit_reports_mixed(evidence, design), fit_reports_one_step(evidence, design)
    errors = np.sqrt(fixed.variances)
    truth = np.array([people.get(name, 0) for name in NAMES]) / 20_000
    assert np.abs(mixed.shares - fixed.shares).max() < 0.5 * errors.max()
    assert np.sqrt(mixed.variances) == pytest.approx(errors, rel=0.15)
    assert np.sum((mixed.shares - truth) ** 2 / mixed.variances) < chi2.isf(ALPHA, len(NAMES))
    assert mixed.totals == pytest.approx(fixed.totals, abs=0.5 * np.sqrt(fixed.total_variances).max())
    assert mixed.cumulants is not None


@pytest.mark.slow
def test_unlisted_variance_is_right_with_many_candidates_in_few_cohorts(unseen_seed: int) -> None:
    """One unlisted string of 20 %, and 60 candidates for the 192 bits of 4 cohorts, with little noise.

    In 6 populations tau**2 was .94 of the square, with a standard deviation of .07; each of 4 is in .5 to 1.5 except with
    probability below 1e-6.
    """
    rng = np.random.default_rng(unseen_seed)
    params = Params(num_bits=48, num_hashes=2, num_cohorts=4, prob_p=0.05, prob_q=0.95, prob_f=0)
    for _ in range(4):
        tag = int(rng.integers(1 << 30))
        people = {f"{tag}-{i}": 6000 // (i + 1) for i in range(60)}
        unlisted = 0.25 * sum(people.values())
        reports = simulated(params, people | {f"{tag}-unlisted": int(unlisted)}, int(rng.integers(1 << 62)))
        fitted = fit_reports_mixed(Evidence(reports), design_matrix(list(people), params))
        assert fitted.nuisance.unlisted_variance == pytest.approx((unlisted / reports.num_reports) ** 2, rel=0.5)
        assert fitted.nuisance.unlisted_variance_error < 0.3 * fitted.nuisance.unlisted_variance


@pytest.mark.slow
def test_totals_of_reports_err_by_their_standard_errors(unseen_seed: int) -> None:
    """24 random populations, a few cohorts, 10 to 60 candidates and an unlisted string of 5 to 20 %: z**2 is 1 on average.

    Each total is one draw of chi-squared with one degree of freedom; the mean of 24 is in [.15, 3.1] except with probability 1e-6.
    In 35 populations it was .71 (listed), .72 (unlisted) and .82 ("no value").
    """
    rng = np.random.default_rng(unseen_seed)
    squares = []
    for _ in range(24):
        tag = int(rng.integers(1 << 30))
        q = rng.uniform(0.7, 0.95)
        params = Params(
            num_bits=int(rng.integers(20, 49)),
            num_hashes=int(rng.integers(1, 4)),
            num_cohorts=int(rng.integers(4, 17)),
            prob_p=1 - q,
            prob_q=q,
            prob_f=0,
        )
        listed = int(rng.integers(10, 61))
        people = {f"{tag}-{i}": 1 + round(1500 / (i + 1)) for i in range(listed)}
        unlisted, no_value = (round(sum(people.values()) * rng.uniform(0.05, 0.2)) for _ in range(2))
        others = {f"{tag}-unlisted": unlisted} | {f"{tag}-small{i}": 1 for i in range(200)}
        reports = simulated(params, people | others, int(rng.integers(1 << 62)), no_value)
        decoding, n = decode(reports, [*people, *(f"{tag}-absent{i}" for i in range(10))]), reports.num_reports
        truth = (sum(people.values()) / n, (unlisted + 200) / n, no_value / n)
        totals = (decoding.listed_total, decoding.unlisted, decoding.no_value)
        squares.append([((t.share - x) / t.std_error) ** 2 for t, x in zip(totals, truth, strict=True)])
    low, high = chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], 24) / 24
    means = np.nanmean(squares, axis=0)  # nan: a total that the reports do not determine
    assert np.isnan(squares).mean() < 0.2
    assert np.all((low < means) & (means < high)), means


def test_sum_constraint_makes_totals_sum_to_one() -> None:
    """Candidates, unlisted and no value together; also with known noise, up to its least error."""
    one, flags = Scored(5), np.array([True] * 4 + [False] * 2)
    for model, least in ((one.model, 0.0), (one.knowing, 3 * (0.1 / N) ** 2)):
        sums = model.with_sum_constraint().totals(one.priors, 0.01, flags)
        assert sums.shares.sum() == pytest.approx(1, abs=1e-3)
        assert abs(sums.covariance.sum() - least) < 1e-3 * np.trace(sums.covariance)
    assert abs(one.model.totals(one.priors, 0.01, flags).shares.sum() - 1) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(("h", "of_bits", "of_fixed"), [(1, 1.1, 1.1), (2, 1.0, 1.2)])
def test_mixed_effects_are_closer_to_the_truth_than_bit_counts_and_fixed_effects(
    h: int, of_bits: float, of_fixed: float, unseen_seed: int
) -> None:
    """Two populations, 158 candidates to 305 numbers, half of them absent; a tenth of the strings has no candidate.

    Root mean squared errors, one hash: .968 (standard deviation .011) of those of bit counts, .72 (.05) of those of fixed effects; two
    hashes: .80 (.02) and .89 (.03), in 25 runs each. The bounds are 7 to 12 standard deviations away, since the tails are unknown.
    Estimates of one fit depend on each other, so the intervals count as half as many independent ones. Coverage of present and of
    absent candidates is tested at .95 with the binomial's 1e-6 quantile.
    """
    params = Params(num_bits=20, num_hashes=h, num_cohorts=16, prob_p=0.25, prob_q=0.75, prob_f=0.25)
    rng = np.random.default_rng(unseen_seed)
    covered: dict[bool, list[bool]] = {True: [], False: []}
    squares = np.zeros(3)
    for _ in range(2):
        tag = int(rng.integers(1 << 30))
        people = {f"{tag}-{i}": 4000 // (i + 1) for i in range(88)}
        names = [*list(people)[:5], *list(people)[15:], *(f"{tag}-nobody{i}" for i in range(80))]
        reports, design = simulated(params, people, int(rng.integers(1 << 62)), 1000), design_matrix(names, params)
        assert not use_fixed_effects(Evidence(reports.bit_counts()), design)
        found, bits = decode(reports, names), decode(reports.bit_counts(), names)
        fixed = fit_reports_one_step(Evidence(reports), design).shares
        truth = np.array([people.get(name, 0) / reports.num_reports for name in names])
        estimates = ([found[name].share for name in names], [bits[name].share for name in names], fixed)
        squares += [np.sum((estimate - truth) ** 2) for estimate in estimates]
        for name, share in zip(names, truth, strict=True):
            covered[name in people].append(found[name].low <= share <= found[name].high)
    mixed, counted, least = np.sqrt(squares)
    assert mixed < of_bits * counted
    assert mixed < of_fixed * least
    for there in covered.values():
        assert np.mean(there) >= binom.ppf(ALPHA, len(there) // 2, 0.95) / (len(there) // 2)
