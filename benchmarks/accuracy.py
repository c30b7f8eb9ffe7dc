"""Accuracy on google/rappor's regression grid, compared with its R decoder: errors, coverage, detections, time.

    python -m benchmarks.accuracy [--regtest DIR] [--runs 3] [--out docs/explanation/data]

Decodes the grid of tests/regtest_spec.py in google/rappor: 5 distributions x 3 sizes x 5 configurations x seeds. The figures of the R
decoder are in benchmarks/data; they come from the reports in DIR, which are decoded first. Then reports are simulated, and R's figures are
those of other reports of the same populations.
"""

from __future__ import annotations

import csv
import gzip
import math
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.runner import Benchmark, generator
from benchmarks.tables import Row
from hubbub import Metric, Params
from hubbub.summary import PatternCounts
from hubbub_decoder import Decoding, decode
from hubbub_decoder.data.populations import distribution_shares, draw_population
from hubbub_decoder.simulation import simulate

HERE = Path(__file__).parent
DISTRIBUTIONS = ("unif", "exp", "gauss", "zipf1", "zipf1.5")
SIZES = {"tiny": (100, 1_000), "small": (100, 1_000_000), "medium": (1000, 10_000_000)}
PRIVACY = {"eps_1_1": (0.39, 0.61, 0.45), "eps_1_5": (0.225, 0.775, 0.0)}
CONFIGS = {"typical": 0.2, "sharp": 0.0, "loose": 0.2, "over_x2": 2.0, "over_x10": 10.0}
"""Absent candidates for each value."""
_SCORES = ("score_r", "score", "score_clipped", "score_credible")
Floats = NDArray[np.float64]


class Case(NamedTuple):
    """One decode of the grid."""

    size: str
    distribution: str
    config: str
    seed: int

    @property
    def name(self) -> str:
        """Name of the reports in the grid."""
        return f"{self.size}-{self.distribution}-{'eps_1_5' if self.config == 'loose' else 'eps_1_1'}-{self.seed}"

    @property
    def candidates(self) -> list[int]:
        """Numbers of the candidates: except in `sharp`, without values that end in 9, and with absent candidates."""
        values = SIZES[self.size][0]
        if self.config == "sharp":
            return list(range(1, values + 1))
        more = round(CONFIGS[self.config] * values)
        return [v for v in range(1, values + 1) if v % 10 != 9] + list(range(values + 1, values + more + 1))


@dataclass(frozen=True)
class Result:
    """Decoding of one case with the true shares and R's estimates; arrays are over the candidates."""

    case: Case
    truth: Floats
    missing: float
    decoding: dict[str, Floats]
    r_estimate: Floats
    r_error: Floats
    r_total_variation: float
    seconds: float

    @property
    def total_variation(self) -> float:
        """Half of the L1 distance over all strings; strings without a candidate have estimate 0."""
        return float(np.abs(np.nan_to_num(self.decoding["posterior_median"]) - self.truth).sum() + self.missing) / 2

    def interval_scores(self) -> tuple[float, float, float, float]:
        """Mean of width + 40 x distance missed: R's ([0, 0] if undetected), ours unclipped, ours clipped at 0, credible intervals."""
        reach = 1.959964 * self.r_error
        low, high = self.decoding["low"], self.decoding["high"]
        return (
            interval_score(self.r_estimate - reach, self.r_estimate + reach, self.truth),
            interval_score(low, high, self.truth),
            interval_score(np.maximum(low, 0), np.maximum(high, 0), self.truth),
            interval_score(self.decoding["credible_low"], self.decoding["credible_high"], self.truth),
        )

    def true_detections_at_the_false_ones_of_r(self) -> int:
        """Number of true detections of ours at as many false detections as R has."""
        present = self.truth[np.argsort(self.decoding["p_value"], kind="stable")] > 0
        allowed = int(((self.r_estimate > 0) & (self.truth == 0)).sum())
        return int(present[np.cumsum(~present) <= allowed].sum())


def interval_score(low: Floats, high: Floats, truth: Floats) -> float:
    """Interval score of 95 % intervals (Gneiting and Raftery 2007): mean of width + 40 x distance to the missed share."""
    missed = np.maximum(low - truth, 0) + np.maximum(truth - high, 0)
    return float(np.mean(high - low + 40 * missed))


def grid(runs: int) -> Iterator[Case]:
    """Yield the cases in the order of the grid."""
    for size in SIZES:
        for distribution in DISTRIBUTIONS:
            for config in CONFIGS:
                for seed in range(runs):
                    yield Case(size, distribution, config, seed)


def reports_of(case: Case, regtest: Path | None) -> tuple[PatternCounts, Floats]:
    """Reports of a case, and the true number of reports of each value."""
    p, q, f = PRIVACY["eps_1_5" if case.config == "loose" else "eps_1_1"]
    params = Params(num_bits=8, num_hashes=2, num_cohorts=128, prob_p=p, prob_q=q, prob_f=f, hash_scheme="google-md5")
    if regtest is not None:
        with np.load(regtest / f"{case.name}.npz") as file:
            return PatternCounts(params, file["pattern_counts"]), file["true_counts"].astype(float)
    rng = generator(case.name)
    values, clients = SIZES[case.size]
    name = "uniform" if case.distribution == "unif" else case.distribution
    population = draw_population(distribution_shares(name, values), clients, rng)
    counts = simulate(Metric.string("grid", params), population, rng, form=PatternCounts)
    return counts, np.array([population.get(f"v{v}", 0) for v in range(1, values + 1)], float)


def run(
    case: Case,
    regtest: Path | None,
    r_rows: dict[str, dict[str, str]],
    r_found: dict[str, dict[str, tuple[float, float]]],
) -> Result:
    """Decode one case."""
    summary, true_counts = reports_of(case, regtest)
    names = [f"v{v}" for v in case.candidates]
    with threadpool_limits(1):
        started = time.process_time()
        decoding = decode(summary, names)
        seconds = time.process_time() - started
    shares = true_counts / true_counts.sum()
    truth = np.array([shares[v - 1] if v <= len(shares) else 0.0 for v in case.candidates])
    key = f"{case.name} {case.config}"
    found = r_found.get(key, {})
    return Result(
        case=case,
        truth=truth,
        missing=1 - float(truth.sum()),
        decoding=_columns(decoding, names),
        r_estimate=np.array([found.get(name, (0.0, 0.0))[0] for name in names]),
        r_error=np.array([found.get(name, (0.0, 0.0))[1] for name in names]),
        r_total_variation=float(r_rows[key]["total_variation"]),
        seconds=seconds,
    )


def _columns(decoding: Decoding, names: list[str]) -> dict[str, Floats]:
    row_of = {name: row for row, name in enumerate(names)}
    fields = (
        "share",
        "std_error",
        "low",
        "high",
        "selection_adjusted_low",
        "selection_adjusted_high",
        "q_value",
        "detected",
        "posterior_median",
        "credible_low",
        "credible_high",
        "p_value",
    )
    columns = {field: np.full(len(names), np.nan) for field in fields}
    for estimate in decoding.estimates:
        for field in fields:
            columns[field][row_of[estimate.candidate]] = getattr(estimate, field)
    return columns


def rows_of(results: list[Result]) -> list[Row]:
    """Rows of the table: means over all distributions and seeds of a size and configuration."""
    return [{"size": size, "config": config, **_figures(group)} for (size, config), group in _cells(results).items()]


def _cells(results: list[Result]) -> dict[tuple[str, str], list[Result]]:
    cells: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for result in results:
        cells[result.case.size, result.case.config].append(result)
    return cells


def totals(results: list[Result]) -> list[str]:
    """Sentences on all cases together."""
    cells = _cells(results)
    ours, theirs = (np.mean([getattr(r, name) for r in results]) for name in ("total_variation", "r_total_variation"))
    worse = [
        f"{size} {config}"
        for (size, config), group in cells.items()
        if np.mean([r.total_variation for r in group]) > np.mean([r.r_total_variation for r in group])
    ]
    large = [r for r in results if r.case.size != "tiny"]
    pooled = [
        np.concatenate([_covered(r)[(r.truth > 0) == present] for r in large]).mean() for present in (True, False)
    ]
    above = f"{len(worse)} of {len(cells)}{' (' + ', '.join(worse) + ')' if worse else ''}"
    return [
        f"Mean total variation over {len(results)} cases: ours {ours:.4f}, R {theirs:.4f}.",
        f"Cells in which ours is above R's: {above}.",
        f"Coverage of 95 % intervals over small and medium: {pooled[0]:.4f} where truth > 0, {pooled[1]:.4f} where it is 0.",
        f"Processor time: {sum(r.seconds for r in results):.0f} s for the whole grid.",
    ]


def _covered(result: Result) -> NDArray[np.bool_]:
    return (result.decoding["low"] <= result.truth) & (result.truth <= result.decoding["high"])


def _figures(group: list[Result]) -> Row:
    def pooled(values: list[NDArray[np.bool_]]) -> str:
        joined = np.concatenate(values)
        return f"{joined.mean():.3f}" if joined.size else ""

    detected = [r.decoding["detected"] == 1 for r in group]
    r_detected = [r.r_estimate > 0 for r in group]
    present = [r.truth > 0 for r in group]
    clipped = [np.maximum(r.decoding["high"], 0) >= 0 for r in group]
    at_zero = [
        (np.maximum(r.decoding["low"], 0) <= 0)[~t] & c[~t] for r, t, c in zip(group, present, clipped, strict=True)
    ]
    selected = [
        ((r.decoding["selection_adjusted_low"] <= r.truth) & (r.truth <= r.decoding["selection_adjusted_high"]))[d]
        for r, d in zip(group, detected, strict=True)
    ]
    scores = 1000 * np.mean([r.interval_scores() for r in group], axis=0)
    guessed = [(r.decoding["credible_low"] <= r.truth) & (r.truth <= r.decoding["credible_high"]) for r in group]
    false = np.array([(d & ~t).sum() / max(1, d.sum()) for d, t in zip(detected, present, strict=True)])
    r_false = [(d & ~t).sum() / max(1, d.sum()) for d, t in zip(r_detected, present, strict=True)]
    z2 = [((r.decoding["p_value"] < 0.02275) & t).sum() for r, t in zip(group, present, strict=True)]
    return {
        "tv_r": f"{np.mean([r.r_total_variation for r in group]):.3f}",
        "tv": f"{np.mean([r.total_variation for r in group]):.3f}",
        "covers_present": pooled([_covered(r)[t] for r, t in zip(group, present, strict=True)]),
        "covers_absent": pooled([_covered(r)[~t] for r, t in zip(group, present, strict=True)]),
        "covers_absent_clipped": pooled(at_zero),
        "covers_selected": pooled(selected),
        "covers_credible": pooled(guessed),
        **{name: f"{score:.2f}" for name, score in zip(_SCORES, scores, strict=True)},
        "found_r": f"{np.mean([(d & t).sum() for d, t in zip(r_detected, present, strict=True)]):.1f}",
        "found": f"{np.mean([(d & t).sum() for d, t in zip(detected, present, strict=True)]):.1f}",
        "found_at_z2": f"{np.mean(z2):.1f}",
        "found_at_false_of_r": f"{np.mean([r.true_detections_at_the_false_ones_of_r() for r in group]):.1f}",
        "false_percent_r": f"{100 * np.mean(r_false):.1f}",
        "false_percent": f"{100 * false.mean():.1f}",
        "false_percent_se": f"{100 * false.std(ddof=1) / math.sqrt(len(false)) if len(false) > 1 else 0:.1f}",
        "seconds": f"{sum(r.seconds for r in group):.1f}",
    }


def r_decoder() -> tuple[dict[str, dict[str, str]], dict[str, dict[str, tuple[float, float]]]]:
    """Results of google/rappor's decoder on the grid: figures of each case, and estimates."""
    with (HERE / "data" / "google_rappor_results.csv").open() as file:
        rows = {f"{row['case']} {row['config']}": row for row in csv.DictReader(file)}
    found: dict[str, dict[str, tuple[float, float]]] = defaultdict(dict)
    with gzip.open(HERE / "data" / "google_rappor_estimates.csv.gz", "rt") as text:
        for row in csv.DictReader(text):
            key = f"{row['case']} {row['config']}"
            found[key][row["value"]] = (float(row["proportion"]), float(row["std_error"]))
    return rows, found


def add_regtest(benchmark: Benchmark) -> None:
    """Add the option that names the reports of google/rappor's grid."""
    benchmark.add(
        "--regtest",
        type=Path,
        metavar="DIR",
        default=os.environ.get("HUBBUB_REGTEST"),
        help="google/rappor's regression reports (default: $HUBBUB_REGTEST; without it, reports are simulated)",
    )


def main() -> None:
    benchmark = Benchmark(__doc__, runs=3)
    add_regtest(benchmark)
    options = benchmark.start()
    rows, found = r_decoder()
    given = {"google-rappor-grid": options.regtest} if options.regtest else {}
    for name, regtest in {**given, "google-rappor-grid-new-reports": None}.items():
        results = []
        for case in grid(options.runs):
            results.append(result := run(case, regtest, rows, found))
            print(f"{case.name} {case.config}: TV {result.total_variation:.3f}, {result.seconds:.2f} s", flush=True)
        benchmark.table(name).add_all(rows_of(results))
        print(*totals(results), sep="\n")


if __name__ == "__main__":
    main()
