"""An audit on one page: values -> scan -> tests of the declared law -> bound on epsilon.

    a quarter of the trials      clients of all values, seven reports each, unless another number is asked for
    half of the trials           clients of the two values that the declared law tells apart best, one report each: the bound

All reports are tested against the declared law (`law_tests.py`). The event of a bound follows from this law, so no trials are spent on
its choice. A client without a definition has no law: half of its trials learn the event (`pair_search.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from hubbub.errors import ParameterError
from hubbub.metrics.metric import Metric
from hubbub.number_checks import check_integer, check_number
from hubbub.privacy.loss import epsilon
from hubbub.text import format_count
from hubbub_decoder.array_types import Floats
from hubbub_decoder.audit.bound import Bound, Event, bound_of_event, p_value_of_claim
from hubbub_decoder.audit.clients import MAX_COHORTS, AuditedClient, AuditedValue, ClientReports, EncoderClient
from hubbub_decoder.audit.distinguisher import DECLARED_RATIO, DeclaredRatio
from hubbub_decoder.audit.evidence import LEVEL, NoiseTest
from hubbub_decoder.audit.law_tests import Sample, law_tests
from hubbub_decoder.audit.laws import ReportLaw, num_cohorts
from hubbub_decoder.audit.loss_law import LossLaw, declared_event, loss_law
from hubbub_decoder.audit.pair_search import choose, declared_pair, learned_candidates, scan
from hubbub_decoder.audit.trials import Laboratory, Schedule, count_trials
from hubbub_decoder.kinds.operations import operations_of
from hubbub_decoder.options import Progress, ignore_progress
from hubbub_decoder.random_state import seeded

MIN_TRIALS, DEFAULT_TRIALS, MAX_DEFAULT_TRIALS = 4_000, 200_000, 2_000_000
REPORTS_OF_A_CLIENT = 7
"""Reports of a client whose reports are compared with each other."""
_MAX_CELLS = 1 << 26
"""Most reported bits of one sample: its arrays have a byte or more for each of them."""


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
        Number of clients of all parts of the audit.
    trials_needed
        Number of trials after which the bound of a client that is exactly as declared reaches 95 % of the claim, with
        power 99 %. It is infinite if no number does, and nan for a client without a definition.
    scores
        Scores under the first value.
    scores_other
        Scores under the second value.
    tests
        Tests of the claim, and of the declared law. All tests of a run refute a client that has the declared law with
        probability at most 1e-6.
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
    tests: tuple[NoiseTest, ...]

    def __repr__(self) -> str:
        verdict = "refuted" if self.refuted else "not refuted"
        return f"<Audit: epsilon at least {self.bound.epsilon:.3f}, claim {self.claim:.3f} {verdict}>"

    @property
    def refuted(self) -> bool:
        """Whether a test refutes the client."""
        return any(test.refuted for test in self.tests)


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
        Number of consecutive reports of each client, from the start of an epoch. With 1, a quarter of the clients sends
        seven reports, which are compared with each other.
    claim
        Epsilon to test. None: the declared one.
    trials
        Largest number of clients. None: enough for a bound of 95 % of the claim, between 4,000 and 2,000,000.
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
        The client cannot be run, fails, or returns output that is not reports; or a value has no single law, as a set that
        blanks fill up.
    ParameterError
        An argument is out of range.
    """
    schedule = Schedule.of(num_reports, metric.hold)
    claim = declared_epsilon(metric, num_reports) if claim is None else claim
    values = operations_of(metric).audited_values() if values is None else values
    _check(values, confidence, trials, claim, seed)
    laws = [ReportLaw(metric, value) for value in values]
    i, j, per_value = declared_pair(metric, [law.truth for law in laws], schedule, claim, 1 - confidence)
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
    reports = num_reports if num_reports > 1 else REPORTS_OF_A_CLIENT
    per_sample = max(1, min(trials // (4 * len(values)), _MAX_CELLS // (reports * metric.num_bits)))
    scanned = [_sample(law, laboratory.reports([law.value] * reports, per_sample)) for law in laws]
    per_value_trials, ratio = trials // 4, DeclaredRatio(laws[i], laws[j])
    compared = [_scored(law, ratio, laboratory, per_value_trials) for law in (laws[i], laws[j])]
    event = declared_event(_loss(laws[i], laws[j], schedule), per_value_trials, 1 - confidence)
    bound = bound_of_event(event, compared[0][0], compared[1][0], 1 - confidence)
    tests = [
        NoiseTest(
            f"epsilon of {format_count(num_reports, 'report')}", p_value_of_claim(bound, claim), _finding(bound, claim)
        )
    ]
    if num_reports == 1:
        tests.append(_test_of_several_reports(scanned[i], scanned[j]))
    return Audit(
        claim=claim,
        confidence=confidence,
        schedule=schedule,
        bound=bound,
        values=(values[i], values[j]),
        distinguisher=DECLARED_RATIO,
        event=event,
        trials=per_sample * len(values) + 2 * per_value_trials,
        trials_needed=needed,
        scores=compared[0][0],
        scores_other=compared[1][0],
        tests=(*tests, *law_tests([*scanned, *(sample for _, sample in compared)])),
    )


def _sample(law: ReportLaw, blocks: Iterable[ClientReports]) -> Sample:
    """Sample of all reports of some blocks."""
    made = list(blocks)
    cohorts, bits = (np.concatenate([getattr(block, name) for block in made]) for name in ("cohorts", "bits"))
    moved = [np.zeros(len(block.cohorts), bool) if block.moved is None else block.moved for block in made]
    return Sample(law, cohorts, bits, np.concatenate(moved))


def _scored(
    law: ReportLaw, distinguisher: DeclaredRatio, laboratory: Laboratory, clients: int
) -> tuple[Floats, Sample]:
    """Scores of new clients of a value, and a sample of the first of them."""
    most = max(1, _MAX_CELLS // (laboratory.schedule.reports * laboratory.num_bits))
    scores: list[Floats] = []
    kept: list[ClientReports] = []
    for made in laboratory.observe(law.value, clients):
        if sum(len(block.cohorts) for block in kept) < most:
            kept.append(made)
        scores.append(distinguisher.scores(made))
    return np.concatenate(scores), _sample(law, kept)


def _test_of_several_reports(first: Sample, second: Sample) -> NoiseTest:
    """Test of the claim for whole epochs among the reports of the scan, or for all of them within one epoch."""
    metric, reports = first.law.metric, first.bits.shape[1]
    reports -= reports % metric.hold if metric.hold is not None and metric.hold < reports else 0
    schedule, claim = Schedule.of(reports, metric.hold), declared_epsilon(metric, reports)
    ratio, clients = DeclaredRatio(first.law, second.law), min(len(first.bits), len(second.bits))
    scores, scores_other = (
        ratio.scores(ClientReports(sample.cohorts, sample.bits[:, :reports])) for sample in (first, second)
    )
    event = declared_event(_loss(first.law, second.law, schedule), clients, LEVEL)
    bound = bound_of_event(event, scores, scores_other, LEVEL)
    return NoiseTest(
        f"epsilon of {format_count(reports, 'report')}", p_value_of_claim(bound, claim), _finding(bound, claim)
    )


def _loss(first: ReportLaw, second: ReportLaw, schedule: Schedule) -> LossLaw:
    return loss_law(first.metric, first.truth, second.truth, schedule.per_epoch, schedule.epochs)


def _finding(bound: Bound, claim: float) -> str:
    return (
        f"the event occurred in {bound.occurred:,} of {bound.trials:,} and {bound.occurred_other:,} of {bound.trials_other:,} clients, an "
        f"epsilon of about {max(0.0, bound.estimate):.3f}; the claim is {claim:.3f}"
    )


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
    candidates = learned_candidates(scan(laboratory, values, max(1, trials // (4 * len(values)))), schedule.epochs)
    chosen, event = choose(laboratory, values, trials // (8 * len(candidates)), candidates, 1 - confidence)
    first, second = values[chosen.first], values[chosen.second]
    (scores,), (scores_other,) = (
        laboratory.scores(value, trials // 4, [chosen.distinguisher]) for value in (first, second)
    )
    bound = bound_of_event(event, scores, scores_other, 1 - confidence)
    return Audit(
        claim=claim,
        confidence=confidence,
        schedule=schedule,
        bound=bound,
        values=(first, second),
        distinguisher=chosen.distinguisher.name,
        event=event,
        trials=trials,
        trials_needed=math.nan,
        scores=scores,
        scores_other=scores_other,
        tests=(
            NoiseTest(
                f"epsilon of {format_count(num_reports, 'report')}",
                p_value_of_claim(bound, claim),
                _finding(bound, claim),
            ),
        ),
    )


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
