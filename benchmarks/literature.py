"""Accuracy in eleven configurations from the literature, compared with google/rappor's decoder: a million reports, five runs.

    python -m benchmarks.literature [--runs 5] [--out docs/explanation/data]          (or: make bench-accuracy)
    python -m benchmarks.literature lasso 0 40          (few candidates: posterior medians and a lasso, populations 0 to 39)

R's figures are means of 5 runs of its `Decode()` on reports of the same populations with random maps. Ours are decoded from pattern
counts for k = 8, and from individual reports for k = 32 and 128.
"""

from __future__ import annotations

import math
import sys
import time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from sklearn.linear_model import LassoCV

from benchmarks.runs import REPORTS, Run, compare, put_table
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


def run(case: Case, seed: int) -> Run:
    """Simulate and decode a million reports of 100 values; except in `paper`, every tenth value is not a candidate."""
    rng = np.random.default_rng(seed)
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
    variation = [each.total_variation for each in runs]
    false = [each.false / max(1, each.false + each.found) for each in runs]
    selected = [inside for each in runs for inside in each.selected]
    return {
        "config": case.config,
        **{name: f"{getattr(params, name)}" for name in ("num_bits", "num_hashes", "num_cohorts")},
        **{name: f"{getattr(params.mechanism, name):g}" for name in ("prob_p", "prob_q", "prob_f")},
        "absent": f"{ABSENT[case.config]}",
        "distribution": case.distribution,
        "tv_r": f"{case.total_variation:.3f}",
        "tv": f"{np.mean(variation):.3f}",
        "tv_se": f"{_error(variation):.3f}",
        "found_r": f"{case.found:.1f}",
        "found": f"{np.mean([each.found for each in runs]):.1f}",
        "false_percent_r": f"{100 * case.false / (case.found + case.false):.1f}",
        "false_percent": f"{100 * np.mean(false):.1f}",
        "false_percent_se": f"{100 * _error(false):.1f}",
        "covers_present": f"{np.mean([each.covered_present for each in runs]):.3f}",
        "covers_absent": f"{np.mean([each.covered_null for each in runs]):.3f}",
        "covers_selected": f"{np.mean(selected):.3f}",
        "seconds": f"{np.mean([each.seconds for each in runs]):.1f}",
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


def variations_of_few(case: FewCandidates, seed: int) -> tuple[float, float]:
    """Total variation of the posterior medians and of `lasso_shares`, for bit counts with k = 16, h = 2, m = 32."""
    rng = np.random.default_rng(seed)
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
        float(np.abs(each - truth).sum() + missing) / 2 for each in (ours, lasso_shares(counts, names))
    )
    return ours_off, lasso_off


def compare_with_lasso(seeds: range) -> None:
    """Print the mean total variations in each case, and the paired difference with its standard error."""
    print("| candidates | shares | unlisted | reports | hubbub | lasso | hubbub - lasso |")
    print("|---|---|---|---|---|---|---|")
    for case in FEW:
        variations = np.array([variations_of_few(case, seed) for seed in seeds])
        (ours, lasso), more = variations.mean(axis=0), variations[:, 0] - variations[:, 1]
        print(
            f"| {case.candidates} | {case.ratio}^i | {case.unlisted} | {case.reports:,} | {ours:.3f} | {lasso:.3f} "
            f"| {more.mean():+.4f} ({_error(more.tolist()):.4f}) |",
            flush=True,
        )


def _error(values: list[float]) -> float:
    return float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan


if __name__ == "__main__":
    if sys.argv[1:2] == ["lasso"]:
        compare_with_lasso(range(*map(int, sys.argv[2:4])))
    else:
        put_table("literature", __doc__, CASES, run, row, runs=5)
