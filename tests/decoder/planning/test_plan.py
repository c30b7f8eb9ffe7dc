"""`plan`: definitions within the stated epsilons, sizes, errors."""

from __future__ import annotations

import math
from datetime import date

import numpy as np
import pytest

from hubbub.metrics.definitions import parse_definitions
from hubbub.metrics.metric import Kind
from hubbub.privacy import epsilon
from hubbub_decoder.planning.plan import plan
from hubbub_decoder.planning.wishes import PlanError, Wishes

TOMORROW = date(2099, 1, 1)


def test_toml_is_the_planned_definition() -> None:
    planned = plan(Wishes(epsilon=2, reports=1_000_000, candidates=1000), name="homepage", expires=TOMORROW)
    assert parse_definitions(planned.toml())["homepage"] == planned.metric


@pytest.mark.parametrize("kind", list(Kind))
def test_rounded_probabilities_keep_the_epsilons(kind: Kind, unseen_seed: int) -> None:
    rng = np.random.default_rng(unseen_seed)
    for _ in range(5):
        report = float(np.exp(rng.uniform(-2, 1.5)))
        wishes = Wishes(kind=kind, epsilon=report, reports=100_000, candidates=1 if kind is Kind.BOOLEAN else 20)
        assert epsilon(plan(wishes, expires=TOMORROW).metric.params) <= report


def test_one_report_needs_no_permanent_response() -> None:
    params = plan(Wishes(epsilon=2, reports=1_000_000, candidates=1000), expires=TOMORROW).metric.params
    assert (params.num_hashes, params.prob_f) == (1, 0)
    assert params.prob_q == pytest.approx(0.5, abs=0.005)
    assert params.prob_p == pytest.approx(1 / (math.exp(2) + 1), abs=0.002)


def test_plan_states_the_reports_that_a_share_needs() -> None:
    planned = plan(Wishes(epsilon=1, share=0.01, candidates=100), expires=TOMORROW)
    assert planned.accuracy.clients == planned.reports_needed
    assert planned.accuracy.detection_limit(0.8) == pytest.approx(0.01, rel=0.01)


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        ({"epsilon": 0, "reports": 10}, "epsilon must be a number above 0, got 0"),
        ({"epsilon": 1}, "Neither reports nor share is given"),
        ({"epsilon": 1, "reports": 10, "share": 1.0}, "share must be above 0 and below 1"),
        ({"epsilon": 1, "reports": 10, "kind": "boolean", "candidates": 3}, "a boolean metric has one bit"),
        ({"epsilon": 1, "reports": 10, "kind": "categorical", "candidates": 2000}, "2 to 1024 categories"),
        ({"epsilon": 1, "reports": 10, "hold": 7}, "without lifetime"),
        ({"epsilon": 1, "reports": 10, "hold": 7, "lifetime": 4, "values": 2}, "exclude each other"),
        ({"epsilon": 1, "share": 0.1, "central": 0.1}, "central without reports"),
        ({"epsilon": 2, "reports": 1000, "central": 0.1}, "It needs .* reports"),
        ({"epsilon": 1, "reports": 10, "kind": "text"}, "kind must be one of"),
    ],
)
def test_impossible_wish_names_the_remedy(wishes: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        plan(Wishes(**wishes), expires=TOMORROW)  # type: ignore[arg-type]
