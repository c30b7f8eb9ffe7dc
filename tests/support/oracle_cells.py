"""Cells of the comparison of frequency oracles, their populations, the planned parameters, and the score of an estimate."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hubbub import KindWord, Metric, Params
from hubbub_decoder import Wishes, plan
from hubbub_decoder.data.populations import distribution_shares, draw_population

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

FEW_VALUES = 30
"""Cells with at most so many values compare categorical metrics, one without and one with permanent noise."""
MOST_BITS = 256
"""Largest number of bits here: the time of a decoding grows with its cube, and more bits gain 4 % at most."""


class Cell(NamedTuple):
    """Epsilon of one report, number of values (all of them are candidates), number of reports N, and largest number of runs."""

    epsilon: float
    values: int
    reports: int
    most_runs: int = 10

    @property
    def optimum(self) -> float:
        """N times the mean variance of optimized unary encoding over the values: 4 e^eps / (e^eps - 1)^2 + 1 / M.

        Source: Wang et al. 2017, equation 6. A value of share x has N Var = 4 e^eps / (e^eps - 1)^2 + x.

        >>> round(Cell(2, 1_000, 10_000).optimum, 4)
        0.7251
        """
        e = math.exp(self.epsilon)
        return 4 * e / (e - 1) ** 2 + 1 / self.values

    @property
    def runs(self) -> int:
        """Number of populations; the mean squared error of n independent estimates has a standard error of sqrt(2 / n)."""
        return min(self.most_runs, max(2, 2_000 // self.values))

    def generator(self, name: str, run: int) -> np.random.Generator:
        """Random generator of one run of an oracle in this cell."""
        text = f"{self.epsilon:g} {self.values} {self.reports} {name} {run}"
        return np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big"))

    def population(self, run: int) -> dict[str, int]:
        """Number of reports of each value of Zipf's law; each run has other names, so other hash positions."""
        shares = {f"{run} {name}": share for name, share in distribution_shares("zipf1", self.values).items()}
        return draw_population(shares, self.reports, self.generator("population", run))


class Score(NamedTuple):
    """Scores of one oracle in a cell, means over its runs.

    error       : N x mean squared error over all values, as a ratio to the optimum
    uncertainty : its standard error over the runs; NaN of one run, 0 where the error is a formula
    declared    : mean of the decoder's variances as the same ratio; NaN without them
    variation   : total variation of the best guess of the distribution; NaN if unknown
    coverage    : of 95 % confidence intervals; NaN without intervals
    seconds     : of a processor for one estimation, and in the packages for encoding too; NaN where counts are drawn
    megabytes   : peak memory of the process; NaN where it was not measured
    """

    error: float
    uncertainty: float
    declared: float
    variation: float
    coverage: float = math.nan
    seconds: float = math.nan
    megabytes: float = math.nan


def error_ratio(cell: Cell, estimates: Floats, truth: Floats) -> float:
    """N times the mean squared error of the estimated shares, over the optimum."""
    return float(cell.reports * np.mean((estimates - truth) ** 2) / cell.optimum)


def total_variation(estimates: Floats, truth: Floats) -> float:
    """Half of the L1 distance."""
    return float(np.abs(estimates - truth).sum() / 2)


def norm_sub(estimates: Floats) -> Floats:
    """Nearest distribution in the L2 norm ("Norm-Sub", Wang et al. 2020; Duchi et al. 2008).

    >>> norm_sub(np.array([0.9, 0.3, -0.4])).round(3).tolist()
    [0.8, 0.2, 0.0]
    """
    descending = np.sort(estimates)[::-1]
    excess = (np.cumsum(descending) - 1) / np.arange(1, len(estimates) + 1)
    kept = np.nonzero(descending > excess)[0][-1]
    return np.asarray(np.maximum(estimates - excess[kept], 0))


def mean_and_error(figures: Sequence[float]) -> tuple[float, float]:
    """Mean and its standard error; NaN of one figure."""
    error = float(np.std(figures, ddof=1)) / math.sqrt(len(figures)) if len(figures) > 1 else math.nan
    return float(np.mean(figures)), error


def choose_categories(cell: Cell, names: Sequence[str], longitudinal: float | None) -> Metric:
    """Categorical metric that `plan` chooses for one report, with this largest epsilon of any number of reports."""
    wishes = Wishes(
        kind=KindWord.CATEGORICAL,
        num_candidates=cell.values,
        epsilon=cell.epsilon,
        longitudinal=longitudinal,
        num_reports=cell.reports,
    )
    return plan(wishes, categories=names).metric


def choose_params(cell: Cell) -> Params:
    """Parameters of one report that `plan` chooses, with at most MOST_BITS bits."""
    wishes = Wishes(num_candidates=cell.values, epsilon=cell.epsilon, num_reports=cell.reports, bits=MOST_BITS)
    return plan(wishes).metric.params
