"""hubbub in a cell of the comparison: reports of the planned metric, decoded with all values as candidates."""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

from benchmarks.peers.packages import LONGITUDINAL
from benchmarks.runner import peak_megabytes
from hubbub import Metric
from hubbub.summary import BitCounts, Reports
from hubbub_decoder import decode
from hubbub_decoder.simulation import simulate
from tests.support.oracle_cells import (
    Cell,
    Score,
    choose_categories,
    choose_params,
    error_ratio,
    mean_and_error,
    total_variation,
)

MAX_RETAINED_CELLS = 10_000_000
"""Largest product of reports and values for retained reports here; `decode` compares each report with each value."""


FORMS: dict[str, type[BitCounts | Reports]] = {"bit counts": BitCounts, "retained reports": Reports}
CATEGORIES: dict[str, float | None] = {"categories": None, f"categories, {LONGITUDINAL}": 2.0}
"""Categorical metrics of cells with few values, and their longitudinal epsilon over that of a report."""


def score_hubbub(collected: str, cell: Cell) -> Score:
    """Scores of the decoder in a process of its own, so that the peak memory is that of this cell."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_score, collected, cell).result()


def _metric(collected: str, cell: Cell, names: list[str]) -> Metric:
    if collected not in CATEGORIES:
        return Metric.string("peers", choose_params(cell))
    ratio = CATEGORIES[collected]
    return choose_categories(cell, names, None if ratio is None else ratio * cell.epsilon)


def _score(collected: str, cell: Cell) -> Score:
    """Each run has other names of the values, so other hash positions."""
    errors, declared, variations, coverages, seconds = [], [], [], [], []
    for run in range(cell.runs):
        population = cell.population(run)
        metric = _metric(collected, cell, list(population))
        rng, form = cell.generator(f"hubbub {collected}", run), FORMS.get(collected, BitCounts)
        summary = simulate(metric, population, rng, form=form)
        started = time.process_time()
        decoding = decode(summary, None if collected in CATEGORIES else list(population))
        seconds.append(time.process_time() - started)
        truth = np.array([population[e.candidate] for e in decoding]) / cell.reports
        errors.append(error_ratio(cell, np.array([e.share for e in decoding]), truth))
        declared.append(error_ratio(cell, np.array([e.std_error for e in decoding]), np.zeros_like(truth)))
        variations.append(total_variation(np.array([e.posterior_median for e in decoding]), truth))
        coverages.append(np.mean([e.low <= share <= e.high for e, share in zip(decoding, truth, strict=True)]))
    return Score(
        *mean_and_error(errors),
        declared=mean_and_error(declared)[0],
        variation=mean_and_error(variations)[0],
        coverage=mean_and_error(coverages)[0],
        seconds=float(np.median(seconds)),
        megabytes=peak_megabytes(),
    )
