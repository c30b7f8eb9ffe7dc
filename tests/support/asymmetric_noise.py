"""Variance of the decoder at the parameters of L-OSUE, against its exact law.

With h = 1, q = 1 - p, a = 1/2, b = 1 / (e**eps_inf + 1), T reports of each of N clients, and a share x of them with the value:

    N Var = OUE(eps_inf) + (OUE(eps_1) - OUE(eps_inf)) / T + x        OUE(e) = 4 e**e / (e**e - 1)**2

The law is that of the value's own debiased bit, given the clients. q* = 1/2 and p* = 1 / (e**eps_1 + 1), so p has a closed form.
Source: Arcolezi et al. 2022, sec. 3, for T = 1 and x = 0; docs/explanation/mathematics.md, section 15.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from hubbub import Metric, Params, UnaryResponse
from hubbub_decoder import decode
from hubbub_decoder.array_types import Floats
from hubbub_decoder.estimators.categories import fit_categories
from hubbub_decoder.model.evidence import Evidence, debias
from hubbub_decoder.model.vectorized_hashing import bit_positions
from hubbub_decoder.simulation import consecutive_periods, simulate

EPSILONS = ((4.0, 8.0), (2.0, 4.0))
"""eps_1 and eps_inf."""
NUMBERS_OF_REPORTS = (1, 7, 30)
SHARES = (0.0, 0.01, 0.1)
CLIENTS = 1_000_000
_VALUES_OF_SHARE = {0.1: 9, 0.01: 9, 0.0: 9}


class Noise(TypedDict):
    """Probabilities of a metric."""

    prob_p: float
    prob_q: float
    permanent_p: float
    permanent_q: float


@dataclass(frozen=True)
class Variance:
    """N Var of the estimates of one share: the law; measured and declared as ratios to it, with the standard error of the first."""

    epsilons: tuple[float, float]
    reports: int
    share: float
    law: float
    measured: float
    std_error: float
    declared: float


def oue(epsilon: float) -> float:
    """N Var of one report of optimized unary encoding at share 0."""
    return 4 * math.exp(epsilon) / math.expm1(epsilon) ** 2


def law(epsilons: tuple[float, float], reports: int, share: float) -> float:
    """N Var of L-OSUE."""
    once, forever = map(oue, epsilons)
    return forever + (once - forever) / reports + share


def noise(epsilons: tuple[float, float]) -> Noise:
    """Probabilities of L-OSUE at h = 1."""
    b = 1 / (math.exp(epsilons[1]) + 1)
    p = (1 / (math.exp(epsilons[0]) + 1) - b) / (1 - 2 * b)
    return {"prob_p": p, "prob_q": 1 - p, "permanent_p": b, "permanent_q": 0.5}


def population(names: Sequence[str]) -> dict[str, int]:
    """Numbers of clients of each name: nine names of each of the three shares."""
    shares = [share for share, number in _VALUES_OF_SHARE.items() for _ in range(number)]
    return {name: round(share * CLIENTS) for name, share in zip(names, shares, strict=True)}


def category_variances(
    epsilons: tuple[float, float], reports: int, runs: int, rng: np.random.Generator
) -> list[Variance]:
    """Variances of the estimates of a categorical metric, from squared errors."""
    names = tuple(f"c{i}" for i in range(sum(_VALUES_OF_SHARE.values())))
    people = population(names)
    metric = Metric.categorical("c", names, UnaryResponse(**noise(epsilons)))
    periods, truth = consecutive_periods(metric, reports), np.array(list(people.values())) / CLIENTS
    fits = []
    for _ in range(runs):
        counts = simulate(metric, people, rng, no_value=CLIENTS - sum(people.values()), periods=periods)
        fits.append(fit_categories(Evidence(counts), names))
    errors = np.array([fit.shares for fit in fits]) - truth
    declared = np.array([fit.reporter_variances for fit in fits])
    scale = CLIENTS / np.array([law(epsilons, reports, share) for share in truth])
    return list(_summaries(epsilons, reports, truth, errors**2 * scale, declared * scale))


def string_variances(
    epsilons: tuple[float, float], reports: int, runs: int, rng: np.random.Generator, num_cohorts: int = 8
) -> list[Variance]:
    """Variances of the estimates of a string metric, decoded from bit counts, of candidates that share no bit in any cohort.

    The squared error of the value's own debiased bit has the law as its exact mean. So 1 plus the mean difference of the decoder's
    squared error from it, over the law, is the ratio, with a small standard error.
    """
    params = Params(num_bits=128, num_hashes=1, num_cohorts=num_cohorts, **noise(epsilons))
    metric = Metric.string("s", params)
    names = _apart(params, sum(_VALUES_OF_SHARE.values()), rng)
    people = population(names)
    periods, truth = consecutive_periods(metric, reports), np.array(list(people.values())) / CLIENTS
    positions = bit_positions(names, params)[:, :, 0]
    squares, declared = [], []
    for _ in range(runs):
        counts = simulate(metric, people, rng, no_value=CLIENTS - sum(people.values()), periods=periods)
        estimates = {estimate.candidate: estimate for estimate in decode(counts, names)}
        true_ones, _ = debias(counts.ones, counts.reports, params)
        own_bit = true_ones[np.arange(num_cohorts), positions].sum(axis=1) / counts.num_reports
        share = np.array([estimates[name].share for name in names])
        squares.append((share - truth) ** 2 - (own_bit - truth) ** 2)
        declared.append([estimates[name].std_error ** 2 for name in names])
    scale = CLIENTS / np.array([law(epsilons, reports, share) for share in truth])
    return list(_summaries(epsilons, reports, truth, 1 + np.array(squares) * scale, np.array(declared) * scale))


def _summaries(
    epsilons: tuple[float, float], reports: int, truth: Floats, ratios: Floats, declared: Floats
) -> list[Variance]:
    """Summaries of ratios (runs, names) by share."""
    return [
        Variance(
            epsilons,
            reports,
            share,
            law(epsilons, reports, share),
            float(of_share.mean()),
            float(of_share.std(ddof=1) / math.sqrt(of_share.size)),
            float(declared[:, truth == share].mean()),
        )
        for share in SHARES
        for of_share in [ratios[:, truth == share]]
    ]


def _apart(params: Params, number: int, rng: np.random.Generator) -> list[str]:
    """Random names that share no bit in any cohort."""
    taken: list[set[int]] = [set() for _ in range(params.num_cohorts)]
    names: list[str] = []
    while len(names) < number:
        name = f"{rng.integers(1 << 62)}"
        bits = bit_positions([name], params)[0, :, 0].tolist()
        if not any(bit in used for bit, used in zip(bits, taken, strict=True)):
            names.append(name)
            for bit, used in zip(bits, taken, strict=True):
                used.add(bit)
    return names
