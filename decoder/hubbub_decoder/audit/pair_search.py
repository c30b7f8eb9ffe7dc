"""Search for the pair of values and the distinguisher that reveal most.

Three kinds of candidates, from one scan over all values:

    declared mechanism    the pair that needs the fewest trials by the declared law, with its exact likelihood ratio and the event
                          that reaches the largest bound by that law
    learned noise         the same pair, with the noise that was measured given the true bit
    learned ratios        two pairs, with ratios learned for each cohort and each of its bits: the pair with the most extreme single
                          bit of a cohort, and the pair with the largest divergence over all cohorts and bits

The last finds a fault at a few bits, a cohort that depends on the value, or a fault of a client without a known mechanism.
The declared mechanism is always tested: by its law no candidate is better, so the largest of several noisy bounds is a worse choice.
Another candidate is tested too if its 95 % bound exceeds the claim, or the estimate of the declared event.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hubbub.metrics.metric import Metric
from hubbub_decoder.array_types import Bits, Floats
from hubbub_decoder.audit.bound import Event, bound_of_event, choose_event
from hubbub_decoder.audit.clients import MAX_COHORTS, AuditedValue
from hubbub_decoder.audit.distinguisher import (
    Distinguisher,
    count_histogram,
    declared_ratio,
    learned_noise,
    learned_ratios,
    likelihood_ratio,
    true_bits,
)
from hubbub_decoder.audit.loss_law import declared_event, loss_law, trials_needed
from hubbub_decoder.audit.trials import Laboratory, Schedule

_MAX_PAIRS_BY_DIVERGENCE = 66
_ALPHA_OF_CHOICE = 0.05
Histogram = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Candidate:
    """Pair of values, by position in the list of values, a distinguisher of them, and its event if no trials are to choose it."""

    first: int
    second: int
    distinguisher: Distinguisher
    event: Event | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """Candidate and event that were chosen on the first half of the trials."""

    candidate: Candidate
    event: Event


def declared_pair(
    metric: Metric, bits: list[Bits], schedule: Schedule, claim: float, alpha: float
) -> tuple[int, int, float]:
    """Pair with the fewest trials of each value by the declared law, and that number; infinite if no pair reaches the claim."""
    needed = {
        (i, j): trials_needed(loss_law(metric, bits[i], bits[j], schedule.per_epoch, schedule.epochs), claim, alpha)
        for i, j in itertools.combinations(range(len(bits)), 2)
    }
    pair = min(needed, key=needed.__getitem__)
    return (*pair, needed[pair])


def scan(laboratory: Laboratory, values: list[AuditedValue], clients: int) -> list[Histogram]:
    """(cohorts, k, t + 1) histogram of each value, over so many clients each; as many cohorts as the reports show, at most 256."""
    k, t = laboratory.num_bits, laboratory.schedule.per_epoch
    histograms = []
    for value in values:
        total = np.zeros((MAX_COHORTS, k, t + 1), np.int64)
        for seen in laboratory.observe(value, clients):
            total += count_histogram(seen, MAX_COHORTS, t)
        histograms.append(total)
    cohorts = 1 + max(int(np.flatnonzero(total.any(axis=(1, 2)))[-1]) for total in histograms)
    return [total[:cohorts] for total in histograms]


def learned_candidates(histograms: list[Histogram], epochs: int) -> list[Candidate]:
    """Pairs that differ most by the scan, with their learned distinguishers.

    The pair with the most extreme tail of one bit, and, among at most 12 values, the pair with the largest divergence.
    """
    pairs = [_pair_of_extreme_bit(histograms)]
    if math.comb(len(histograms), 2) <= _MAX_PAIRS_BY_DIVERGENCE:
        pairs.append(
            max(
                itertools.combinations(range(len(histograms)), 2),
                key=lambda pair: _divergence(histograms[pair[0]], histograms[pair[1]], epochs),
            )
        )
    return [Candidate(i, j, learned_ratios(histograms[i], histograms[j], epochs)) for i, j in dict.fromkeys(pairs)]


def _pair_of_extreme_bit(histograms: list[Histogram]) -> tuple[int, int]:
    """Pair with the largest ratio of the frequencies of a tail, {s >= j} or {s <= j}, of one bit in one cohort.

    The frequencies are two standard errors and up to four counts worse than observed, so that a rare tail does not win by chance.
    """
    upper = np.array([np.cumsum(histogram[:, :, ::-1], axis=2)[:, :, ::-1] for histogram in histograms])
    lower = np.array([np.cumsum(histogram, axis=2) for histogram in histograms])
    best, pair = -math.inf, (0, 1)
    for counts in (upper, lower):
        low = np.maximum(counts - 2 * np.sqrt(counts), 1e-3)
        high = counts + 2 * np.sqrt(counts) + 4
        ratio = low.max(axis=0) / high.min(axis=0)
        cell = np.unravel_index(int(ratio.argmax()), ratio.shape)
        if ratio[cell] > best:
            best, pair = float(ratio[cell]), (int(low[:, *cell].argmax()), int(high[:, *cell].argmin()))
    return pair if pair[0] != pair[1] else (0, 1)


def _divergence(counts: Histogram, counts_other: Histogram, epochs: int) -> float:
    """Learned log-likelihood ratio of an average client of the first value, minus that of the second: Jeffreys' divergence."""
    learned = learned_ratios(counts, counts_other, epochs)
    shares, shares_other = (histogram * epochs / histogram[:, 0].sum() for histogram in (counts, counts_other))
    of_bits = (learned.table * (shares - shares_other)).sum()
    of_cohorts = (learned.cohort_table * (shares - shares_other)[:, 0].sum(axis=1)).sum() / epochs
    return float(of_bits + of_cohorts)


def declared_candidate(
    metric: Metric, values: list[AuditedValue], pair: tuple[int, int], schedule: Schedule, trials: int, alpha: float
) -> Candidate:
    """Declared mechanism of a pair of values, with the event for a bound of so many trials of each value."""
    first, second = (true_bits(metric, values[number]) for number in pair)
    event = declared_event(loss_law(metric, first, second, schedule.per_epoch, schedule.epochs), trials, alpha)
    return Candidate(*pair, declared_ratio(metric, first, second, schedule.per_epoch), event)


def find_candidates(
    laboratory: Laboratory, values: list[AuditedValue], clients: int, metric: Metric | None, declared: Candidate | None
) -> list[Candidate]:
    """Candidates from one scan over all values. metric, declared: definition and `declared_candidate`, None for an unknown mechanism."""
    histograms = scan(laboratory, values, clients)
    candidates = learned_candidates(histograms, laboratory.schedule.epochs)
    if metric is not None and declared is not None:
        bits = [true_bits(metric, value) for value in values]
        first, second = declared.first, declared.second
        noise = learned_noise(metric, histograms, bits)
        measured = likelihood_ratio("likelihood ratio of the measured noise", noise, bits[first], bits[second])
        candidates += [declared, Candidate(first, second, measured)]
    return candidates


def choose(
    laboratory: Laboratory,
    values: list[AuditedValue],
    clients: int,
    candidates: list[Candidate],
    claim: float,
    alpha: float,
) -> list[Choice]:
    """Candidates to test, from `clients` new clients of each value that a candidate compares.

    The declared mechanism and a candidate that may exceed it; the candidate with the largest bound for an unknown mechanism.
    """
    used = {number for candidate in candidates for number in (candidate.first, candidate.second)}
    scored: dict[int, dict[int, Floats]] = {}
    for number in used:
        mine = [at for at, candidate in enumerate(candidates) if number in (candidate.first, candidate.second)]
        columns = laboratory.scores(values[number], clients, [candidates[at].distinguisher for at in mine])
        scored[number] = dict(zip(mine, columns, strict=True))
    figures, choices = [], []
    for at, candidate in enumerate(candidates):
        scores, scores_other = scored[candidate.first][at], scored[candidate.second][at]
        event = candidate.event or choose_event(scores, scores_other, alpha)
        bound = bound_of_event(event, scores, scores_other, _ALPHA_OF_CHOICE)
        figures.append(min(bound.estimate, claim) if candidate.event else bound.epsilon)
        choices.append(Choice(candidate, event))
    best = choices[int(np.argmax(figures))]
    declared = next((choice for choice in choices if choice.candidate.event), best)
    return [declared] if declared is best else [declared, best]
