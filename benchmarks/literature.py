"""Accuracy in eleven configurations from the literature, compared with google/rappor's decoder: a million reports, five runs.

    python -m benchmarks.literature [--runs 5] [--out docs/explanation/data]
    python -m benchmarks.literature --lasso --runs 40          (few candidates: posterior medians and a lasso)

R's figures are means of 5 runs of its `Decode()` on reports of the same populations with random maps. Ours are decoded from pattern
counts for k = 8, and from individual reports for k = 32 and 128.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from sklearn.linear_model import LassoCV

from benchmarks.runner import Benchmark
from benchmarks.runs import REPORTS, Run, compare, mean_figures, standard_error
from benchmarks.tables import Row
from hubbub import Metric, Params
from hubbub.summary import BitCounts, PatternCounts, Reports
from hubbub_decoder import decode
from hubbub_decoder.data.populations import distribution_shares, draw_population
from hubbub_decoder.model.design_matrix import design_matrix
from hubbub_decoder.simulation import simulate, simulate_reports

Floats = NDArray[np.float64]


class Case(NamedTuple):
    """A population with R's results: true detections, false detections, total variation."""

    config: str
    distribution: str
    found: float
    false: float
    total_variation: float


PARAMS = {
    "paper": Params(num_bits=128, num_hashes=2, num_cohorts=16, prob_p=0.5, prob_q=0.75, prob_f=0.5),
    "typical": Params(num_bits=8, num_hashes=2, num_cohorts=128, prob_p=0.39, prob_q=0.61, prob_f=0.45),
    "demo": Params(num_bits=32, num_hashes=1, num_cohorts=64, prob_p=0.25, prob_q=0.75, prob_f=0.5),
}
ABSENT = {"paper": 100, "typical": 20, "demo": 100}
CASES = [
    Case("paper", "exp", 46.6, 3.6, 0.130),
    Case("typical", "uniform", 74.0, 3.0, 0.251),
    Case("typical", "exp", 42.4, 1.0, 0.178),
    Case("typical", "gauss", 54.4, 2.0, 0.202),
    Case("typical", "zipf1", 38.4, 1.0, 0.194),
    Case("typical", "zipf1.5", 18.6, 0.4, 0.110),
    Case("demo", "uniform", 88.8, 9.4, 0.154),
    Case("demo", "exp", 53.0, 7.0, 0.139),
    Case("demo", "gauss", 59.6, 10.6, 0.155),
    Case("demo", "zipf1", 53.0, 7.6, 0.148),
    Case("demo", "zipf1.5", 23.4, 4.2, 0.090),
]


def run(case: Case, rng: np.random.Generator) -> Run:
    """Simulate and decode a million reports of 100 values; except in `paper`, every tenth value is not a candidate."""
    metric = Metric.string("literature", PARAMS[case.config])
    population = draw_population(distribution_shares(case.distribution, 100), REPORTS, rng)
    listed = [name for name in population if case.config == "paper" or not name.endswith("9")]
    names = [*listed, *(f"absent{i}" for i in range(ABSENT[case.config]))]
    collected: PatternCounts | Reports
    if metric.num_bits <= 16:
        collected = simulate(metric, population, rng, form=PatternCounts)
    else:
        chunks = list(simulate_reports(metric, population, rng))
        collected = Reports(metric, *(np.concatenate(parts) for parts in zip(*chunks, strict=True)))
        del chunks
    started = time.perf_counter()
    decoding = decode(collected, names)
    seconds = time.perf_counter() - started
    return compare(decoding, {name: population.get(name, 0) / REPORTS for name in names}, seconds)


def row(case: Case, runs: list[Run]) -> Row:
    """Row of the table: means over the runs, and R's figures."""
    params = PARAMS[case.config]
    return {
        "config": case.config,
        **{name: f"{getattr(params, name)}" for name in ("num_bits", "num_hashes", "num_cohorts")},
        **{name: f"{getattr(params.mechanism, name):g}" for name in ("prob_p", "prob_q", "prob_f")},
        "absent": f"{ABSENT[case.config]}",
        "distribution": case.distribution,
        "tv_r": f"{case.total_variation:.3f}",
        "found_r": f"{case.found:.1f}",
        "false_percent_r": f"{100 * case.false / (case.found + case.false):.1f}",
        **mean_figures(runs),
    }


class FewCandidates(NamedTuple):
    """Candidates of which ten are present with shares in proportion to ratio**i, the share of unlisted strings, and the number of reports."""

    candidates: int
    ratio: float
    unlisted: float
    reports: int


FEW = [
    FewCandidates(candidates, ratio, unlisted, reports)
    for candidates, ratio in ((20, 0.7), (20, 0.9), (100, 0.7))
    for unlisted in (0.0, 0.2)
    for reports in (5_000, 50_000)
]


def lasso_shares(counts: BitCounts, names: list[str]) -> Floats:
    """Shares (M,) by nonnegative least squares on the columns that a lasso keeps, with random strings, divided by their sum if above 1.

    The penalty is chosen by five-fold cross-validation, and both steps weight bits by the reports of their cohort.
    """
    params = counts.metric.params
    p, q = params.mechanism.p_star, params.mechanism.q_star
    weights = np.repeat(np.sqrt(counts.reports), params.num_bits)
    response = ((counts.ones / counts.reports[:, None] - p) / (q - p)).ravel() * weights
    columns = design_matrix(names, params).matrix.toarray() * weights[:, None]
    lasso = LassoCV(positive=True, fit_intercept=False, cv=5, max_iter=5000).fit(columns, response)
    kept = np.flatnonzero(lasso.coef_)
    shares: Floats = np.zeros(len(names))
    unlisted = weights * params.num_hashes / params.num_bits
    shares[kept] = nnls(np.column_stack([columns[:, kept], unlisted]), response)[0][:-1]
    return shares / max(1.0, float(shares.sum()))


def variations_of_few(case: FewCandidates, rng: np.random.Generator) -> tuple[float, float]:
    """Total variation of the posterior medians and of `lasso_shares`, for bit counts with k = 16, h = 2, m = 32."""
    params = Params(num_bits=16, num_hashes=2, num_cohorts=32, prob_p=0.25, prob_q=0.75, prob_f=0.25)
    weights = case.ratio ** np.arange(10)
    expected = dict(zip((f"v{i}" for i in range(10)), (1 - case.unlisted) * weights / weights.sum(), strict=True))
    unlisted = {f"unlisted{i}": case.unlisted / 20 for i in range(20)}
    population = draw_population(expected | unlisted, case.reports, rng)
    counts = simulate(Metric.string("few", params), population, rng)
    names = [*expected, *(f"absent{i}" for i in range(case.candidates - 10))]
    truth = np.array([population.get(name, 0) / case.reports for name in names])
    medians = {e.candidate: e.posterior_median for e in decode(counts, names)}
    ours = np.nan_to_num([medians[name] for name in names])
    missing = 1 - truth.sum()
    ours_off, lasso_off = (
        float(np.abs(estimated - truth).sum() + missing) / 2 for estimated in (ours, lasso_shares(counts, names))
    )
    return ours_off, lasso_off


def row_of_few(case: FewCandidates, runs: list[tuple[float, float]]) -> Row:
    """Row of the table: mean total variations, and the paired difference with its standard error."""
    (ours, lasso), more = np.mean(runs, axis=0), [first - second for first, second in runs]
    return {
        "candidates": f"{case.candidates}",
        "shares": f"{case.ratio}^i",
        "unlisted": f"{case.unlisted}",
        "reports": f"{case.reports:,}",
        "hubbub": f"{ours:.3f}",
        "lasso": f"{lasso:.3f}",
        "hubbub - lasso": f"{np.mean(more):+.4f} ({standard_error(more):.4f})",
    }


def main() -> None:
    benchmark = Benchmark(__doc__, runs=5)
    benchmark.add("--lasso", action="store_true", help="compare with a lasso in cases of few candidates")
    if benchmark.start().lasso:
        benchmark.means("", FEW, variations_of_few, row_of_few)
    else:
        benchmark.means("literature", CASES, run, row)


if __name__ == "__main__":
    main()
