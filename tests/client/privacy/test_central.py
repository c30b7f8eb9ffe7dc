"""Central epsilon: the bound from the privacy blanket, against enumeration of small groups and against the exact law of one pair."""

from __future__ import annotations

import math
from itertools import combinations, pairwise, product

import numpy as np
import pytest
from scipy import stats

from hubbub import Metric, ParameterError, Params
from hubbub.mechanisms.blanket import Blanket, joined
from hubbub.mechanisms.privset import PrivSet
from hubbub.mechanisms.subset import SubsetSelection
from hubbub.mechanisms.unary import UnaryResponse
from hubbub.privacy import central_epsilon, epsilon, shuffle_amplification
from hubbub.privacy.blanket import blanket_delta
from hubbub.privacy.loss import epsilon_rounded_up
from tests.support.enumerate_mechanism import bloom_filters, report_distribution
from tests.support.enumerate_rows import row_distribution, set_distribution
from tests.support.enumerate_shuffling import Distribution, worst_deltas

DELTA = 1e-9
SYMMETRIC = {"prob_p": 0.25, "prob_q": 0.75, "prob_f": 0.25}
ASYMMETRIC = {"prob_p": 0.125, "prob_q": 0.625, "permanent_p": 0.0625, "permanent_q": 0.75}
OPTIMAL = {"prob_p": 0.25, "prob_q": 0.5, "prob_f": 0.0}  # optimized unary encoding
SETTINGS = {
    **{
        f"{k} categories, {name}": Params.one_hot(k, **probabilities)
        for k in (2, 3)
        for name, probabilities in (("optimal", OPTIMAL), ("asymmetric", ASYMMETRIC))
    },
    "boolean": Params.one_hot(1, **SYMMETRIC),
    "2 categories, symmetric": Params.one_hot(2, **SYMMETRIC),
    "2 of 3 bits": Params(num_bits=3, num_hashes=2, num_cohorts=1, mechanism=UnaryResponse(**OPTIMAL)),
    "2 of 4 bits": Params(num_bits=4, num_hashes=2, num_cohorts=1, mechanism=UnaryResponse(**ASYMMETRIC)),
    "google-md5": Params(
        num_bits=3, num_hashes=2, num_cohorts=1, hash_scheme="google-md5", mechanism=UnaryResponse(**SYMMETRIC)
    ),
    "inverted": Params.one_hot(2, prob_p=0.75, prob_q=0.25, prob_f=0.25),
}


def unary_encoding(local: float, num_bits: int = 10) -> Params:
    """Return the parameters with q = 1/2 and p = 1 / (e**eps + 1), whose reports are eps-DP (Wang et al. 2017, OUE)."""
    return Params.one_hot(num_bits, prob_p=1 / (math.exp(local) + 1), prob_q=0.5, prob_f=0)


def blanket_of(metric: Metric | Params, *epochs: float) -> Blanket:
    return joined(block.mechanism.blanket(block.num_bits, block.possible_ones, epochs) for block in metric.blocks)


def distributions(params: Params, *epochs: int) -> list[Distribution]:
    """Return the law of all reports of each value, with a permanent response in each epoch."""
    filters = bloom_filters(params.num_bits, set(params.possible_ones))
    laws = [np.ones(1)] * len(filters)
    for reports in epochs:
        laws = [
            np.kron(law, more) for law, more in zip(laws, report_distribution(params, filters, reports), strict=True)
        ]
    return [tuple(law.tolist()) for law in laws]


def assert_bounds(randomizer: list[Distribution], blanket: Blanket, local: float, n: int) -> None:
    for share in (0.02, 0.2, 0.5, 0.9):
        exact = max(worst_deltas(randomizer, n, share * local))
        assert exact <= blanket_delta(blanket, share * local, n), (share, n)


@pytest.mark.parametrize("name", SETTINGS)
def test_bound_holds_for_every_small_group(name: str) -> None:
    params = SETTINGS[name]
    for n in range(1, 5 if params.num_bits < 3 else 3):
        assert_bounds(distributions(params, 1), blanket_of(params, 1), epsilon(params), n)


@pytest.mark.parametrize("epochs", [(2,), (1, 1), (2, 1)])
def test_bound_holds_for_several_reports_and_epochs(epochs: tuple[int, ...]) -> None:
    boolean = SETTINGS["boolean"]
    local = math.fsum(epsilon(boolean, reports) for reports in epochs)
    for n in (1, 2, 3):
        assert_bounds(distributions(boolean, *epochs), blanket_of(boolean, *epochs), local, n)
    categories = SETTINGS["2 categories, asymmetric"]
    assert_bounds(distributions(categories, 2), blanket_of(categories, 2), epsilon(categories, 2), 2)


def test_bound_holds_for_joint_reports() -> None:
    boolean, categories = (
        Metric.boolean("b", UnaryResponse(**SYMMETRIC)),
        Metric.categorical("c", ("x", "y"), UnaryResponse(**ASYMMETRIC)),
    )
    joint = Metric.joint("both", (boolean, categories))
    laws = [
        np.kron(*pair).tolist()
        for pair in product(distributions(boolean.params, 1), distributions(categories.params, 1))
    ]
    for n in (1, 2):
        assert_bounds(laws, blanket_of(joint, 1), epsilon(joint), n)


@pytest.mark.parametrize(("num_values", "num_ones"), [(2, 1), (3, 1), (4, 2)])
def test_bound_holds_for_subset_selection(num_values: int, num_ones: int) -> None:
    rows = SubsetSelection(num_values=num_values, num_ones=num_ones, prob_q=0.75, permanent_q=0.75)
    for reports in (1, 2) if num_values < 4 else (1,):
        laws: list[Distribution] = list(row_distribution(rows, reports))
        blanket, local = rows.blanket(num_values, (1,), (reports,)), rows.epsilon(num_values, (1,), reports)
        for n in (1, 2, 3):
            assert_bounds(laws, blanket, local, n)


@pytest.mark.parametrize(("num_values", "max_items", "num_ones"), [(2, 1, 1), (4, 2, 1), (4, 2, 2), (5, 2, 1)])
def test_bound_holds_for_sets(num_values: int, max_items: int, num_ones: int) -> None:
    rows = PrivSet(num_values=num_values, max_items=max_items, num_ones=num_ones, prob_hit=0.9375)
    items = range(rows.num_items)
    sets = [own for size in range(len(items) + 1) for own in combinations(items, size)]
    laws: list[Distribution] = [set_distribution(rows, own) for own in sets]
    for n in (1, 2, 3):
        assert_bounds(laws, rows.blanket(num_values, (), (1,)), rows.epsilon(num_values, (), 1), n)
    two_epochs: list[Distribution] = [[x * y for x, y in product(law, repeat=2)] for law in laws[:4]]
    assert_bounds(two_epochs, rows.blanket(num_values, (), (1, 1)), 2 * rows.epsilon(num_values, (), 1), 2)
    assert rows.blanket(num_values, (), (2,)).weight == 0


@pytest.mark.parametrize(("local", "n"), [(1.0, 300), (2.0, 1_000), (4.0, 1_000)])
def test_bound_is_close_to_the_exact_law_of_the_lemma(local: float, n: int) -> None:
    """For two categories, both sums of ratios are linear in independent binomial counts of ones in the M reports of the blanket."""
    params, found = unary_encoding(local), central_epsilon(unary_encoding(local), n, DELTA)
    p, weight, high = params.mechanism.p_star, 0.5 / (1 - params.mechanism.p_star), 0.5 / params.mechanism.p_star
    exact = 0.0
    for others in range(n):
        chance = stats.binom.pmf(others, n - 1, weight)
        if chance < 1e-16:
            continue
        counts = np.arange(others + 2)
        ones = stats.binom.pmf(counts, others + 1, p)
        ratios = weight + (high - weight) * counts / (others + 1)
        gain = np.maximum(ratios[:, None] - math.exp(found) * ratios, 0)
        exact += float(chance * (ones @ gain @ ones))
    assert DELTA / 1.04 <= exact <= DELTA


@pytest.mark.parametrize(
    ("local", "n", "figure"),
    [
        (1, 1_000, 0.144),
        (1, 10_000, 0.0434),
        (1, 100_000, 0.0131),
        (2, 1_000, 0.370),
        (2, 10_000, 0.111),
        (2, 100_000, 0.0336),
        (4, 1_000, 1.20),
        (4, 10_000, 0.380),
        (4, 100_000, 0.115),
    ],
)
def test_unary_encoding_is_amplified_by_its_blanket(local: float, n: int, figure: float) -> None:
    assert central_epsilon(unary_encoding(local), n, DELTA) == pytest.approx(figure, rel=0.01)


def random_metric(rng: np.random.Generator) -> Params:
    probabilities: dict[str, float] = {"prob_p": rng.uniform(0.01, 0.45), "prob_q": rng.uniform(0.5, 0.99)}
    k = int(rng.choice([1, 2, 5, 64]))
    if k == 1 or rng.random() < 0.5:
        probabilities["prob_f"] = rng.uniform(0, 0.7)
    else:
        probabilities |= {"permanent_p": rng.uniform(0.01, 0.3), "permanent_q": rng.uniform(0.4, 0.95)}
    mechanism = UnaryResponse(**probabilities)
    h = 1 if k < 5 else int(rng.integers(1, 4))
    return (
        Params.one_hot(k, **probabilities)
        if h == 1
        else Params(num_bits=k, num_hashes=h, num_cohorts=4, mechanism=mechanism)
    )


def test_random_metrics_are_within_all_other_bounds(unseen_seed: int) -> None:
    rng = np.random.default_rng(unseen_seed)
    for _ in range(12):
        params, periods = random_metric(rng), int(rng.choice([1, 2, 7, 100]))
        local, delta = epsilon_rounded_up(params, periods) * (1 + 2**-50), float(10 ** rng.uniform(-12, -3))
        found = [central_epsilon(params, n, delta, periods) for n in (1, 30, 1_000, 10**6, 10**13)]
        assert all(more >= less > 0 for more, less in pairwise(found)), params
        assert all(
            central <= shuffle_amplification(local, n, delta)
            for central, n in zip(found, (1, 30, 1_000, 10**6), strict=False)
        ), params


def test_every_epoch_adds_to_the_epsilon() -> None:
    params = SETTINGS["2 categories, symmetric"]
    one, two, three = (central_epsilon(params, 10_000, DELTA, t, hold=1) for t in (1, 2, 3))
    assert one == central_epsilon(params, 10_000, DELTA)
    assert one < two < three < 3 * one
    assert central_epsilon(params, 10_000, DELTA, 5, hold=7) == central_epsilon(params, 10_000, DELTA, 5)


def test_more_than_64_reports_are_bounded_by_the_permanent_response() -> None:
    params = SETTINGS["2 categories, symmetric"]
    found = [central_epsilon(params, 10_000, DELTA, t) for t in (1, 7, 64, 65, math.inf)]
    assert found == sorted(found)
    assert found[3] == found[4]


@pytest.mark.parametrize(("prob_p", "prob_q"), [(0.0, 1.0), (0.0, 0.75), (0.25, 1.0), (0.25, 0.75)])
def test_more_reports_never_hide_more(prob_p: float, prob_q: float) -> None:
    """Also where all reports of a permanent bit are equal, as in the two-coin survey."""
    params = Params.one_hot(1, prob_p=prob_p, prob_q=prob_q, prob_f=0.5)
    found = [central_epsilon(params, 10_000, DELTA, t) for t in (*range(1, 20, 3), 40, 64, 65)]
    assert all(later >= earlier * (1 - 1e-4) for earlier, later in pairwise(found))
    assert found[0] > 0.01


@pytest.mark.parametrize("local", [30.0, 36.5, 40.0, 49.0, 200.0, 699.0, 746.0, 2_000.0])
def test_a_few_reports_hide_nothing_of_a_large_epsilon(local: float) -> None:
    assert shuffle_amplification(local, 1_000, DELTA) == pytest.approx(local, rel=1e-3)


@pytest.mark.parametrize(
    ("params", "periods", "hold"),
    [
        (
            Params(
                num_bits=64, num_hashes=4, num_cohorts=1, mechanism=UnaryResponse(prob_p=0.0005, prob_q=0.5, prob_f=0)
            ),
            1,
            None,
        ),
        (Params.one_hot(5, prob_p=2**-24, prob_q=0.5, prob_f=0), 2, None),
        (Params.one_hot(8, prob_p=0.45, prob_q=0.55, prob_f=0.9), 20_000, 1),
    ],
)
@pytest.mark.parametrize("delta", [1e-3, 1e-9, 1e-300, 5e-324])
def test_extreme_mechanisms_have_a_bound(params: Params, periods: int, hold: int | None, delta: float) -> None:
    for n in (1, 1_000, 10**6, 10**12):
        found = central_epsilon(params, n, delta, periods, hold)
        assert 0 <= found <= math.fsum([epsilon(params, hold or periods)] * (periods if hold else 1)) * (1 + 1e-9)


def test_infinite_epsilon_stays_infinite() -> None:
    certain = Params.one_hot(1, prob_p=0, prob_q=1, prob_f=0)
    assert central_epsilon(certain, 10**6, DELTA) == math.inf


@pytest.mark.parametrize(
    ("reports", "delta", "periods", "message"),
    [
        (0, 1e-9, 1, "reports must be an integer >= 1, got 0"),
        (True, 1e-9, 1, "reports must be an integer"),
        (10, 0.0, 1, "delta must be a number in"),
        (10, 1.0, 1, "delta must be a number in"),
        (10, 1e-9, 0, "periods must be a number in"),
    ],
)
def test_rejects_invalid_arguments(reports: int, delta: float, periods: int, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        central_epsilon(SETTINGS["boolean"], reports, delta, periods)
