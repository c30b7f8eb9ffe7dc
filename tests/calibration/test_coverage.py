"""Calibration where random tasks seldom are: 95 % intervals cover 95 % over many populations, and the false discovery rate holds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.stats import norm

from hubbub import Metric, Params
from hubbub_decoder import decode
from hubbub_decoder.data.populations import distribution_shares, draw_population
from hubbub_decoder.simulation import simulate

ALPHA = 1e-6


@dataclass(frozen=True)
class Case:
    """Reports of `num_values` values of a distribution; `wrong` candidates are absent."""

    params: Params
    num_reports: int
    num_values: int
    wrong: int
    distribution: str = "exp"
    no_value: int = 0
    runs: int = 120


def params(k: int, h: int, m: int, p: float, q: float, f: float, scheme: str = "murmur3-v1") -> Params:
    return Params(num_bits=k, num_hashes=h, num_cohorts=m, prob_p=p, prob_q=q, prob_f=f, hash_scheme=scheme)


CASES = {
    "google-md5, p > q, some without value": Case(
        params(16, 2, 16, 0.7, 0.3, 0.25, "google-md5"), 300_000, 40, 40, distribution="zipf1", no_value=50_000
    ),
    "more candidates than bits": Case(params(16, 2, 16, 0.25, 0.75, 0.25), 500_000, 40, 300, runs=40),
    "more candidates than can be fitted": Case(params(16, 2, 32, 0.25, 0.75, 0.25), 500_000, 40, 1000, runs=60),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_intervals_cover_and_false_discovery_rate_holds(case: Case, unseen_seed: int) -> None:
    """Coverage in [.94, .96] for truth > 0 and for truth = 0, false discovery rate <= .05; alpha = 1e-6 each.

    40 to 120 populations of 80 to 1,040 candidates, standard errors from the spread between populations. With probability
    above .99 it detects a coverage of .89 of the candidates (1,600 intervals in the smallest case), and of .68 of the totals (80).
    """
    rng = np.random.default_rng(unseen_seed)
    metric = Metric.string("simulated", case.params)
    shares = distribution_shares(case.distribution, case.num_values)
    candidates = [*shares, *(f"wrong{i}" for i in range(case.wrong))]
    covered: dict[str, list[tuple[int, int]]] = {"truth > 0": [], "truth = 0": [], "masses": []}
    false_shares = []
    for run in range(case.runs):
        renamed = {f"{run} {name}": share for name, share in shares.items()}  # new hashes in every run
        population = draw_population(renamed, case.num_reports, rng)
        counts = simulate(metric, population, rng, no_value=case.no_value)
        decoding = decode(counts, [f"{run} {name}" for name in candidates])
        n = decoding.num_reports
        inside: dict[str, list[bool]] = {kind: [] for kind in covered}
        for e in decoding.estimates:
            if not math.isnan(e.share):
                truth = population.get(e.candidate, 0) / n
                inside["truth > 0" if truth else "truth = 0"].append(e.low <= truth <= e.high)
        truly_none = case.no_value / n
        inside["masses"].append(decoding.no_value.low <= truly_none <= decoding.no_value.high)
        if decoding.num_kept is None:  # after a selection the listed are those chosen
            listed = sum(population.get(f"{run} {name}", 0) for name in shares) / n
            inside["masses"].append(decoding.listed_total.low <= listed <= decoding.listed_total.high)
        for kind, hits in inside.items():
            covered[kind].append((sum(hits), len(hits)))
        found = decoding.detected
        false_shares.append(sum(not population.get(e.candidate, 0) for e in found) / max(len(found), 1))
    for kind, hits_of in covered.items():
        hits, sizes = np.array(hits_of, float).T
        coverage = hits.sum() / sizes.sum()
        error = math.sqrt(np.sum((hits - coverage * sizes) ** 2)) / sizes.sum()
        floor = math.sqrt(0.95 * 0.05 / sizes.sum())
        reach = norm.isf(ALPHA / 2) * max(error, floor)
        assert 0.94 - reach <= coverage <= 0.96 + reach, (kind, coverage, reach)
    error = np.std(false_shares, ddof=1) / math.sqrt(case.runs)
    assert np.mean(false_shares) <= 0.05 + norm.isf(ALPHA) * error
