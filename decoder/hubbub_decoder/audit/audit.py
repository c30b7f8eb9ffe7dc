"""An audit on one page: values -> scan -> candidates -> choice of an event -> bound.

first half of the trials     half of it scans all values and learns distinguishers, half chooses pair, distinguisher and event
second half                  new clients of the two chosen values; the bound is computed on them alone

A second candidate that may exceed the claim is tested too, on half as many clients more, and each of the two bounds has half of the error
probability. The larger bound is reported.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hubbub.errors import ParameterError
from hubbub.metrics.metric import Metric
from hubbub.number_checks import check_integer, check_number
from hubbub.privacy.loss import epsilon
from hubbub_decoder.array_types import Floats
from hubbub_decoder.audit.bound import Bound, Event, bound_of_event
from hubbub_decoder.audit.clients import MAX_COHORTS, AuditedClient, AuditedValue, EncoderClient
from hubbub_decoder.audit.distinguisher import num_cohorts, true_bits
from hubbub_decoder.audit.pair_search import (
    Candidate,
    choose,
    declared_candidate,
    declared_pair,
    find_candidates,
)
from hubbub_decoder.audit.trials import Laboratory, Schedule, count_trials
from hubbub_decoder.errors import AuditError
from hubbub_decoder.kinds.operations import operations_of
from hubbub_decoder.options import Progress, ignore_progress
from hubbub_decoder.random_state import seeded

MIN_TRIALS, DEFAULT_TRIALS, MAX_DEFAULT_TRIALS = 4_000, 200_000, 2_000_000
_ROUNDING_SLACK = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Audit:
    """Measured privacy of a client.

    Attributes
    ----------
    claim
        Epsilon that the client declares for these reports. For a joint metric it is the sum of its parts' losses.
    confidence
        Confidence level of the bound.
    schedule
        Reports of each client.
    bound
        Lower bound on epsilon, with its counts. It is above the truth with probability at most 1 - confidence.
    values
        Pair of values that was chosen, in the order that the distinguisher compares.
    distinguisher
        Name of the statistic.
    event
        Set of values of the statistic.
    trials
        Number of clients of all parts of the audit, with those of a second candidate.
    trials_needed
        Number of trials after which the bound of a client that is exactly as declared reaches 95 % of the claim, with
        power 99 %. It is infinite if no number does, and nan for a client without a definition.
    scores
        Scores of the second half under the first value.
    scores_other
        Scores of the second half under the second value.
    """

    claim: float
    confidence: float
    schedule: Schedule
    bound: Bound
    values: tuple[AuditedValue, AuditedValue]
    distinguisher: str
    event: Event
    trials: int
    trials_needed: float
    scores: Floats
    scores_other: Floats

    def __repr__(self) -> str:
        verdict = "refuted" if self.refuted else "not refuted"
        return f"<Audit: epsilon at least {self.bound.epsilon:.3f}, claim {self.claim:.3f} {verdict}>"

    @property
    def refuted(self) -> bool:
        """Whether the bound exceeds the claim."""
        return self.bound.epsilon > self.claim + _ROUNDING_SLACK


def declared_epsilon(metric: Metric, num_reports: int) -> float:
    """Epsilon of consecutive reports of one unchanging value from the start of an epoch: eps(t) for each permanent response.

    >>> from hubbub import UnaryResponse
    >>> survey = Metric.boolean("survey", UnaryResponse(prob_p=0, prob_q=1, prob_f=0.5), hold=1)
    >>> round(math.exp(declared_epsilon(survey, 4)))
    81
    """
    schedule = Schedule.of(num_reports, metric.hold)
    return schedule.epochs * epsilon(metric, schedule.per_epoch)


def audit_metric(
    metric: Metric,
    *,
    client: AuditedClient | None = None,
    num_reports: int = 1,
    claim: float | None = None,
    trials: int | None = None,
    confidence: float = 0.99,
    seed: int | None = None,
    values: list[AuditedValue] | None = None,
    progress: Progress = ignore_progress,
) -> Audit:
    """Audit a client that implements a definition.

    Parameters
    ----------
    metric
        Definition that the client implements.
    client
        Client to audit. None: the encoder of this project.
    num_reports
        Number of consecutive reports of each client, from the start of an epoch.
    claim
        Epsilon to test. None: the declared one.
    trials
        Number of clients, without those of a second candidate. None: enough for a bound of 95 % of the claim, between
        4,000 and 2,000,000.
    confidence
        Confidence level of the bound, in (0, 1).
    seed
        Seed of the seeds that the client receives. The encoder of this project ignores them. None: random.
    values
        Values to compare. None among them is "no value". None: those of the kind's `audited_values`.
    progress
        Function that is called with the number of clients, after each block of them.

    Returns
    -------
    Audit
        Measured bound and the claim.

    Raises
    ------
    AuditError
        The client cannot be run, fails, or returns output that is not reports; or its rows stand for several values at once.
    ParameterError
        An argument is out of range.
    """
    if not all(block.mechanism.has_independent_bits or block.possible_ones == (1,) for block in metric.blocks):
        raise AuditError(
            f"{metric.name}: its rows stand for several values at once, of which the distinguisher knows no likelihoods. "
            "Pass its client to `audit_client`, with two values and the claim"
        )
    schedule = Schedule.of(num_reports, metric.hold)
    claim = declared_epsilon(metric, num_reports) if claim is None else claim
    values = operations_of(metric).audited_values() if values is None else values
    _check(values, confidence, trials, claim, seed)
    i, j, per_value = declared_pair(
        metric, [true_bits(metric, value) for value in values], schedule, claim, 1 - confidence
    )
    needed = 4 * math.ceil(per_value) if math.isfinite(per_value) else math.inf
    trials = int(np.clip(needed, MIN_TRIALS, MAX_DEFAULT_TRIALS)) if trials is None else trials
    laboratory = Laboratory(
        client or EncoderClient(metric),
        metric.num_bits,
        num_cohorts(metric),
        schedule,
        seeded(seed),
        count_trials(progress, trials),
    )
    declared = declared_candidate(metric, values, (i, j), schedule, trials // 4, 1 - confidence)
    return _audit(laboratory, values, claim, trials, confidence, needed, metric, declared)


def audit_client(
    client: AuditedClient,
    values: list[AuditedValue],
    claim: float,
    *,
    num_reports: int = 1,
    hold: int | None = None,
    trials: int = DEFAULT_TRIALS,
    confidence: float = 0.99,
    seed: int | None = None,
    progress: Progress = ignore_progress,
) -> Audit:
    """Audit a client without a definition. Its distinguishers are learned.

    Parameters
    ----------
    client
        Client to audit.
    values
        Values to compare, at least two.
    claim
        Epsilon to test.
    num_reports
        Number of consecutive reports of each client, from the start of an epoch.
    hold
        Epoch length in periods. None: all reports come from one permanent response.
    trials
        Number of clients.
    confidence
        Confidence level of the bound, in (0, 1).
    seed
        Seed of the seeds that the client receives. None: random.
    progress
        Function that is called with the number of clients, after each block of them.

    Returns
    -------
    Audit
        Measured bound and the claim.

    Raises
    ------
    AuditError
        The client fails, or returns output that is not reports.
    ParameterError
        An argument is out of range.
    """
    _check(values, confidence, trials, claim, seed)
    schedule, rng = Schedule.of(num_reports, hold), seeded(seed)
    num_bits = client([values[0]] * num_reports, int(rng.randint(1 << 62)), 1).bits.shape[2]
    laboratory = Laboratory(client, num_bits, MAX_COHORTS, schedule, rng, count_trials(progress, trials))
    return _audit(laboratory, values, claim, trials, confidence, math.nan, None, None)


def _audit(
    laboratory: Laboratory,
    values: list[AuditedValue],
    claim: float,
    trials: int,
    confidence: float,
    needed: float,
    metric: Metric | None,
    declared: Candidate | None,
) -> Audit:
    candidates = find_candidates(laboratory, values, max(1, trials // (4 * len(values))), metric, declared)
    compared = {number for candidate in candidates for number in (candidate.first, candidate.second)}
    choices = choose(laboratory, values, trials // (4 * len(compared)), candidates, claim, 1 - confidence)
    audits = []
    for choice in choices:
        first, second = values[choice.candidate.first], values[choice.candidate.second]
        (scores,), (scores_other,) = (
            laboratory.scores(value, trials // 4, [choice.candidate.distinguisher]) for value in (first, second)
        )
        audit = Audit(
            claim=claim,
            confidence=confidence,
            schedule=laboratory.schedule,
            bound=bound_of_event(choice.event, scores, scores_other, (1 - confidence) / len(choices)),
            values=(first, second),
            distinguisher=choice.candidate.distinguisher.name,
            event=choice.event,
            trials=trials + (len(choices) - 1) * 2 * (trials // 4),
            trials_needed=needed,
            scores=scores,
            scores_other=scores_other,
        )
        audits.append(audit)
    return max(audits, key=lambda audit: audit.bound.epsilon)


def _check(values: list[AuditedValue], confidence: float, trials: int | None, claim: float, seed: int | None) -> None:
    if len(values) < 2 or len(set(values)) < len(values):
        raise ParameterError(
            f"values must be two or more different values, got {values}: an audit compares reports of two values"
        )
    check_number("confidence", confidence, "(0, 1)", hint="it is the probability of a valid bound, such as 0.99")
    if trials is not None:
        check_integer("trials", trials, MIN_TRIALS, hint="fewer clients leave no trials for some part of the audit")
    if seed is not None:
        check_integer("seed", seed, 0, hint="leave it out for a random seed")
    check_number("claim", claim, "(0, inf)", hint="it is the epsilon that the client declares")
