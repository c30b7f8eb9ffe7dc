"""Counts of several periods in which clients come and go: each keeps its value, its cohort and, within an epoch of `hold`, its permanent response."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from hubbub import Metric
from hubbub.summary import BitCounts
from hubbub_decoder.kinds.operations import operations_of
from hubbub_decoder.model.repetition import epoch_numbers
from hubbub_decoder.random_state import frozen

Clients = tuple[Mapping[str, int], Sequence[int]]
"""Number of clients with each value, and the periods in which they report, by index."""


def simulate_panel(
    metric: Metric, groups: Sequence[Clients], periods: Sequence[str], rng: np.random.Generator
) -> list[BitCounts]:
    """Return the counts of each period."""
    mechanism, m, k = metric.params.mechanism, metric.num_cohorts, metric.params.num_bits
    epochs = epoch_numbers(metric, periods) if metric.hold else [0] * len(periods)
    reports, ones = np.zeros((len(periods), m), np.int64), np.zeros((len(periods), m, k), np.int64)

    def draw(of_ones: NDArray[np.int64], total: NDArray[np.int64], q: float, p: float) -> NDArray[np.int64]:
        return np.asarray(rng.binomial(of_ones, q) + rng.binomial(total - of_ones, p))

    for population, present in groups:
        clients, true_ones = np.zeros(m, np.int64), np.zeros((m, k + 1), np.int64)
        for positions, counts in operations_of(metric).true_bits(population, frozen(rng)):
            in_cohort = rng.multinomial(counts, np.full(m, 1 / m))
            clients += in_cohort.sum(axis=0)
            cohort = np.broadcast_to(np.arange(m)[:, None], positions.shape)
            np.add.at(true_ones, (cohort, positions), np.broadcast_to(in_cohort[..., None], positions.shape))
        total = np.broadcast_to(clients[:, None], (m, k))
        permanent = {
            epoch: draw(true_ones[:, :k], total, mechanism.permanent_q, mechanism.permanent_p)
            for epoch in sorted({epochs[i] for i in present})
        }
        for i in present:
            reports[i] += clients
            ones[i] += draw(permanent[epochs[i]], total, mechanism.prob_q, mechanism.prob_p)
    return [
        BitCounts(metric, of_period, of_bits, [first])
        for of_period, of_bits, first in zip(reports, ones, periods, strict=True)
    ]
