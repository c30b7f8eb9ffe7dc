"""Audits of the encoder: the bound reaches the declared epsilon and does not exceed it."""

from __future__ import annotations

import random

import pytest

from hubbub import Metric, Params
from hubbub.errors import ParameterError
from hubbub_decoder.audit.audit import audit_metric, declared_epsilon
from hubbub_decoder.audit.clients import EncoderClient

CONFIDENCE = 1 - 1e-6


def seeded_client(metric: Metric, seed: int) -> EncoderClient:
    return EncoderClient(metric, random.Random(seed).randbytes)  # noqa: S311


def test_bound_of_the_encoder_does_not_exceed_the_declared_epsilon(unseen_seed: int) -> None:
    """A false alarm has probability 1e-6. At .6 of the claim the bound is 13 standard errors of ln(P_v / P_w) low."""
    survey = Metric.boolean("survey", prob_p=0, prob_q=1, prob_f=0.5)
    audit = audit_metric(
        survey, client=seeded_client(survey, unseen_seed), trials=20_000, confidence=CONFIDENCE, seed=unseen_seed
    )
    assert 0.6 * audit.claim < audit.bound.epsilon <= audit.claim
    assert not audit.refuted


def test_audit_refutes_a_claim_below_the_truth(unseen_seed: int) -> None:
    """ln 3 is the truth, .7 the claim: the bound of 5,000 trials of each value is below .7 with probability below 1e-6."""
    survey = Metric.boolean("survey", prob_p=0, prob_q=1, prob_f=0.5)
    audit = audit_metric(
        survey,
        client=seeded_client(survey, unseen_seed),
        claim=0.7,
        trials=20_000,
        confidence=CONFIDENCE,
        seed=unseen_seed,
    )
    assert audit.refuted


def test_declared_epsilon_adds_up_over_epochs() -> None:
    params = Params(num_bits=16, num_hashes=1, num_cohorts=4, prob_p=0.25, prob_q=0.75, prob_f=0.5)
    metric = Metric.string("page", params, hold=3)
    assert declared_epsilon(metric, 6) == pytest.approx(2 * declared_epsilon(metric, 3))
    with pytest.raises(ParameterError, match="multiple of it, got 4"):
        declared_epsilon(metric, 4)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"confidence": 1.0}, "confidence must be in"),
        ({"trials": 10}, "trials must be at least 4,000, got 10"),
        ({"claim": -1.0}, "claim must be above 0"),
        ({"values": [True]}, "values must be two or more"),
        ({"reports": 0}, "reports must be at least 1, got 0"),
    ],
)
def test_audit_rejects_bad_arguments(argument: dict[str, float], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        audit_metric(Metric.boolean("survey", prob_p=0, prob_q=1, prob_f=0.5), **argument)  # type: ignore[arg-type]
