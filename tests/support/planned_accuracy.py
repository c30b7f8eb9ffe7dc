"""Predicted against delivered variance: random definitions, simulated populations, and the decoder's errors.

Ranges (`draw_case`): k 8 .. 256 (patterns: 8 .. 12), h 1 or 2, m 8 .. 64, epsilon of one report .5 .. 5, no, symmetric or asymmetric permanent
noise, 1 to 8 periods with and without `hold`, 10 to 200 candidates (reports: to 60) with shares under Zipf's law.
Ranges of plans (`draw_planned_case`): epsilon 2 to 6, no lifetime or up to 5 epsilon, 20,000 to 500,000 reports, 5 to 40 candidates, 1, 7 or 30
periods, 64 or 256 bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hubbub import Metric, Params
from hubbub.summary import BitCounts, PatternCounts, Reports
from hubbub_decoder import decode
from hubbub_decoder.array_types import Floats
from hubbub_decoder.model.repetition import Repetition
from hubbub_decoder.planning.law.accuracy import Data, StringAccuracy
from hubbub_decoder.planning.law.chain import Chain
from hubbub_decoder.planning.law.collisions import Shares
from hubbub_decoder.planning.plan import plan
from hubbub_decoder.planning.wishes import Wishes
from hubbub_decoder.simulation import consecutive_periods, simulate, simulate_reports

DATA: tuple[Data, ...] = ("bits", "patterns", "reports")
_CLIENTS: dict[Data, int] = {"bits": 300_000, "patterns": 100_000, "reports": 4_000}


@dataclass(frozen=True)
class Case:
    """A definition and a population: N clients with values under Zipf's law, T periods."""

    data: Data
    metric: Metric
    clients: int
    candidates: int
    periods: int

    @property
    def first_days(self) -> tuple[str, ...]:
        return consecutive_periods(self.metric, self.periods) if self.periods > 1 else ()

    def accuracy(self) -> StringAccuracy:
        """Law of the estimates."""
        params = self.metric.params
        return StringAccuracy(
            size=(params.num_bits, params.num_hashes, params.num_cohorts),
            chain=Chain.of_mechanism(params.mechanism),
            clients=self.clients,
            repetition=Repetition.from_periods(self.metric, self.first_days),
            shares=Shares.zipf(self.candidates),
            data=self.data,
        )


@dataclass(frozen=True)
class Outcome:
    """N times the mean over the candidates of predicted variance, squared error (with its standard error), and declared variance."""

    predicted: float
    delivered: float
    error: float
    declared: float


def draw_case(index: int, seed: int, cohorts: int | None = None) -> Case:
    """Random case; every third has the same data.

    cohorts : m; None: drawn
    """
    rng = np.random.default_rng((seed, index))
    data = DATA[index % 3]
    k = int(rng.integers(8, 13)) if data == "patterns" else int(2 ** rng.uniform(5, 8 if data == "bits" else 7))
    h, m = int(rng.integers(1, 3)), int(2 ** rng.integers(3, 7))
    periods = int(rng.choice([1, 1, 2, 4, 8])) if data != "reports" else int(rng.choice([1, 2, 4]))
    hold = int(rng.integers(1, periods + 1)) if periods > 1 and rng.random() < 0.3 else None
    permanent: dict[str, Any] = {
        "none": {"prob_f": 0.0},
        "symmetric": {"prob_f": float(rng.uniform(0.1, 0.6))},
        "asymmetric": {"permanent_p": float(rng.uniform(0.005, 0.15)), "permanent_q": float(rng.uniform(0.45, 0.95))},
    }[str(rng.choice(["none", "symmetric", "asymmetric"]))]
    epsilon, q = float(np.exp(rng.uniform(math.log(0.5), math.log(5)))), float(rng.uniform(0.4, 0.9))
    odds = q / (1 - q) / math.exp(epsilon / h)
    params = Params(num_bits=k, num_hashes=h, num_cohorts=cohorts or m, prob_p=odds / (1 + odds), prob_q=q, **permanent)
    candidates = int(np.exp(rng.uniform(math.log(10), math.log(60 if data == "reports" else 200))))
    return Case(data, Metric.string("planned", params, hold=hold), _CLIENTS[data], candidates, periods)


def draw_planned_case(index: int, seed: int) -> Case:
    """Definition that is planned for random wishes; many have little noise."""
    rng = np.random.default_rng((seed, index, 2))
    epsilon, reports = float(rng.uniform(2, 6)), int(np.exp(rng.uniform(math.log(20_000), math.log(500_000))))
    lifetime = epsilon * float(rng.uniform(1, 5)) if rng.random() < 0.7 else None
    candidates, periods = int(np.exp(rng.uniform(math.log(5), math.log(40)))), int(rng.choice([1, 7, 30]))
    wishes = Wishes(
        epsilon=epsilon,
        longitudinal=lifetime,
        num_reports=reports,
        num_candidates=candidates,
        periods=periods,
        bits=int(rng.choice([64, 256])),
    )
    return Case("bits", plan(wishes, name="planned").metric, reports, candidates, periods)


def predicted_variance(case: Case) -> float:
    """N times the mean over the candidates of the predicted variance."""
    accuracy = case.accuracy()
    return case.clients * accuracy.shares.mean(accuracy.variance(accuracy.shares.values))


def measure(case: Case, estimates: int, rng: np.random.Generator) -> Outcome:
    """Simulate and decode populations until there are so many estimates, at least 8 populations."""
    runs = max(8, math.ceil(estimates / case.candidates))
    shares = 1 / np.arange(1, case.candidates + 1)
    squares, declared = np.empty(runs), np.empty(runs)
    for run in range(runs):
        numbers = rng.multinomial(case.clients, shares / shares.sum()).tolist()
        people = {f"{run}.{rng.integers(1 << 40)}": number for number in numbers}
        decoding = decode(_simulate(case, people, rng), list(people))
        truth = np.array([people[e.candidate] / case.clients for e in decoding])
        squares[run] = np.mean((np.array([e.share for e in decoding]) - truth) ** 2)
        declared[run] = np.mean(np.array([e.std_error for e in decoding]) ** 2)
    n = case.clients
    of_independent = squares.mean() * math.sqrt(2 / (runs * case.candidates))  # the spread of few runs is uncertain
    error = max(squares.std(ddof=1) / math.sqrt(runs), of_independent)
    return Outcome(predicted_variance(case), n * float(squares.mean()), n * float(error), n * float(declared.mean()))


def mean_ratio(outcomes: list[Outcome]) -> tuple[float, float]:
    """Mean of delivered / predicted over the cases, and its standard error."""
    ratios: Floats = np.array([outcome.delivered / outcome.predicted for outcome in outcomes])
    return float(ratios.mean()), float(ratios.std(ddof=1) / math.sqrt(len(ratios)))


def _simulate(case: Case, people: dict[str, int], rng: np.random.Generator) -> BitCounts | PatternCounts | Reports:
    metric, days = case.metric, case.first_days
    match case.data:
        case "bits":
            return simulate(metric, people, rng, periods=days)
        case "patterns":
            return simulate(metric, people, rng, periods=days, form=PatternCounts)
        case "reports":
            cohorts, rows = zip(*simulate_reports(metric, people, rng, periods=days), strict=True)
            return Reports(metric, np.concatenate(cohorts), np.concatenate(rows), days)
