"""Search for the pair of values, and for a client without a definition the distinguisher, that reveal most.

declared mechanism    the pair that needs the fewest trials by the declared law
unknown mechanism     two pairs from one scan over all values, with ratios learned for each cohort and each of its bits: the pair
                      with the most extreme single bit of a cohort, and the pair with the largest divergence over all of them
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hubbub.metrics.metric import Metric
from hubbub_decoder.array_types import Bits
from hubbub_decoder.audit.bound import Event, bound_of_event, choose_event
from hubbub_decoder.audit.clients import MAX_COHORTS, AuditedValue
from hubbub_decoder.audit.distinguisher import LearnedRatio, Observations, count_histogram, learned_ratios
from hubbub_decoder.audit.laws import Flags
from hubbub_decoder.audit.loss_law import loss_law, trials_needed
from hubbub_decoder.audit.trials import Laboratory, Schedule

_MAX_PAIRS_BY_DIVERGENCE = 66
_ALPHA_OF_CHOICE = 0.05
Histogram = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Candidate:
    """Pair of values, by position in the list of values, and a distinguisher of them."""

    first: int
    second: int
    distinguisher: LearnedRatio


def declared_pair(
    metric: Metric, bits: Sequence[Bits | Flags], schedule: Schedule, claim: float, alpha: float
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
        for made in laboratory.observe(value, clients):
            total += count_histogram(Observations.of(made, t), MAX_COHORTS, t)
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


def choose(
    laboratory: Laboratory, values: list[AuditedValue], clients: int, candidates: list[Candidate], alpha: float
) -> tuple[Candidate, Event]:
    """Candidate with the largest bound, and its event, from so many new clients of each of its values."""
    choices = []
    for candidate in candidates:
        scores, scores_other = (
            laboratory.scores(values[number], clients, [candidate.distinguisher])[0]
            for number in (candidate.first, candidate.second)
        )
        event = choose_event(scores, scores_other, alpha)
        choices.append((bound_of_event(event, scores, scores_other, _ALPHA_OF_CHOICE).epsilon, candidate, event))
    _, candidate, event = max(choices, key=lambda choice: choice[0])
    return candidate, event
