"""Squared error of the posterior means over that of an oracle with the true distribution of shares.

    python -m benchmarks.studies.posterior_mean [--runs 40]

Estimates are normal with the standard error s; the listed total errs by 3 s. The oracle's prior is the distribution of the shares, each
spread by a tenth of itself; it has no total to keep. Its error, and those of the other columns:

    adds up     the oracle's means, moved to the listed total
    values      estimates of the present candidates, the absent ones known: the least that can be reached without knowledge of the values
    ours        `posterior_means` of `posterior_shares`
    unmoved     the same before they are moved to the listed total
"""

from __future__ import annotations

import numpy as np

from benchmarks.runner import Benchmark, generator
from hubbub_decoder.array_types import Floats
from hubbub_decoder.inference.prior import Prior, fit_prior
from hubbub_decoder.inference.shrinkage import posterior_shares, project_to_total

SIZES = ((10, 5), (10, 10), (50, 5), (50, 50), (300, 100), (2_000, 200))
ERRORS = (0.001, 0.004, 0.016)
LISTED, TOTAL_ERROR = 0.9, 3.0
SHAPES = ("zipf1", "exponential", "halving")


def true_shares(shape: str, candidates: int, present: int) -> Floats:
    """Shares (candidates,) of the named shape, sum .9."""
    i = np.arange(1, present + 1, dtype=float)
    weights = {"zipf1": 1 / i, "exponential": np.exp(-5 * i / present), "halving": 0.5**i}[shape]
    return np.append(LISTED * weights / weights.sum(), np.zeros(candidates - present))


def relative_errors(shares: Floats, error: float, runs: int, rng: np.random.Generator) -> tuple[float, ...]:
    """Oracle's squared error in s**2, then that of each column over it."""
    values, counts = np.unique(shares, return_counts=True)
    prior, variances = Prior(values, values / 10, counts / counts.sum()), np.full(len(shares), error**2)
    squares = np.zeros(5)
    for _ in range(runs):
        x = rng.normal(shares, error)
        total = min(max(LISTED + TOTAL_ERROR * error * rng.normal(), 0), 1)
        oracle = prior.posterior(x, variances)[0]
        guesses = (
            oracle,
            project_to_total(oracle, total),
            np.where(shares > 0, x, 0),
            posterior_shares(x, np.sqrt(variances), total=total).means,
            fit_prior(x, variances).posterior(x, variances)[0],
        )
        squares += [np.sum((guess - shares) ** 2) for guess in guesses]
    return float(squares[0] / runs / error**2), *(squares[1:] / squares[0]).tolist()


def main() -> None:
    """Print a row for each number of candidates, shape and standard error."""
    benchmark = Benchmark(__doc__, runs=40)
    runs = benchmark.start().runs
    table, rng = benchmark.table(), generator()
    for candidates, present in SIZES:
        for shape in SHAPES:
            for error in ERRORS:
                oracle, *ratios = relative_errors(true_shares(shape, candidates, present), error, runs, rng)
                row = {"candidates, of them present": f"{candidates:,}, {present}", "shape": shape, "s": f"{error}"}
                figures = zip(
                    ("adds up", "values", "ours", "unmoved"), (f"{ratio:.2f}" for ratio in ratios), strict=True
                )
                table.add({**row, "oracle, s**2": f"{oracle:.1f}", **dict(figures)})


if __name__ == "__main__":
    main()
