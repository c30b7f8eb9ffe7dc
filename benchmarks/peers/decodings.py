"""hubbub in a cell of the comparison: bit counts with the optimal probabilities of one report, decoded with all values as candidates."""

from __future__ import annotations

import math
import resource
import time

import numpy as np

from benchmarks.peers.cells import Cell, Score, error_ratio, mean_and_error, total_variation
from hubbub import Metric, Params
from hubbub_decoder import decode
from hubbub_decoder.data.simulate import simulate_bit_counts

SIZES = {1: (128, 64), 2: (128, 64), 4: (256, 64)}
"""Numbers of bits k and of cohorts m by epsilon, found by measurement: collisions cost more where the noise is small."""


def choose_params(cell: Cell) -> Params:
    """Parameters of one report at the cell's epsilon: h = 1, f = 0, q = 1/2 and p = 1 / (e^eps + 1)."""
    bits, cohorts = SIZES[math.ceil(cell.epsilon)]
    return Params(
        num_bits=bits,
        num_hashes=1,
        num_cohorts=cohorts,
        prob_p=1 / (math.exp(cell.epsilon) + 1),
        prob_q=0.5,
        prob_f=0,
    )


def score_hubbub(cell: Cell) -> Score:
    """Scores of hubbub's decoder; the reports of each run have other random hash positions."""
    metric = Metric.string("peers", choose_params(cell))
    errors, variations, coverages, seconds = [], [], [], []
    for run in range(cell.runs):
        population = cell.population(run)
        counts = simulate_bit_counts(metric, population, cell.generator("hubbub", run))
        started = time.perf_counter()
        decoding = decode(counts, list(population))
        seconds.append(time.perf_counter() - started)
        truth = np.array([population[e.candidate] for e in decoding]) / cell.reports
        errors.append(error_ratio(cell, np.array([e.share for e in decoding]), truth))
        variations.append(total_variation(np.array([e.posterior_median for e in decoding]), truth))
        coverages.append(np.mean([e.low <= share <= e.high for e, share in zip(decoding, truth, strict=True)]))
    return Score(
        *mean_and_error(errors),
        variation=mean_and_error(variations)[0],
        coverage=mean_and_error(coverages)[0],
        seconds=float(np.median(seconds)),
        megabytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )
