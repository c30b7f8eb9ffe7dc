"""The packages pure-LDP and multi-freq-ldpy in a cell of the comparison, in an environment of their own."""

from __future__ import annotations

import math
from functools import cached_property
from pathlib import Path

import numpy as np

from benchmarks.environment import EnvironmentUnavailableError, make_environment, run_script
from tests.support.oracle_cells import Cell, Score, error_ratio, mean_and_error, norm_sub, total_variation

REQUIREMENTS = (
    "pure-ldp==1.2.0",
    "multi-freq-ldpy==0.2.5",
    "numpy==1.26.4",
    "xxhash==3.4.1",  # later releases refuse the packages' hash keys
    "scikit-learn",  # pure-LDP imports both without declaring them
    "statsmodels",
)
ORACLES = (
    "pure-LDP OUE",
    "pure-LDP OLH",
    "pure-LDP fast OLH",
    "pure-LDP Hadamard response",
    "pure-LDP CMS",
    "pure-LDP HCMS",
    "pure-LDP RAPPOR",
    "multi-freq-ldpy OUE",
    "multi-freq-ldpy OLH",
    "multi-freq-ldpy subset selection",
    "multi-freq-ldpy GRR",
)
LONGITUDINAL = "at most 2 eps of all reports"
OF_FEW_VALUES = ("multi-freq-ldpy GRR", "multi-freq-ldpy subset selection", "multi-freq-ldpy L-GRR")
"""Oracles of cells with few values. L-GRR has two stages, with twice the epsilon of a report for all of them (Arcolezi et al. 2021)."""
_RUNNER = Path(__file__).parent / "runner.py"
_START_SECONDS = 30  # importing and compiling


class Packages:
    """Oracles of the packages, each run in a process of its own with a limit of time.

    Time grows with the number of reports, so a row is skipped where ten times fewer reports took over a tenth of the limit.
    """

    def __init__(self, folder: Path, seconds: float, runs: int) -> None:
        self._folder = folder
        self._seconds = seconds
        self._runs = runs

    @cached_property
    def _python(self) -> Path | str:
        """Python of the environment, or the reason why there is none."""
        try:
            return make_environment(self._folder, REQUIREMENTS)
        except EnvironmentUnavailableError as problem:
            return f"skipped: {problem}"

    def score(self, name: str, cell: Cell, fewer: Score | str | None) -> Score | str:
        """Scores of an oracle in a cell, or the reason why there is none.

        fewer : result with a tenth of the reports; None if unknown
        """
        if isinstance(self._python, str):
            return self._python
        if isinstance(fewer, str):
            return fewer
        if fewer is not None and 10 * fewer.seconds > self._seconds:
            return f"skipped: about {10 * fewer.seconds:.0f} s expected"
        runs = range(min(self._runs, cell.runs))
        populations = [list(cell.population(run).values()) for run in runs]
        task = {"oracle": name, "epsilon": cell.epsilon, "populations": populations, "seed": 0}
        try:
            answer = run_script(self._python, _RUNNER, task, len(runs) * self._seconds + _START_SECONDS)
        except EnvironmentUnavailableError as problem:
            return f"skipped: {problem}"
        truths = np.array(populations) / cell.reports
        estimates = np.array(answer["estimates"])
        guesses = [norm_sub(shares) for shares in estimates] if name.startswith("pure-LDP") else estimates
        return Score(
            *mean_and_error([error_ratio(cell, *pair) for pair in zip(estimates, truths, strict=True)]),
            declared=math.nan,
            variation=mean_and_error([total_variation(*pair) for pair in zip(guesses, truths, strict=True)])[0],
            seconds=answer["seconds"] / len(runs),
            megabytes=answer["megabytes"],
        )
