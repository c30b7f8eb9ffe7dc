"""Message passing: against dense algebra, against the exact mixed model, and from simulation."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom, norm

from hubbub import Metric, Params
from hubbub.summary import PatternCounts
from hubbub_decoder import decode
from hubbub_decoder.array_types import Floats
from hubbub_decoder.data.populations import distribution_shares, draw_population
from hubbub_decoder.estimators.counts import pass_bit_messages
from hubbub_decoder.estimators.message_passing import HashedCohorts, MessagePassingFit, pass_messages
from hubbub_decoder.estimators.reports.mixed_effects import matching_priors
from hubbub_decoder.model.design_matrix import design_matrix
from hubbub_decoder.model.evidence import Evidence
from hubbub_decoder.model.pattern_likelihood import FilterTable, filter_indices, whiten_scores
from hubbub_decoder.simulation import simulate

ALPHA = 1e-6


def cohorts_of(
    population: dict[str, int], names: list[str], *, m: int = 32, scheme: str = "murmur3-v1", seed: int = 7
) -> HashedCohorts:
    """Pattern counts of a population, weighted as an average one."""
    params = Params(num_bits=8, num_hashes=2, num_cohorts=m, prob_p=0.25, prob_q=0.75, prob_f=0.2, hash_scheme=scheme)
    counts = simulate(Metric.string("m", params), population, np.random.default_rng(seed), form=PatternCounts)
    table = FilterTable.from_params(params)
    positions = filter_indices(design_matrix(names, params), table)[:, None]
    observations = whiten_scores(counts, table, np.tile(table.probabilities + 1e-3 * (table.filters == 0), (m, 1)))
    return HashedCohorts.from_observations(observations, positions, table.fixed_patterns, table.covariance)


def dense(cohorts: HashedCohorts) -> tuple[Floats, Floats]:
    """Columns of the candidates and fixed columns, (m r, M) and (m r, o)."""
    parts = zip(cohorts.features, cohorts.positions, strict=True)
    x = np.concatenate([a[:, taken].sum(axis=1) for a, taken in parts])
    return x, cohorts.fixed.reshape(len(x), -1)


@pytest.mark.parametrize("scheme", ["murmur3-v1", "google-md5"])
@pytest.mark.parametrize("hashes", [1, 3])
def test_hashed_cohorts_agree_with_dense_columns(scheme: str, hashes: int) -> None:
    """Predictions, scores and information of bits; coincident bits of google-md5 count once."""
    params = Params(num_bits=8, num_hashes=hashes, num_cohorts=5, prob_p=0.2, prob_q=0.7, prob_f=0, hash_scheme=scheme)
    counts = simulate(Metric.string("m", params), {"a": 5000, "b": 2000}, np.random.default_rng(1))
    cohorts = pass_bit_messages(Evidence(counts), design_matrix(list("abcdefg"), params)).cohorts
    x, fixed = dense(cohorts)
    rng = np.random.default_rng(2)
    centred = x - fixed[:, :1]
    shares, weights, vector = rng.random(7), rng.random(cohorts.spreads.shape), rng.normal(size=cohorts.spreads.shape)
    assert cohorts.predict(shares).ravel() == pytest.approx(centred @ shares)
    assert cohorts.gather(cohorts.scores(vector)) == pytest.approx(centred.T @ vector.ravel())
    assert cohorts.information(weights) == pytest.approx(np.sum(centred**2 * weights.reshape(-1, 1), axis=0))


@pytest.mark.parametrize("scheme", ["murmur3-v1", "google-md5"])
def test_messages_agree_with_the_exact_mixed_model(scheme: str, unseen_seed: int) -> None:
    """60 candidates and 900 to 1,200 numbers, with the same priors: shares within .15 standard errors, variances within .15.

    In 80 draws the largest difference of 60 shares was at most .056 standard errors, and that of the variances at most .071.
    """
    population = {f"v{i}": 200_000 // (i + 1) for i in range(80)}
    cohorts = cohorts_of(population, [f"v{i}" for i in range(60)], scheme=scheme, seed=unseen_seed)
    fit = pass_messages(cohorts)
    found = fit.estimates
    priors = matching_priors(found.shares, found.variances, fit.beliefs.means, fit.beliefs.variances)
    x, fixed = dense(cohorts)
    columns = np.column_stack([x, fixed])
    weighted = columns / (1 + fit.beliefs.unlisted_variance * cohorts.spreads.reshape(-1, 1))
    precision = np.append(1 / priors.variances, [0, 0])
    covariance = np.linalg.inv(columns.T @ weighted + np.diag(precision))
    solution = covariance @ (weighted.T @ cohorts.responses.ravel() + precision * np.append(priors.means, [0, 0]))
    posterior = np.diag(covariance)[:60]
    variances = 1 / (1 / posterior - 1 / priors.variances)  # of the cavity
    shares = variances * (solution[:60] / posterior - priors.means / priors.variances)
    assert np.abs(found.shares - shares).max() < 0.15 * np.sqrt(variances.mean())
    assert found.variances == pytest.approx(variances, rel=0.15)
    assert found.fixed_effects == pytest.approx(solution[60:], abs=0.005)


def test_totals_are_generalized_least_squares(unseen_seed: int) -> None:
    """Unknowns: two strong candidates, the sum of all others, and two fixed effects; by dense algebra."""
    population = {"heavy": 100_000, "less": 50_000} | {f"v{i}": 500 for i in range(100)}
    cohorts = cohorts_of(population, list(population), seed=unseen_seed)
    fit = pass_messages(cohorts)
    strong = fit.estimates.shares > 3.5 * np.sqrt(fit.estimates.variances)
    x, fixed = dense(cohorts)
    weak = fit.beliefs.means[~strong]
    noise = fit.beliefs.unlisted_variance + np.sum((weak - weak.mean()) ** 2 + fit.beliefs.variances[~strong])
    columns = np.column_stack([fixed, x[:, ~strong].mean(axis=1), x[:, strong]])
    weights = 1 / (1 + noise * cohorts.spreads.ravel())
    covariance = np.linalg.inv(columns.T @ (weights[:, None] * columns))
    solution = covariance @ columns.T @ (weights * cohorts.responses.ravel())
    sums = np.array([[0, 0, *np.ones(1 + strong.sum())], [1, 0, *np.zeros(1 + strong.sum())]])
    totals = fit.totals()
    assert totals.shares[:2] == pytest.approx(sums @ solution, rel=1e-5, abs=1e-6)
    assert totals.covariance[:2, :2] == pytest.approx(sums @ covariance @ sums.T, rel=1e-4)


@pytest.mark.parametrize("left_out", [None, 0, 50])
def test_scores_agree_with_the_whole_model_without_the_candidate(left_out: int | None, unseen_seed: int) -> None:
    """P_{-j} (y - X_{-j} mean_{-j}) by dense algebra, with the same priors and tau**2: correlation over all filters above .9.

    The variance of the observations is that of the residuals, 1 + t K, and that by dense algebra 1 + (tau**2 + sum_v V_v) K. Residuals may
    vary less by chance, so the scores are larger by the ratio of both. Apart from it, their standard deviations agree within 15 % (0 to 4 %
    in 60 draws).
    """
    population = {"heavy": 100_000} | {f"v{i}": 4_000 for i in range(100)}
    cohorts = cohorts_of(population, list(population), seed=unseen_seed)
    fit = pass_messages(cohorts)
    found, kept = fit.estimates, np.arange(101) != (-1 if left_out is None else left_out)
    priors = matching_priors(found.shares, found.variances, fit.beliefs.means, fit.beliefs.variances)
    x, fixed = dense(cohorts)
    x, prior_means = x[:, kept], priors.means[kept]
    s = np.diag(1 + fit.beliefs.unlisted_variance * cohorts.spreads.ravel()) + (x * priors.variances[kept]) @ x.T
    inverse = np.linalg.inv(s)
    left = cohorts.responses.ravel() - x @ prior_means
    projected = inverse @ (left - fixed @ np.linalg.solve(fixed.T @ inverse @ fixed, fixed.T @ inverse @ left))
    whole = fit.beliefs.unlisted_variance + fit.beliefs.variances.sum()
    weighted = projected.reshape(cohorts.spreads.shape) * (1 + whole * cohorts.spreads) * fit.weights
    expected = cohorts.scores(weighted).ravel()
    scores = np.concatenate(fit.scores(left_out))
    assert np.corrcoef(expected, scores)[0, 1] > 0.9
    assert np.std(scores) == pytest.approx(np.std(expected), rel=0.15)


def test_unlisted_variance_is_that_of_the_unlisted_strings(unseen_seed: int) -> None:
    """Half of all reports carry one candidate, and half carry 100 unlisted strings: tau**2 is .0025, without the .25 of the listed string.

    Its standard deviation is 2 % of that; the tolerance of a fifth is ten standard deviations.
    """
    population = {"heavy": 1_000_000} | {f"other {i}": 10_000 for i in range(100)}
    fit = pass_messages(cohorts_of(population, ["heavy", *(f"w{i}" for i in range(400))], seed=unseen_seed))
    assert fit.beliefs.unlisted_variance == pytest.approx(0.0025, rel=0.2)
    assert fit.beliefs.means[0] == pytest.approx(0.5, abs=0.05)
    assert fit.estimates.fixed_effects[0] == pytest.approx(0.5, abs=0.1)


@pytest.mark.slow
def test_a_frequent_candidate_is_subtracted_once(unseen_seed: int) -> None:
    """4 populations, 16 or 32 cohorts, 5,000 to 28,000 candidates, every string listed: tau**2 is near 0.

    Bound: a twentieth of the sum of squared shares.
    """
    rng = np.random.default_rng(unseen_seed)
    for run in range(4):
        named = distribution_shares("zipf1", int(rng.integers(500, 2_500)))
        shares = {f"{unseen_seed} {run} {name}": share for name, share in named.items()}
        people = draw_population(shares, 10_000_000, rng)
        names = [*people, *(f"{unseen_seed} {run} w{i}" for i in range(rng.integers(4_500, 25_500)))]
        cohorts = cohorts_of(people, names, m=int(rng.choice([16, 32])), seed=int(rng.integers(1 << 30)))
        fit = pass_messages(cohorts)
        assert fit.beliefs.unlisted_variance < 0.05 * sum((number / 10_000_000) ** 2 for number in people.values())


def test_weights_are_those_of_the_shares_found(unseen_seed: int) -> None:
    """Patterns of a candidate with .85 of the reports are frequent and so uncertain: an absent candidate has a smaller error than it.

    The ratio of their standard errors was .74 to .77 in 60 runs; with the weights of unlisted strings alone it is 1.
    """
    params = Params(num_bits=8, num_hashes=2, num_cohorts=8, prob_p=0.25, prob_q=0.75, prob_f=0.25)
    metric, rng = Metric.string("m", params), np.random.default_rng(unseen_seed)
    population = draw_population({"frequent": 0.85, "b": 0.1, "c": 0.05}, 100_000, rng)
    decoding = decode(
        simulate(metric, population, rng, form=PatternCounts),
        ["frequent", "b", "c", *(f"absent {i}" for i in range(40))],
    )
    absent = np.mean([decoding[f"absent {i}"].std_error for i in range(40)])
    assert absent < 0.9 * decoding["frequent"].std_error


def test_no_candidates_leave_the_fixed_effects() -> None:
    fit = pass_messages(cohorts_of({"a": 1000}, []))
    assert len(fit.estimates.shares) == 0
    assert fit.estimates.fixed_effects.sum() == pytest.approx(1, abs=0.2)
    assert fit.totals().shares[0] == 0


def test_crowded_candidates_of_few_cohorts_are_not_subtracted() -> None:
    """300 candidates in 4 cohorts: nothing is subtracted, and the noise is that of all strings. In one cohort nothing is determined."""
    population = {f"v{i}": 50_000 // (i + 1) for i in range(300)}
    fit = pass_messages(cohorts_of(population, list(population), m=4))
    assert not fit.means.any()
    n = sum(population.values())
    assert fit.beliefs.unlisted_variance == pytest.approx(sum((c / n) ** 2 for c in population.values()), rel=0.7)
    assert np.isfinite(fit.estimates.shares).all()
    single: MessagePassingFit = pass_messages(cohorts_of(population, list(population), m=1))
    assert np.isnan(single.estimates.shares).all()


@pytest.mark.parametrize(
    ("seed", "reports"),
    [
        (0, 10_000_000_000),
        *(pytest.param(seed, 10**exponent, marks=pytest.mark.slow) for seed, exponent in ((1, 8), (2, 8), (3, 10))),
    ],
)
def test_saturated_counts_give_possible_shares(seed: int, reports: int) -> None:
    """295 candidates of 80 bits, all listed, without noise: the iteration settles, or no candidate is subtracted.

    With a start from the fit under other weights, half of these ended at shares of 1e5.
    """
    rng = np.random.default_rng(seed)
    params = Params(num_bits=10, num_hashes=1, num_cohorts=8, prob_p=0.25, prob_q=0.75, prob_f=0)
    weights = 1 / np.arange(1, 296)
    numbers = rng.multinomial(reports, weights / weights.sum()).tolist()
    people = {f"s{seed}.{i}": number for i, number in enumerate(numbers)}
    decoding = decode(simulate(Metric.string("x", params), people, rng), list(people))
    z = np.array([(e.share - people[e.candidate] / reports) / e.std_error for e in decoding])
    assert max(e.std_error for e in decoding) < 0.1
    assert np.mean(z**2) < 1.5
    assert np.abs(z).max() < 10


BEST = Params(num_bits=8, num_hashes=1, num_cohorts=256, prob_p=1 / (math.exp(4) + 1), prob_q=0.5, prob_f=0)


@pytest.mark.slow
@pytest.mark.parametrize("candidates", [500, 1_000])
def test_shares_and_totals_are_right_at_the_best_parameters(candidates: int, unseen_seed: int) -> None:
    """8 populations of a million: mean squared error near the declared variance, totals within their intervals; alpha = 1e-6.

    Errors of 8 x 500 shares relative to the declared variance: 1.00 +- .03. Bounds: .8 and 1.2.
    """
    rng = np.random.default_rng(unseen_seed)
    ratios, totals = [], []
    for run in range(8):
        shares = {f"{unseen_seed} {run} {name}": s for name, s in distribution_shares("zipf1", candidates).items()}
        people = draw_population(shares, 1_000_000, rng)
        decoding = decode(simulate(Metric.string("m", BEST), people, rng, form=PatternCounts), list(people))
        errors = np.array([(e.share - people[e.candidate] / 1e6) / e.std_error for e in decoding])
        ratios.append(np.mean(errors**2))
        totals += [
            abs(total.share - truth) / total.std_error
            for total, truth in ((decoding.listed_total, 1), (decoding.unlisted, 0), (decoding.no_value, 0))
        ]
        assert decoding.unlisted.std_error < 0.03
    assert 0.8 < np.mean(ratios) < 1.2
    assert max(totals) < norm.isf(ALPHA / 48)


def test_nothing_jumps_between_300_and_301_candidates(unseen_seed: int) -> None:
    """One more absent candidate: no standard error of a share changes by more than 5 %, none of a total by more than 20 %."""
    rng = np.random.default_rng(unseen_seed)
    people = draw_population(distribution_shares("zipf1", 250), 300_000, rng)
    counts = simulate(Metric.string("m", replace(BEST, num_cohorts=64)), people, rng, form=PatternCounts)
    names = [*people, *(f"w{i}" for i in range(51))]
    fewer, more = decode(counts, names[:300]), decode(counts, names)
    for name in names[:300]:
        assert more[name].std_error == pytest.approx(fewer[name].std_error, rel=0.05)
    for before, after in ((fewer.listed_total, more.listed_total), (fewer.unlisted, more.unlisted)):
        assert after.std_error == pytest.approx(before.std_error, rel=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1, 2, 4])
def test_ten_thousand_candidates_of_bit_counts_are_all_estimated(epsilon: float, unseen_seed: int) -> None:
    """h = 1, k = 256, m = 64, a million reports: coverage .95 and error / declared variance 1, to 1.5 points and a tenth."""
    p = 1 / (math.exp(epsilon) + 1)
    params = Params(num_bits=256, num_hashes=1, num_cohorts=64, prob_p=p, prob_q=0.5, prob_f=0)
    rng = np.random.default_rng(unseen_seed)
    shares = {f"{unseen_seed} {name}": share for name, share in distribution_shares("zipf1", 10_000).items()}
    people = draw_population(shares, 1_000_000, rng)
    decoding = decode(simulate(Metric.string("m", params), people, rng), list(shares))
    truth = np.array([people.get(e.candidate, 0) / 1e6 for e in decoding])
    share, error = (np.array([getattr(e, name) for e in decoding]) for name in ("share", "std_error"))
    assert decoding.num_kept is None
    assert len(share) == 10_000
    assert np.mean(((share - truth) / error) ** 2) == pytest.approx(1, abs=0.1)
    assert np.mean([e.low <= x <= e.high for e, x in zip(decoding, truth, strict=True)]) == pytest.approx(
        0.95, abs=0.015
    )


@pytest.mark.slow
def test_more_reports_or_cohorts_find_no_fewer(unseen_seed: int) -> None:
    """2,000 candidates of 64 bits, 12 populations: paired finds do not fall by chance at 1e-6 (sign test with ties left out)."""
    rng = np.random.default_rng(unseen_seed)
    found = []
    for run in range(12):
        shares = {f"{unseen_seed} {run} {name}": s for name, s in distribution_shares("zipf1", 2_000).items()}

        def finds(m: int, reports: int, shares: dict[str, float] = shares) -> int:
            params = Params(num_bits=64, num_hashes=1, num_cohorts=m, prob_p=0.1, prob_q=0.5, prob_f=0)
            people = draw_population(shares, reports, rng)
            decoding = decode(simulate(Metric.string("m", params), people, rng), list(shares))
            return sum(e.candidate in people for e in decoding.detected)

        found.append([finds(32, 300_000), finds(32, 1_000_000), finds(64, 300_000)])
    few, more_reports, more_cohorts = np.array(found).T
    for other in (more_reports, more_cohorts):
        differences = other - few
        assert np.mean(differences) > -norm.isf(ALPHA / 2) * np.std(differences, ddof=1) / math.sqrt(12)
    assert np.mean(more_reports) > np.mean(few)
    assert binom.cdf(np.sum(more_reports > few), 12, 0.5) > ALPHA
