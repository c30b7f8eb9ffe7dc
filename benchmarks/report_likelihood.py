"""How long does the full likelihood of a million retained reports take, and what does it win over bit counts?

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
from hubbub.summary import BitCounts
from hubbub.summary.kernel import count_bits
from hubbub_decoder.decoder import decode
from hubbub_decoder.design_matrix import design_matrix
from hubbub_decoder.populations import draw_population, named_shares
from hubbub_decoder.report_likelihood import fit_reports
from hubbub_decoder.simulate import simulate_reports

CASES = [
    (128, 2, 64, 200, (0.25, 0.75, 0.5)),
    (128, 1, 64, 200, (0.25, 0.75, 0.25)),
]


def row(case: tuple[int, int, int, int, tuple[float, float, float]], num_reports: int, seed: int) -> str:
    """Simulate 100 exponential strings of which 10 are unlisted, fit, and say how it went."""
    k, h, m, num_candidates, (p, q, f) = case
    params = Params(num_bits=k, num_hashes=h, num_cohorts=m, prob_p=p, prob_q=q, prob_f=f)
    rng = np.random.default_rng(seed)
    people = draw_population(named_shares("exp", 100), num_reports, rng)
    chunks = list(simulate_reports(Metric.string("x", params), people, rng))
    cohorts, rows = np.concatenate([c for c, _ in chunks]), np.concatenate([r for _, r in chunks])
    del chunks
    listed = [name for name in people if not name.endswith("9")]
    names = listed + [f"nobody{i}" for i in range(num_candidates - len(listed))]
    design = design_matrix(names, params)
    started, busy = time.perf_counter(), time.process_time()
    fitted = fit_reports(cohorts, rows, params, design)
    seconds, busy = time.perf_counter() - started, time.process_time() - busy
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform == "linux" else 1 << 30)
    truth = np.array([people.get(name, 0) for name in names]) / num_reports
    covered = np.mean(np.abs(fitted.shares - truth) < 1.96 * fitted.std_errors[:-2])
    bits = decode(BitCounts(params, *count_bits(cohorts, rows, m, k)), names)
    ratio = np.median([bits[name].std_error for name in names] / fitted.std_errors[:-2])
    return (
        f"| {k} | {h} | {m} | {num_candidates} | {p}, {q}, {f} | {seconds:.1f} | {busy:.1f} | {peak:.2f} | {covered:.3f} | "
        f"{ratio:.2f} | {fitted.distance:.0e} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--reports", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    asked = parser.parse_args()
    print(f"Python {platform.python_version()}, {platform.machine()}; {asked.reports:,} reports, seed {asked.seed}\n")
    print(
        "| k | h | m | candidates | p, q, f | s | CPU s | peak GiB | covered by 95 % intervals | s.e. of bit counts / of reports | distance |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for case in CASES:
        print(row(case, asked.reports, asked.seed), flush=True)


if __name__ == "__main__":
    main()
