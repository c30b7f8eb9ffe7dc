"""Random comparisons of two periods: a metric, the clients' values in both periods, and the score of the comparison against the truth.

Ranges (`draw_period_task`):

    string metrics: k 8 .. 256, h 1 .. 2, m 8 .. 64; a symmetric response, L-OSUE and other asymmetric ones; categories and booleans
    epsilon of one report .5 .. 4, of the permanent response larger by .1 .. 4
    N 1e4 .. 1e6, 5 .. 300 candidates, or a twentieth to half as many as the bits, half of them absent; uniform, Zipf and few heavy shares
    s 0, .5 or 1 of the clients keep their value; the same part of each value, or none of some values and all of the others
    no, small or one heavy unlisted string, which keeps its share or changes it; 1 to 5 pairs of values of which 1 to 20 % change over
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hubbub import Metric, Params, UnaryResponse
from hubbub_decoder import Comparison
from hubbub_decoder.array_types import Floats, Indices
from hubbub_decoder.simulation import Transitions
from tests.support.random_tasks import shares_of

OVERLAPS = (0.0, 0.5, 1.0)
KINDS = ("string", "string", "string", "many", "categories")
RESPONSES = ("symmetric", "l-osue", "asymmetric")
UNLISTED = ("none", "small", "one heavy", "one heavy that changes")


@dataclass(frozen=True)
class PeriodTask:
    """Two periods of the same clients.

    overlap : part of the clients that keep their value    even : the same part of each value
    """

    metric: Metric
    kind: str
    response: str
    unlisted: str
    overlap: float
    even: bool
    candidates: tuple[str, ...]
    transitions: Transitions

    def strata(self) -> Mapping[str, str]:
        """Marginal strata of the task."""
        strata = {"s": f"{self.overlap:g}", "kind": self.kind, "response": self.response}
        strata["keeping"] = "even" if self.even or self.overlap in (0, 1) else "some values"
        return strata | ({} if self.kind == "categories" else {"unlisted": self.unlisted})

    @property
    def num_clients(self) -> int:
        """N."""
        return sum(self.transitions.values())

    def true_overlap(self) -> float:
        """Share of the clients with the same value in both periods."""
        return sum(number for (a, b), number in self.transitions.items() if a == b) / self.num_clients

    def true_changes(self) -> dict[str, float]:
        """True change of each candidate's share."""
        changes = dict.fromkeys(self.candidates, 0)
        for (a, b), number in self.transitions.items():
            for value, sign in ((a, -1), (b, 1)):
                if value in changes:
                    changes[value] += sign * number
        return {value: change / self.num_clients for value, change in changes.items()}

    def __str__(self) -> str:
        p = self.metric.params
        return (
            f"{self.kind} {self.response} k={p.num_bits} h={p.num_hashes} m={p.num_cohorts} p={p.mechanism.prob_p:.3g} q={p.mechanism.prob_q:.3g} "
            f"b={p.mechanism.permanent_p:.3g} a={p.mechanism.permanent_q:.3g} N={self.num_clients:,} candidates={len(self.candidates)} s={self.overlap:g} "
            f"{'even' if self.even else 'uneven'} unlisted: {self.unlisted}"
        )


def draw_period_task(index: int, seed: int) -> PeriodTask:
    """Task number `index` of a run: s, kind and response in turn, everything else at random."""
    rng = np.random.default_rng([seed, index])
    kind, overlap = KINDS[index // 3 % len(KINDS)], OVERLAPS[index % 3]
    metric, response = _draw_metric(rng, kind, RESPONSES[index // 15 % 3])
    params = metric.params
    size = int(params.num_cohorts * (params.num_bits - 1))
    limit = {
        "string": min(300, max(5, size // 21)),
        "many": max(min(2_000, size // 2), size // 20 + 1),
        "categories": params.num_bits,
    }[kind]
    # fixed effects end at a twentieth of the independent bits
    least = size // 20 + 1 if kind == "many" else min(5, limit)
    number = round(math.exp(rng.uniform(math.log(least), math.log(limit))))
    prefix = f"{index}.{rng.integers(1 << 30)}."
    unlisted = str(rng.choice(UNLISTED))
    even = bool(rng.random() < 0.7)
    clients = round(math.exp(rng.uniform(math.log(1e4), math.log(1e6))))
    if kind == "categories":
        names = list(metric.kind.labels or ("true", "false"))
        shares, listed = rng.dirichlet(np.ones(len(names))), tuple(metric.kind.labels or ("true",))
    else:
        present = max(2, number // 2)
        names = [f"{prefix}{i}" for i in range(present)]
        listed = (*names, *(f"{prefix}absent{i}" for i in range(number - present)))
        shares = shares_of(str(rng.choice(["uniform", "zipf1", "few heavy"])), present)
        other = {"none": [], "small": [0.2 / 300] * 300}.get(unlisted, [float(rng.uniform(0.03, 0.3))])
        names += [f"{prefix}unlisted{i}" for i in range(len(other))]
        shares = np.append(shares * (1 - sum(other)), other)
    counts = rng.multinomial(clients, shares)
    flows = _draw_flows(rng, counts, unlisted if kind != "categories" else "none", len(listed))
    pairs = _couple(rng, counts, flows, overlap, even=even)
    transitions: dict[tuple[str | None, str | None], int] = {
        (names[i], names[j]): number for (i, j), number in pairs.items()
    }
    return PeriodTask(metric, kind, response, unlisted, overlap, even, listed, transitions)


def _draw_metric(rng: np.random.Generator, kind: str, response: str) -> tuple[Metric, str]:
    """Metric with random probabilities, and the kind of its permanent response."""
    h = 1 if kind == "categories" else int(rng.integers(1, 3))
    once = math.exp(rng.uniform(math.log(0.5), math.log(4))) / h
    ever = once + rng.uniform(0.1, 4) / h
    k = int(rng.choice([8, 16, 32, 64, 128, 256])) if kind != "categories" else int(rng.choice([1, 4, 12]))
    if k == 1:
        response = "symmetric"
    a = {"symmetric": None, "l-osue": 0.5, "asymmetric": rng.uniform(0.4, 0.9)}[response]
    if a is None:
        b = 1 / (math.exp(ever / 2) + 1)
        a = 1 - b
    else:
        odds = a / (1 - a) * math.exp(-ever)
        b = odds / (1 + odds)
    p = _instantaneous(a, b, once)
    m = 1 if kind == "categories" else int(rng.choice([8, 16, 32, 64]))
    noise = {"prob_p": p, "prob_q": 1 - p, "permanent_p": b, "permanent_q": a}
    if kind != "categories":
        params = Params(num_bits=k, num_hashes=h, num_cohorts=m, prob_p=p, prob_q=1 - p, permanent_p=b, permanent_q=a)
        return Metric.string("task", params), response
    if k == 1:
        return Metric.boolean("task", UnaryResponse(**noise)), response
    return Metric.categorical("task", tuple(f"c{i}" for i in range(k)), UnaryResponse(**noise)), response


def _instantaneous(a: float, b: float, epsilon: float) -> float:
    """p of a symmetric instantaneous response with which one bit's odds ratio is at most e**epsilon, by bisection."""

    def ratio(p: float) -> float:
        one, zero = a * (1 - p) + (1 - a) * p, b * (1 - p) + (1 - b) * p
        return math.log(one * (1 - zero) / (zero * (1 - one)))

    low, high = 1e-4, 0.4999
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if ratio(middle) > epsilon else (low, middle)
    return high


def _draw_flows(rng: np.random.Generator, counts: Indices, unlisted: str, listed: int) -> dict[tuple[int, int], int]:
    """Clients that change over from one value to another, by pair of values."""
    size = min(listed, len(counts)) if unlisted == "none" else len(counts)
    flows: dict[tuple[int, int], int] = {}
    left = counts.copy()
    for _ in range(int(rng.integers(1, 6))):
        i, j = rng.choice(max(2, min(size, len(counts))), 2, replace=False).tolist()
        number = int(left[i] * rng.uniform(0.01, 0.2))
        flows[i, j] = flows.get((i, j), 0) + number
        left[i] -= number
    if unlisted == "one heavy that changes":
        number = int(left[-1] * 0.5)
        flows[len(counts) - 1, 0] = number
    return flows


def _couple(
    rng: np.random.Generator, counts: Indices, flows: Mapping[tuple[int, int], int], overlap: float, *, even: bool
) -> dict[tuple[int, int], int]:
    """Clients by pair of values: flows, those that keep their value, and the others, who exchange their values among each other."""
    pairs = dict(flows)
    left = counts.copy()
    for (i, _), number in flows.items():
        left[i] -= number
    keeps = np.full(len(counts), overlap) if even else (rng.random(len(counts)) < overlap).astype(float)
    kept = rng.binomial(left, keeps)
    for i, number in enumerate(kept.tolist()):
        pairs[i, i] = pairs.get((i, i), 0) + number
    moving = left - kept
    total = int(moving.sum())
    if total:
        ends = np.cumsum(moving)
        turned = np.unique(np.concatenate([[0], ends, (ends + total // 2) % total, [total]]))
        for start, end in pairwise(turned.tolist()):
            i = int(np.searchsorted(ends, start, side="right"))
            j = int(np.searchsorted(ends, (start + total // 2) % total, side="right"))
            pairs[i, j] = pairs.get((i, j), 0) + end - start
    return pairs


@dataclass(frozen=True)
class PeriodScore:
    """Errors of a comparison; a mean is nan where there is nothing to average.

    coverage, ratio : of all changes: intervals that hold the truth, and mean squared error / declared variance
    changed         : coverage of the candidates that changed
    known           : coverage where s is known
    width           : mean width over that at the known s
    precise         : s.e.(s) V_prr <= .03 (V_irr + (1 - s) V_prr) and s is estimated
    found, false    : detected candidates that changed, and others
    overlap_error   : (estimated s - s) / standard error; nan where s is unknown or at a limit
    """

    coverage: float
    ratio: float
    changed: float
    known: float
    width: float
    precise: bool
    found: int
    false: int
    overlap_error: float


def score_periods(task: PeriodTask, comparison: Comparison, known: tuple[Floats, Floats, Floats]) -> PeriodScore:
    """Compare a comparison with the truth of its task.

    known : changes, standard errors and interval reach of the same candidates at the true s
    """
    truth_of = task.true_changes()
    rows = [row for row in comparison if math.isfinite(row.change)]
    truth = np.array([sum(truth_of[name] for name in (row.candidate, *row.indistinguishable_from)) for row in rows])
    change, error = np.array([row.change for row in rows]), np.array([row.std_error for row in rows])
    low, high = np.array([row.low for row in rows]), np.array([row.high for row in rows])
    detected = np.array([row.detected for row in rows], bool)
    changed = truth != 0
    inside = (low <= truth) & (truth <= high)
    estimate, known_error, reach = known
    overlap, s = comparison.overlap, task.true_overlap()
    p = task.metric.params
    a, b, q, noise = p.mechanism.permanent_q, p.mechanism.permanent_p, p.mechanism.prob_q, p.mechanism.prob_p
    v_prr = b * (1 - b) / (a - b) ** 2
    v_irr = (b * q * (1 - q) + (1 - b) * noise * (1 - noise)) / ((a - b) * (q - noise)) ** 2
    precise = 0 < overlap.std_error <= 0.03 * (v_irr + (1 - s) * v_prr) / v_prr and overlap.std_error <= 0.2
    free = 0 < overlap.estimate < 1 and overlap.std_error <= 0.2 and overlap.std_error > 0
    return PeriodScore(
        coverage=float(inside.mean()),
        ratio=float(np.mean(((change - truth) / error) ** 2)),
        changed=float(inside[changed].mean()) if changed.any() else math.nan,
        known=float(np.mean(np.abs(estimate - truth) <= reach * known_error)),
        width=float(np.mean(error) / np.mean(known_error)),
        precise=bool(precise),
        found=int((detected & changed).sum()),
        false=int((detected & ~changed).sum()),
        overlap_error=(overlap.estimate - s) / overlap.std_error if free else math.nan,
    )
