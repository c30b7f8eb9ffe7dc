"""Variance laws: against the decoder's covariances, by enumeration, and against decoded simulations."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import norm

from hubbub import Metric, Params, UnaryResponse
from hubbub_decoder import decode
from hubbub_decoder.estimators.categories import total_variance
from hubbub_decoder.model.pattern_likelihood import FilterTable, repeated_score_covariance
from hubbub_decoder.model.repetition import Repetition
from hubbub_decoder.planning.law.accuracy import Data, StringAccuracy
from hubbub_decoder.planning.law.chain import Chain
from hubbub_decoder.planning.law.collisions import Shares, least_variance, posterior_variances, uneven_load_variance
from hubbub_decoder.planning.law.likelihood import LikelihoodLaw, johnson_eigenvalues
from hubbub_decoder.simulation import simulate
from tests.support.planned_accuracy import DATA, draw_case, draw_planned_case, mean_ratio, measure

ALPHA = 1e-6
RESPONSES = ({"prob_f": 0.0}, {"prob_f": 0.5}, {"permanent_p": 0.1, "permanent_q": 0.7})


def params(k: int, h: int, m: int, **response: float) -> Params:
    return Params(num_bits=k, num_hashes=h, num_cohorts=m, prob_p=0.125, prob_q=0.625, **response)  # type: ignore[arg-type]


@pytest.mark.parametrize("response", RESPONSES, ids=str)
@pytest.mark.parametrize("reports", [1, 3, math.inf])
@pytest.mark.parametrize(
    ("num_bits", "possible_ones"), [(16, (0, 2)), (1, (0, 1)), (3, (0, 2)), (5, (1, 2, 4)), (8, (8, 0)), (64, (0, 1))]
)
def test_epsilon_of_a_chain_is_that_of_its_mechanism(
    response: dict[str, float], reports: float, num_bits: int, possible_ones: tuple[int, ...]
) -> None:
    mechanism = params(16, 2, 1, **response).mechanism
    expected = mechanism.epsilon(num_bits, possible_ones, reports)
    assert float(Chain.of_mechanism(mechanism).epsilon(num_bits, possible_ones, reports)) == pytest.approx(expected)


@pytest.mark.parametrize("response", RESPONSES, ids=str)
@pytest.mark.parametrize("repetition", [Repetition(), Repetition(4, 4), Repetition(4, 2.5)], ids=str)
def test_noise_is_the_decoders_variance_of_a_category(response: dict[str, float], repetition: Repetition) -> None:
    one_hot = Params.one_hot(4, prob_p=0.125, prob_q=0.625, **response)
    law = Chain.of_mechanism(one_hot.mechanism).noise(0.3, repetition) / (1000 * repetition.per_client)
    reports = round(1000 * repetition.per_client)
    assert float(law) == pytest.approx(total_variance(0.3, 1, reports, one_hot, repetition))


NOISE = {"much": (0.125, 0.625, 0.25), "little": (0.02, 0.9, 0.0), "hardly any": (0.0005, 0.999, 0.0)}


@pytest.mark.parametrize(
    ("noise", "k", "h", "m", "tolerance"),
    [
        ("much", 32, 1, 32, 0.03),
        ("much", 16, 2, 32, 0.03),
        ("much", 64, 1, 16, 0.03),
        pytest.param("little", 32, 1, 256, 0.03, marks=pytest.mark.slow),
        pytest.param("little", 128, 2, 128, 0.05, marks=pytest.mark.slow),
        pytest.param("hardly any", 32, 1, 256, 0.1, marks=pytest.mark.slow),
    ],
)
def test_bit_law_is_the_declared_variance_of_least_squares(
    noise: str, k: int, h: int, m: int, tolerance: float
) -> None:
    """6 unequal shares and ten million reports, on average over 6 lists.

    The declared variance depends on the hashing. With hardly any noise it comes from the 720 collisions of two candidates alone, with a
    standard error of 4 %. Then the candidates' samples in the cohorts decide: without them the law is too small by a factor of 6.9.
    """
    p, q, f = NOISE[noise]
    definition = Params(num_bits=k, num_hashes=h, num_cohorts=m, prob_p=p, prob_q=q, prob_f=f)
    metric, clients = Metric.string("s", definition), 10_000_000
    shares, ratios = Shares.zipf(6), []
    law = StringAccuracy(
        size=(k, h, m),
        chain=Chain.of_mechanism(definition.mechanism),
        clients=clients,
        repetition=Repetition(),
        shares=shares,
    )
    for run in range(6):
        people = {f"{run} {i}": round(clients * share) for i, share in enumerate(shares.values)}
        counts = simulate(metric, people, np.random.default_rng(run))
        declared = np.mean([estimate.std_error**2 for estimate in decode(counts, list(people))])
        ratios.append(declared / shares.mean(law.variance(shares.values)))
    assert np.mean(ratios) == pytest.approx(1, abs=tolerance)


@pytest.mark.parametrize("response", RESPONSES, ids=str)
@pytest.mark.parametrize("repetition", [Repetition(), Repetition(3, 3), Repetition(4, 2.5)], ids=str)
@pytest.mark.parametrize("h", [1, 2, 3])
def test_likelihood_law_is_the_information_of_all_filters(
    h: int, repetition: Repetition, response: dict[str, float]
) -> None:
    """6 bits: I, E and V over all filters, with every string a random one; a share of 0, without and with collisions."""
    definition, others, cohorts, clients = params(6, h, 4, **response), 0.8, 4, 1000.0
    table = FilterTable.from_params(definition)
    theta = others * table.probabilities + (1 - others) * (table.filters == 0)
    pi = table.mixture(theta)
    information = table.information(1 / pi)
    extra = repeated_score_covariance(table.filters, theta, pi, information, definition, repetition)
    noise = np.linalg.inv(information) @ (information + extra) @ np.linalg.inv(information)
    law = LikelihoodLaw(Chain.of_mechanism(definition.mechanism), 6, h, repetition, Shares.average(others))
    number = len(table.filters) - 1
    contrast = np.zeros((number + 1, number))
    contrast[1:] = np.eye(number) - 1 / number
    for unknown in (0.0, 0.01):
        covariance = cohorts * noise / (clients * repetition.per_client) + unknown * table.covariance
        precision = np.linalg.pinv(covariance, hermitian=True, rcond=1e-12)
        expected = 1 / (cohorts * np.mean(np.diag(contrast.T @ precision @ contrast)))
        assert law.absent_variance(cohorts, clients, unknown) == pytest.approx(expected, rel=1e-4)


def test_score_of_one_candidate_is_the_average_over_filters() -> None:
    law = LikelihoodLaw(
        Chain.of_mechanism(params(10, 2, 1, prob_f=0.25).mechanism), 10, 2, Repetition(), Shares.zipf(20, 0.7)
    )
    assert law.variance(0.0) == pytest.approx(law.absent_variance(1, 1.0, 0.0), rel=1e-6)


@pytest.mark.parametrize("data", ["bits", "reports"])
def test_variance_is_in_inverse_proportion_to_the_clients(data: Data) -> None:
    """Much noise, 49 candidates: their variances sum to 1.2 with 4,000 clients, and to 490 with 10."""
    chain = Chain.of_mechanism(UnaryResponse(prob_p=0.74, prob_q=0.81, permanent_p=0.27, permanent_q=0.73))
    of_one = []
    for clients in (10, 4_000, 100_000):
        law = StringAccuracy(
            size=(67, 2, 32), chain=chain, clients=clients, repetition=Repetition(), shares=Shares.zipf(49), data=data
        )
        of_one.append(clients * float(law.variance(0.01)))
    assert of_one == pytest.approx([of_one[-1]] * 3, rel=1e-6)


def test_johnson_eigenvalues_match_a_dense_matrix() -> None:
    sets = [sum(1 << i for i in members) for members in itertools.combinations(range(6), 3)]
    values = np.array([0.3, -1.0, 2.0, 5.0])
    dense = np.array([[values[(a & b).bit_count()] for a in sets] for b in sets])
    expected = np.linalg.eigvalsh(dense)
    found = np.repeat(johnson_eigenvalues(values, 6), [1, 5, 9, 5])
    assert np.sort(found) == pytest.approx(expected)


def test_uneven_load_is_the_harmonic_mean_over_the_hashing() -> None:
    """All sets of the other strings; the last candidate is not listed."""
    shares, slope, chance = np.array([0.4, 0.3, 0.2, 0.1]), 1.5, 0.2
    own, alpha = np.array([0.4, 0.1, 0.0]), np.array([0.2, 0.001, 3.0])
    law = uneven_load_variance(Shares.of(shares), own, alpha, slope, chance)
    for others, least, found in zip((shares[1:], shares[:3], shares), alpha, law, strict=True):
        inverse = sum(
            chance ** sum(set_) * (1 - chance) ** (len(others) - sum(set_)) / (least + slope * np.dot(set_, others))
            for set_ in itertools.product((0, 1), repeat=len(others))
        )
        assert found == pytest.approx(1 / inverse, rel=1e-4)
    assert least_variance(Shares.of(shares), own, law, slope, chance) == pytest.approx(alpha, rel=1e-3)


@pytest.mark.parametrize("response", RESPONSES, ids=str)
@pytest.mark.parametrize("h", [1, 2])
def test_scores_average_the_inverse_of_the_mixture_over_the_hashing(h: int, response: dict[str, float]) -> None:
    """All hashings of three strings on 5 bits: E(1/f) of a report, at a share that is listed and at one that is not."""
    shares, k = np.array([0.5, 0.2, 0.1]), 5
    definition = params(k, h, 1, **response)
    law = LikelihoodLaw(Chain.of_mechanism(definition.mechanism), k, h, Repetition(), Shares.of(shares))
    sets = [sum(1 << i for i in bits) for bits in itertools.combinations(range(k), h)]
    set_, unset = (
        definition.mechanism.q_star / definition.mechanism.p_star,
        (1 - definition.mechanism.q_star) / (1 - definition.mechanism.p_star),
    )

    def ratio(report: int, string: int) -> float:
        return float(set_ ** (report & string).bit_count() * unset ** (h - (report & string).bit_count()))

    for own, others in ((0.2, [0.5, 0.1]), (0.0, [0.5, 0.2, 0.1])):
        _, scores = law._scores(own)
        for report in (0, 1, 0b110, 0b10111):
            mixtures = [
                own * ratio(report, sets[0])
                + sum(x * ratio(report, u) for x, u in zip(others, hashing, strict=True))
                + 0.2
                for hashing in itertools.product(sets, repeat=len(others))
            ]
            ones = (report & sets[0]).bit_count()
            assert scores[2, ones, report.bit_count() - ones] == pytest.approx(
                np.mean(1 / np.array(mixtures)), rel=1e-4
            )


@pytest.mark.parametrize("collisions", [0.0, 0.2, 1.0])
@pytest.mark.parametrize(("p", "q"), [(0.02, 0.6), (0.11, 0.82), (0.4, 0.6)], ids=["least noise", "little", "much"])
def test_pattern_law_is_the_information_of_cohorts_with_uneven_loads(p: float, q: float, collisions: float) -> None:
    """400 random cohorts of a fixed seed: J of message passing with the expected shares, candidates known apart from one.

    collisions : noise of a filter's share in a cohort, in that of a report
    """
    definition = Params(num_bits=12, num_hashes=1, num_cohorts=400, prob_p=p, prob_q=q, prob_f=0.0)
    law = StringAccuracy(
        size=(12, 1, 400),
        chain=Chain.of_mechanism(definition.mechanism),
        clients=1.0,
        repetition=Repetition(),
        shares=Shares.zipf(30),
        data="patterns",
    )
    table, rng, weights = FilterTable.from_params(definition), np.random.default_rng(1), 1 / np.arange(1, 31)
    shares, filters = weights / weights.sum(), np.flatnonzero(table.filters)
    fixed = np.column_stack([table.probabilities, table.filters == 0]).astype(float)
    square, shared, of_fixed = np.zeros(30), np.zeros((30, 2)), np.zeros((2, 2))
    for _ in range(400):
        columns = np.eye(13)[rng.choice(filters, 30)]
        theta = 0.999 * shares @ columns + 0.001 * fixed[:, 1]
        information = table.information(1 / table.mixture(theta))
        noise = np.linalg.inv(information) + 12 * collisions * table.covariance
        deviations = columns - table.probabilities
        square += np.einsum("vf,vf->v", deviations, np.linalg.solve(noise, deviations.T).T)
        shared += deviations @ np.linalg.solve(noise, fixed)
        of_fixed += fixed.T @ np.linalg.solve(noise, fixed)
    known = square - np.einsum("vi,ij,vj->v", shared, np.linalg.inv(of_fixed), shared)
    expected = law._variance(shares, collisions * 12 * 400)
    assert np.mean(400 / known - shares) == pytest.approx(np.mean(expected), rel=0.02)


def test_posterior_variance_of_one_group_is_that_of_a_normal_prior() -> None:
    found = posterior_variances(Shares.of(np.full(5, 0.2)), np.array([0.01]))
    assert float(found[0]) == pytest.approx(1 / (1 / 0.01 + 1 / 0.06**2), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("data", DATA)
def test_predicted_variance_is_delivered(data: str, unseen_seed: int) -> None:
    """Squared error over predicted variance within 5 % on average over 3 random definitions, beyond chance at alpha = 1e-6."""
    cases = [draw_case(DATA.index(data) + 3 * i, unseen_seed) for i in range(3)]
    outcomes = [measure(case, 100, np.random.default_rng((unseen_seed, i))) for i, case in enumerate(cases)]
    ratio, _ = mean_ratio(outcomes)
    error = math.sqrt(sum((outcome.error / outcome.predicted) ** 2 for outcome in outcomes)) / len(outcomes)
    assert abs(ratio - 1) <= 0.05 + norm.isf(ALPHA / 2) * error


@pytest.mark.slow
def test_plans_deliver_their_variance(unseen_seed: int) -> None:
    """Random wishes with little noise: squared error over predicted variance within 5 % on average over 4 plans, at alpha = 1e-6.

    The mean of about 400 squares has a standard error of .07 to .1, so a law that is too small by a factor of 1.7 fails with power .8.
    """
    outcomes = [
        measure(draw_planned_case(i, unseen_seed), 100, np.random.default_rng((unseen_seed, i))) for i in range(4)
    ]
    ratio, _ = mean_ratio(outcomes)
    error = math.sqrt(sum((outcome.error / outcome.predicted) ** 2 for outcome in outcomes)) / len(outcomes)
    assert abs(ratio - 1) <= 0.05 + norm.isf(ALPHA / 2) * error
