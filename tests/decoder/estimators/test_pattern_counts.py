"""Estimator for pattern counts: exact without noise, and calibrated with noise, on unseen seeds."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from scipy.stats import binom, norm

from hubbub import Metric, Params
from hubbub.summary import PatternCounts
from hubbub_decoder import Decoding, decode
from hubbub_decoder.estimators import message_passing
from hubbub_decoder.inference.prior import Prior
from hubbub_decoder.model.pattern_likelihood import supports_pattern_likelihood
from hubbub_decoder.simulation import simulate

ALPHA = 1e-6


def metric(k: int = 8, h: int = 2, m: int = 32, pqf: tuple[float, float, float] = (0.225, 0.775, 0.0)) -> Metric:
    p, q, f = pqf
    return Metric.string("m", Params(num_bits=k, num_hashes=h, num_cohorts=m, prob_p=p, prob_q=q, prob_f=f))


def zipf(values: int, people: int) -> dict[str, int]:
    weights = 1 / np.arange(1, values + 1)
    return {f"v{i}": int(n) for i, n in enumerate(people * weights / weights.sum(), start=1)}


def test_patterns_without_noise_are_nearly_exact() -> None:
    """p = 0, q = 1, f = 0, every string listed: a report is its filter, and only the sizes of the cohorts vary."""
    population = {"a": 700, "b": 200, "c": 100}
    counts = simulate(metric(pqf=(0, 1, 0)), population, np.random.default_rng(1), form=PatternCounts)
    decoding = decode(counts, ["a", "b", "c", "d"])
    for name, share in (("a", 0.7), ("b", 0.2), ("c", 0.1), ("d", 0.0)):
        assert decoding[name].share == pytest.approx(share, abs=0.02)
        assert decoding[name].std_error < 0.02


@pytest.mark.slow
@pytest.mark.parametrize(
    ("listed", "absent", "pqf"),
    [
        (40, 20, (0.225, 0.775, 0.0)),
        (30, 30, (0.225, 0.775, 0.0)),  # a quarter of the values, sent by 5 % of the people, are unlisted
        (40, 400, (0.39, 0.61, 0.45)),  # 440 candidates, more than twice the 8 x 32 numbers that carry most information
    ],
)
def test_pattern_intervals_cover_and_false_discoveries_are_few(
    listed: int, absent: int, pqf: tuple[float, float, float], unseen_seed: int
) -> None:
    """40 populations of 200,000: coverage .95 within 1.5 points beyond chance, false discovery rate at most 5 %; alpha = 1e-6.

    Candidates of one decoding share noise, so the variance is measured between decodings. Strings have new names in each decoding.
    Otherwise an absent candidate that hashes like frequent ones would be a false discovery in all of them.
    """
    rng = np.random.default_rng(unseen_seed)
    covered: dict[str, list[float]] = defaultdict(list)
    false = []
    for run in range(40):
        population = {f"{run} {name}": number for name, number in zipf(40, 200_000).items()}
        people = sum(population.values())
        names = [*list(population)[:listed], *(f"{run} w{i}" for i in range(absent))]
        decoding = decode(simulate(metric(pqf=pqf), population, rng, form=PatternCounts), names)
        hits: dict[str, list[bool]] = defaultdict(list)
        for e in decoding.estimates:
            truth = population.get(e.candidate, 0) / people
            hits["there" if truth else "absent"].append(e.low <= truth <= e.high)
        for kind, values in hits.items():
            covered[kind].append(float(np.mean(values)))
        found = decoding.detected
        false.append(sum(e.candidate not in population for e in found) / max(1, len(found)))
    for kind, shares in covered.items():
        assert abs(np.mean(shares) - 0.95) < 0.015 + norm.isf(ALPHA / 2) * np.std(shares, ddof=1) / np.sqrt(40), kind
    assert np.mean(false) < 0.05 + norm.isf(ALPHA) * np.std(false, ddof=1) / np.sqrt(40)


def test_empirical_prior_reduces_errors(unseen_seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """300 strings of equal share, far below its noise: valid errors, a tenth smaller than with mean 0 and the true mean square.

    The estimates depend on one prior: in 60 draws, 3 to 28 of 300 intervals missed. So they count as 100 independent ones, alpha = 1e-6.
    """
    population = {f"v{i}": 8_000 for i in range(300)}
    crowd = metric(m=64, pqf=(0.39, 0.61, 0.45))
    counts = simulate(crowd, population, np.random.default_rng(unseen_seed), form=PatternCounts)
    learnt = decode(counts, list(population))

    around_nothing = Prior(np.zeros(1), np.full(1, 1 / 300), np.ones(1))
    monkeypatch.setattr(message_passing, "fit_prior", lambda *_, **__: around_nothing)
    alike = decode(counts, list(population))
    assert learnt["v0"].std_error < 0.9 * alike["v0"].std_error
    hits = sum(e.low <= 1 / 300 <= e.high for e in learnt.estimates)
    assert hits / 300 >= binom.ppf(ALPHA, 100, 0.93) / 100


@pytest.mark.slow
def test_intervals_of_totals_cover(unseen_seed: int) -> None:
    """Candidates, unlisted and no value, 100 populations: 95 % intervals cover at least as often as chance allows at 1e-6."""
    rng = np.random.default_rng(unseen_seed)
    population = zipf(40, 80_000)
    people = sum(population.values())
    total = people + 20_000
    listed = sum(population[f"v{i}"] for i in range(1, 31))
    hits = np.zeros(3, int)
    for _ in range(100):
        counts = simulate(metric(), population, rng, no_value=20_000, form=PatternCounts)
        decoding = decode(counts, [f"v{i}" for i in range(1, 31)])
        truths = (listed / total, (people - listed) / total, 20_000 / total)
        for row, mass in enumerate((decoding.listed_total, decoding.unlisted, decoding.no_value)):
            hits[row] += mass.low <= truths[row] <= mass.high
    assert hits.min() >= binom.ppf(ALPHA / 3, 100, 0.93)


def test_population_target_adds_sampling_variance(unseen_seed: int) -> None:
    counts = simulate(metric(), {"a": 5000, "b": 5000}, np.random.default_rng(unseen_seed), form=PatternCounts)
    reporters, population = decode(counts, ["a", "b"]), decode(counts, ["a", "b"], target="population")
    x = reporters["a"].share
    gained = population["a"].std_error ** 2 - reporters["a"].std_error ** 2
    assert gained == pytest.approx(x * (1 - x) / 10_000, rel=1e-6)
    assert population["a"].share == x


@pytest.mark.slow
def test_selection_adjusted_intervals_cover_detected_candidates(unseen_seed: int) -> None:
    """60 populations: 95 % of the detected candidates are inside their adjusted intervals; alpha = 1e-6."""
    rng = np.random.default_rng(unseen_seed)
    population = zipf(60, 30_000)
    people = sum(population.values())
    names = [f"v{i}" for i in range(1, 61)]

    def missed(decoding: Decoding) -> list[bool]:
        return [
            not e.selection_adjusted_low <= population[e.candidate] / people <= e.selection_adjusted_high
            for e in decoding.detected
        ]

    wrong = [
        miss
        for _ in range(60)
        for miss in missed(decode(simulate(metric(), population, rng, form=PatternCounts), names))
    ]
    assert len(wrong) > 200
    assert sum(wrong) <= binom.isf(ALPHA, len(wrong), 0.05)


def test_patterns_with_too_many_filters_are_decoded_from_bits() -> None:
    assert supports_pattern_likelihood(metric(8, 2).params)
    assert supports_pattern_likelihood(metric(16, 3).params)
    assert not supports_pattern_likelihood(metric(16, 6).params)
    counts = simulate(metric(16, 6), {"a": 5000}, np.random.default_rng(1), form=PatternCounts)
    assert decode(counts, ["a", "b"])["a"].detected
