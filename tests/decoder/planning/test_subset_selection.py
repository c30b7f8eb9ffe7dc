"""Plans of categorical metrics: subset selection where its variance is smaller, within the epsilons."""

from __future__ import annotations

import math
from datetime import date

import numpy as np
import pytest

from hubbub.mechanisms.subset import SubsetSelection
from hubbub.metrics.kinds import KindWord
from hubbub.privacy import central_epsilon, epsilon
from hubbub_decoder import PlanError, Wishes, plan
from hubbub_decoder.planning.law.chain import Chain
from hubbub_decoder.planning.plan import Plan
from hubbub_decoder.planning.probabilities import chain_of, noise_of
from hubbub_decoder.planning.subset_selection import RowLimits, best_subset_selection
from tests.support.enumerate_rows import row_distribution

EXPIRES = date(2030, 1, 1)


def categories(number: int, local: float, **wishes: float) -> Plan:
    fields = {"num_reports": 10_000, **wishes}
    return plan(Wishes(kind=KindWord.CATEGORICAL, epsilon=local, num_candidates=number, **fields), expires=EXPIRES)  # type: ignore[arg-type]  # integers and floats


@pytest.mark.parametrize(("local", "most"), [(1.0, 0.013), (2.0, 0.005), (4.0, 0.0015)])
def test_a_rare_one_of_three_categories_has_a_small_standard_error(local: float, most: float) -> None:
    planned = categories(3, local)
    assert planned.description.accuracy.std_error(0.0) <= most
    assert planned.unary > 2
    assert "Subset selection is chosen" in planned.notes[0]


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
    for _ in range(12):
        local, number = float(rng.uniform(0.5, 4)), int(rng.choice([2, 3, 8, 40]))
        longitudinal = local * float(rng.uniform(1, 4))
        hold = None if rng.random() < 0.5 else int(rng.integers(1, 10))
        wishes = Wishes(
            kind=KindWord.CATEGORICAL, epsilon=local, longitudinal=longitudinal, num_candidates=number, num_reports=10**5,
            periods=int(rng.choice([1, 7, 30])), hold=hold, longitudinal_periods=None if hold is None else 30,
        )  # fmt: skip
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


def test_central_epsilon_is_kept() -> None:
    with pytest.raises(PlanError, match=r"`central = 0\.01` is not reached"):
        categories(3, 2.0, central=0.01)
    planned = categories(3, 2.0, central=0.2, num_reports=20_000)
    assert central_epsilon(planned.metric, 20_000, 1e-9) == planned.description.central <= 0.2
