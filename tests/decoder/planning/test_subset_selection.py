"""Plans of categorical metrics: subset selection where its variance is smaller, within the epsilons."""

from __future__ import annotations

import math
from bisect import bisect_left
from datetime import date
from itertools import combinations

import numpy as np
import pytest

from hubbub.mechanisms.subset import SubsetSelection
from hubbub.metrics.kinds import KindWord
from hubbub.metrics.params import one_hot_params
from hubbub.privacy import central_epsilon, epsilon
from hubbub_decoder import PlanError, Wishes, plan
from hubbub_decoder.planning.law.chain import Chain
from hubbub_decoder.planning.plan import Plan
from hubbub_decoder.planning.probabilities import chain_of, noise_of
from hubbub_decoder.planning.subset_selection import RowLimits, best_subset_selection, skewed_loss
from tests.support.enumerate_rows import row_distribution

EXPIRES = date(2030, 1, 1)


def categories(number: int, local: float, **wishes: float) -> Plan:
    fields = {"num_reports": 10_000, **wishes}
    return plan(Wishes(kind=KindWord.CATEGORICAL, epsilon=local, num_candidates=number, **fields), expires=EXPIRES)  # type: ignore[arg-type]  # integers and floats


@pytest.mark.parametrize(("local", "most"), [(1.0, 0.013), (2.0, 0.005), (4.0, 0.0015)])
def test_a_rare_one_of_three_categories_has_a_small_standard_error(local: float, most: float) -> None:
    planned = categories(3, local)
    assert planned.description.accuracy.std_error(0.0) <= most
    assert planned.other is not None
    assert planned.other > 2
    assert planned.notes[0].startswith("Subset selection, one row for all values, is chosen")


@pytest.mark.parametrize("local", [1.0, 2.0, 4.0])
@pytest.mark.parametrize("number", [2, 5, 30])
def test_variance_is_that_of_the_best_oracle(number: int, local: float) -> None:
    """Against all w with the whole epsilon in one report (Ye and Barg 2018): q = w r / (w r + d - w), r = e**eps."""
    planned, d, r = categories(number, local), number + 1, math.exp(local)
    share = 1 / number
    best = min(
        float(
            Chain(*map(np.asarray, (1.0, 0.0, (w - q) / (d - 1), q))).noise(
                share, planned.description.accuracy.repetition
            )
        )
        for w in range(1, d)
        for q in (w * r / (w * r + d - w),)
    )
    mechanism = planned.metric.params.mechanism
    found = float(Chain.of_mechanism(mechanism).noise(share, planned.description.accuracy.repetition))
    assert found <= 1.01 * best


def test_plans_keep_both_epsilons_and_are_never_worse_than_unary_encoding(unseen_seed: int) -> None:
    rng = np.random.default_rng(unseen_seed)
    for _ in range(6):
        local, number = float(rng.uniform(0.5, 4)), int(rng.choice([2, 3, 8, 40]))
        longitudinal = local * float(rng.uniform(1, 4))
        hold = None if rng.random() < 0.5 else int(rng.integers(1, 10))
        wishes = Wishes(
            kind=KindWord.CATEGORICAL,
            epsilon=local,
            longitudinal=longitudinal,
            num_candidates=number,
            num_reports=10**5,
            periods=int(rng.choice([1, 7, 30])),
            hold=hold,
            longitudinal_periods=None if hold is None else 30,
        )
        planned = plan(wishes, expires=EXPIRES)
        metric = planned.metric
        assert epsilon(metric) <= local + 1e-9, wishes
        unit = wishes.epsilon_unit
        assert unit is None or epsilon(metric, wishes.hold or math.inf) <= unit + 1e-9, wishes
        share = 1 / number
        unary = noise_of(wishes, share, chain_of(wishes, share))
        assert (
            float(Chain.of_mechanism(metric.params.mechanism).noise(share, planned.description.accuracy.repetition))
            <= 1.1 * unary
        )


def test_epsilons_of_a_plan_are_those_of_the_enumerated_mechanism() -> None:
    mechanism = best_subset_selection(
        RowLimits(num_values=4, report=1.5, unit=3.0),
        1 / 3,
        categories(3, 1.5, longitudinal=3.0, periods=7).description.accuracy.repetition,
    )
    assert isinstance(mechanism, SubsetSelection)
    laws = np.array(row_distribution(mechanism, 1))
    assert 1.499 < math.log((laws.max(axis=0) / laws.min(axis=0)).max()) <= 1.5


def chain(local: float) -> Chain:
    """Best unary encoding of four categories, for a share of 1/4."""
    return chain_of(Wishes(kind=KindWord.CATEGORICAL, epsilon=local, num_candidates=4, num_reports=1_000), 0.25)


def test_mechanisms_are_compared_at_equal_central_epsilon() -> None:
    """Each has the largest epsilon that the central one leaves, and the one with the smaller variance is chosen."""
    with pytest.raises(PlanError, match=r"`central = 0\.0001` is not reached"):
        categories(3, 2.0, central=0.0001)
    planned = categories(4, 4.0, central=1.2, num_reports=1_000)
    metric, local = planned.metric, epsilon(planned.metric)
    assert 1.15 < central_epsilon(metric, 1_000, 1e-9) <= 1.2
    assert planned.notes[0] == f"The central epsilon of 1.2 leaves epsilon = {local:.3g} for a report, not 4."
    assert isinstance(metric.params.mechanism, SubsetSelection)
    # hundredths of epsilon
    lower = (
        bisect_left(
            range(100, 401),
            1.2,
            key=lambda hundredths: central_epsilon(
                one_hot_params(4, chain(hundredths / 100).within_epsilons()), 1_000, 1e-9
            ),
        )
        / 100
        + 1
    )
    unary = noise_of(planned.wishes, 0.25, chain(float(lower)))
    rows = noise_of(planned.wishes, 0.25, Chain.of_mechanism(metric.params.mechanism))
    assert planned.other == pytest.approx(unary / rows, rel=0.03)
    planned = categories(3, 2.0, central=0.2, num_reports=20_000)
    assert central_epsilon(planned.metric, 20_000, 1e-9) == planned.description.of_totals.epsilon <= 0.2


@pytest.mark.parametrize(("d", "w", "a"), [(5, 2, 1.0), (6, 3, 0.6), (7, 3, 1.0), (4, 1, 0.7)])
def test_loss_of_bit_counts_is_that_of_the_fisher_information_of_all_rows(d: int, w: int, a: float) -> None:
    """Variance of the difference of two small shares, from counts and from the information of whole rows."""
    mechanism = SubsetSelection(num_values=d, num_ones=w, prob_q=0.8, permanent_q=a)
    shares, laws = np.array([0.9, *[0.1 / (d - 1)] * (d - 1)]), np.array(row_distribution(mechanism, 1))
    f, contrast = shares @ laws, np.array([0.0, 1, -1, *[0] * (d - 3)])
    basis = np.linalg.svd(np.ones((1, d)))[2][1:].T  # of the vectors with sum 0
    covariance = basis @ np.linalg.inv(basis.T @ (laws / f) @ laws.T @ basis) @ basis.T
    rows = np.array([[float(v in row) for row in combinations(range(d), w)] for v in range(d)])
    counted = (contrast @ rows) ** 2 @ f / (mechanism.q_star - mechanism.p_star) ** 2
    assert skewed_loss(mechanism) == pytest.approx(counted / (contrast @ covariance @ contrast), rel=1e-9)


def test_plan_states_what_bit_counts_lose() -> None:
    loss = "Where one value has 90 % of the clients, the others have 1.41 times the variance"
    assert any(note.startswith(loss) for note in categories(30, 2.0).notes)
    assert not any("whole rows" in note for note in categories(5, 4.0).notes)


def test_plan_of_few_strings_says_what_categories_would_need() -> None:
    planned = plan(Wishes(epsilon=4, num_candidates=10, num_reports=10_000), expires=EXPIRES)
    listed = categories(10, 4.0, share=planned.smallest)
    needed = f"a categorical metric needs {listed.reports_needed:,.0f} reports to detect"
    assert sum(needed in note for note in planned.notes) == 1
    assert planned.reports_needed > 3 * listed.reports_needed
    for wishes in ({"num_candidates": 1_000}, {"longest": 4, "alphabet": "ab"}):
        many = plan(Wishes(epsilon=1, num_reports=1_000_000, **wishes), expires=EXPIRES)
        assert not any("categorical" in note for note in many.notes)


def test_plan_of_numbers_compares_the_mechanisms() -> None:
    planned = plan(Wishes(kind=KindWord.ORDINAL, epsilon=2.0, num_candidates=10, num_reports=40_000), expires=EXPIRES)
    assert isinstance(planned.metric.params.mechanism, SubsetSelection)
    assert planned.other is not None
    assert planned.other > 1.5
