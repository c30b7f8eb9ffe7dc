"""Audits of the encoder: the bound reaches the declared epsilon and does not exceed it."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from hubbub import Buckets, Estimand, Metric, Params, UnaryResponse
from hubbub.errors import ParameterError
from hubbub.mechanisms.subset import SubsetSelection
from hubbub.metrics.discovery import Discovery
from hubbub.metrics.kinds import CategoricalKind
from hubbub_decoder.audit.audit import audit_metric, declared_epsilon
from hubbub_decoder.audit.clients import EncoderClient
from hubbub_decoder.audit.laws import true_bits
from hubbub_decoder.audit.loss_law import loss_law, trials_needed
from hubbub_decoder.audit.pair_search import declared_pair
from hubbub_decoder.audit.trials import Schedule
from hubbub_decoder.kinds.operations import operations_of

CONFIDENCE = 1 - 1e-6


def seeded_client(metric: Metric, seed: int) -> EncoderClient:
    return EncoderClient(metric, random.Random(seed).randbytes)  # noqa: S311


def test_bound_of_the_encoder_does_not_exceed_the_declared_epsilon(unseen_seed: int) -> None:
    """A false alarm has probability 1e-6. At .6 of the claim the bound is 13 standard errors of ln(P_v / P_w) low."""
    survey = Metric.boolean("survey", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5))
    audit = audit_metric(
        survey, client=seeded_client(survey, unseen_seed), trials=20_000, confidence=CONFIDENCE, seed=unseen_seed
    )
    assert 0.6 * audit.claim < audit.bound.epsilon <= audit.claim
    assert not audit.refuted


def test_audit_refutes_a_claim_below_the_truth(unseen_seed: int) -> None:
    """ln 3 is the truth, .7 the claim: the bound of 5,000 trials of each value is below .7 with probability below 1e-6."""
    survey = Metric.boolean("survey", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5))
    audit = audit_metric(
        survey,
        client=seeded_client(survey, unseen_seed),
        claim=0.7,
        trials=20_000,
        confidence=CONFIDENCE,
        seed=unseen_seed,
    )
    assert audit.refuted


NOISE: dict[str, Any] = {"prob_p": 0.25, "prob_q": 0.75}
ASYMMETRIC: dict[str, Any] = {"prob_p": 0.1875, "prob_q": 0.8125, "permanent_p": 0.02, "permanent_q": 0.5}
ROWS = SubsetSelection(num_values=4, num_ones=2, prob_q=0.9, permanent_q=0.8)
COINS: dict[str, Any] = {"prob_p": 0.0, "prob_q": 1.0, "prob_f": 0.5}
FAIR_COINS: dict[str, Any] = {"prob_p": 0.0, "prob_q": 1.0, "prob_f": 0.75}
MANY_HASHES: dict[str, Any] = {"num_bits": 8, "num_hashes": 6, "num_cohorts": 4}
CELLS: dict[str, tuple[Metric, int]] = {
    "boolean": (Metric.boolean("b", UnaryResponse(**COINS)), 1),
    "boolean, three epochs": (Metric.boolean("b", UnaryResponse(**COINS), hold=1), 3),
    "boolean without permanent noise": (Metric.boolean("b", UnaryResponse(**NOISE, prob_f=0.0)), 3),
    "categorical": (Metric.categorical("c", ("a", "b", "c"), UnaryResponse(**NOISE, prob_f=0.25)), 2),
    "string": (Metric.string("s", Params(num_bits=64, num_hashes=1, num_cohorts=64, **NOISE, prob_f=0.25)), 1),
    "string, two epochs of two reports": (
        Metric.string("s", Params(num_bits=32, num_hashes=1, num_cohorts=4, **FAIR_COINS), hold=2),
        4,
    ),
    "string, asymmetric": (Metric.string("s", Params(num_bits=32, num_hashes=1, num_cohorts=4, **ASYMMETRIC)), 1),
    "string with discover": (
        Metric.string(
            "s",
            Params(num_bits=8, num_hashes=1, num_cohorts=32, prob_p=0, prob_q=1, permanent_p=0.12, permanent_q=0.5),
            discover=Discovery(longest=1, step=1, held_out=0.25),
        ),
        1,
    ),
    "mean": (Metric.ordinal("o", Buckets((0, 50), default=0, estimate=Estimand.MEAN), UnaryResponse(**FAIR_COINS)), 1),
    "joint of three": (
        Metric.joint("j", [Metric.boolean(name, UnaryResponse(**COINS)) for name in ("a", "b", "c")]),
        1,
    ),
    "rows, two reports": (Metric("c", CategoricalKind.one_hot(("a", "b", "c"), None, ROWS)), 2),
    "no value is the worst neighbour": (Metric.string("s", Params(**MANY_HASHES, **NOISE, prob_f=0.25)), 1),
}
TIGHTNESS = {"no value is the worst neighbour": 0.7, "string with discover": 0.9}  # two strings reach 2/3 of the claim


@pytest.mark.slow
@pytest.mark.parametrize("name", CELLS)
def test_bound_of_the_encoder_reaches_the_declared_epsilon(name: str, unseen_seed: int) -> None:
    """85 % of the claim, with confidence and power 1 - 1e-6: the declared law gives the trials; half as many more choose the event."""
    tightness = TIGHTNESS.get(name, 0.85)
    metric, reports = CELLS[name]
    schedule, values = Schedule.of(reports, metric.hold), operations_of(metric).audited_values()
    claim, bits = declared_epsilon(metric, reports), [true_bits(metric, value) for value in values]
    i, j, _ = declared_pair(metric, bits, schedule, claim, 1e-6)
    law = loss_law(metric, bits[i], bits[j], schedule.per_epoch, schedule.epochs)
    trials = 6 * math.ceil(trials_needed(law, claim, 1e-6, tightness=tightness, power=1 - 1e-6))
    client = seeded_client(metric, unseen_seed)
    audit = audit_metric(
        metric, client=client, num_reports=reports, trials=trials, confidence=CONFIDENCE, seed=unseen_seed
    )
    assert tightness * claim <= audit.bound.epsilon <= claim
    if name.startswith("no value"):
        assert None in audit.values


def test_declared_epsilon_adds_up_over_epochs() -> None:
    params = Params(num_bits=16, num_hashes=1, num_cohorts=4, prob_p=0.25, prob_q=0.75, prob_f=0.5)
    metric = Metric.string("page", params, hold=3)
    assert declared_epsilon(metric, 6) == pytest.approx(2 * declared_epsilon(metric, 3))
    with pytest.raises(ParameterError, match="multiple of it, got 4"):
        declared_epsilon(metric, 4)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"confidence": 1.0}, "confidence must be a number in"),
        ({"trials": 10}, "trials must be an integer >= 4000, got 10"),
        ({"claim": -1.0}, "claim must be a number in"),
        ({"values": [True]}, "values must be two or more"),
        ({"num_reports": 0}, "num_reports must be an integer >= 1, got 0"),
    ],
)
def test_audit_rejects_bad_arguments(argument: dict[str, float], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        audit_metric(Metric.boolean("survey", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5)), **argument)  # type: ignore[arg-type]
