"""Time of the full likelihood of a million retained reports, and its standard errors relative to those of bit counts.

python benchmarks/report_likelihood.py [--reports N]          (or: make bench-report-likelihood)
"""

from __future__ import annotations

import argparse
import platform
import resource
import sys
import time

import numpy as np

from hubbub import Metric, Params
from hubbub.summary import Reports
from hubbub_decoder.data.populations import distribution_shares, draw_population
from hubbub_decoder.pipeline import decode
from hubbub_decoder.simulation import simulate_reports

CASES = [
    (128, 2, 64, 200, (0.25, 0.75, 0.5)),
    (128, 1, 64, 200, (0.25, 0.75, 0.25)),
    (128, 2, 64, 200, (0.25, 0.75, 0.0)),
    (128, 2, 64, 200, (0.1, 0.9, 0.0)),
]


def row(case: tuple[int, int, int, int, tuple[float, float, float]], num_reports: int, seed: int) -> str:
    """Simulate 100 exponential strings of which 10 are unlisted, fit, and return a row of the table."""
    k, h, m, num_candidates, (p, q, f) = case
    params = Params(num_bits=k, num_hashes=h, num_cohorts=m, prob_p=p, prob_q=q, prob_f=f)
    rng = np.random.default_rng(seed)
    people = draw_population(distribution_shares("exp", 100), num_reports, rng)
    chunks = list(simulate_reports(Metric.string("x", params), people, rng))
    reports = Reports(params, *(np.concatenate(parts) for parts in zip(*chunks, strict=True)))
    del chunks
    listed = [name for name in people if not name.endswith("9")]
    names = listed + [f"absent{i}" for i in range(num_candidates - len(listed))]
    started, busy = time.perf_counter(), time.process_time()
    decoding = decode(reports, names)
    seconds, busy = time.perf_counter() - started, time.process_time() - busy
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform == "linux" else 1 << 30)
    truth = {name: people.get(name, 0) / num_reports for name in names}
    covered = np.mean([decoding[name].low <= truth[name] <= decoding[name].high for name in names])
    bits = decode(reports.bit_counts(), names)
    ratio = np.median([bits[name].std_error / decoding[name].std_error for name in names])
    return f"| {k} | {h} | {m} | {num_candidates} | {p}, {q}, {f} | {seconds:.1f} | {busy:.1f} | {peak:.2f} | {covered:.3f} | {ratio:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--reports", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(
        f"Python {platform.python_version()}, {platform.machine()}; {options.reports:,} reports, seed {options.seed}\n"
    )
    print(
        "| k | h | m | candidates | p, q, f | s | CPU s | peak GiB | covered by 95 % intervals | s.e. of bit counts / of reports |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for case in CASES:
        print(row(case, options.reports, options.seed), flush=True)


if __name__ == "__main__":
    main()
