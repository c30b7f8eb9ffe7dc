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
        errors, variations, seconds, megabytes = [], [], [], []
        for run in range(min(self._runs, cell.runs)):
            counts = np.array(list(cell.population(run).values()), np.int64)
            task = {"oracle": name, "epsilon": cell.epsilon, "counts": counts.tolist(), "seed": run}
            try:
                answer = run_script(self._python, _RUNNER, task, self._seconds + _START_SECONDS)
            except EnvironmentUnavailableError as problem:
                return f"skipped: {problem}"
            estimates, truth = np.array(answer["estimates"]), counts / cell.reports
            errors.append(error_ratio(cell, estimates, truth))
            guess = norm_sub(estimates) if name.startswith("pure-LDP") else estimates
            variations.append(total_variation(guess, truth))
            seconds.append(answer["seconds"])
            megabytes.append(answer["megabytes"])
        return Score(
            *mean_and_error(errors),
            declared=math.nan,
            variation=mean_and_error(variations)[0],
            seconds=float(np.median(seconds)),
            megabytes=max(megabytes),
        )
