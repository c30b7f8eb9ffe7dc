"""Time of the full likelihood of a million retained reports, and its standard errors relative to those of bit counts.

python -m benchmarks.studies.retained_reports [--reports 1000000]
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.runner import Benchmark, generator, peak_megabytes
from benchmarks.tables import Row
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


def row(case: tuple[int, int, int, int, tuple[float, float, float]], num_reports: int) -> Row:
    """Simulate 100 exponential strings of which 10 are unlisted, fit, and return a row of the table."""
    k, h, m, num_candidates, (p, q, f) = case
    params = Params(num_bits=k, num_hashes=h, num_cohorts=m, prob_p=p, prob_q=q, prob_f=f)
    rng = generator(case)
    people = draw_population(distribution_shares("exp", 100), num_reports, rng)
    chunks = list(simulate_reports(Metric.string("x", params), people, rng))
    reports = Reports(params, *(np.concatenate(parts) for parts in zip(*chunks, strict=True)))
    del chunks
    listed = [name for name in people if not name.endswith("9")]
    names = listed + [f"absent{i}" for i in range(num_candidates - len(listed))]
    started, busy = time.perf_counter(), time.process_time()
    decoding = decode(reports, names)
    seconds, busy = time.perf_counter() - started, time.process_time() - busy
    peak = peak_megabytes() / 1024
    truth = {name: people.get(name, 0) / num_reports for name in names}
    covered = np.mean([decoding[name].low <= truth[name] <= decoding[name].high for name in names])
    bits = decode(reports.bit_counts(), names)
    ratio = np.median([bits[name].std_error / decoding[name].std_error for name in names])
    return {
        "k": f"{k}",
        "h": f"{h}",
        "m": f"{m}",
        "candidates": f"{num_candidates}",
        "p, q, f": f"{p}, {q}, {f}",
        "s": f"{seconds:.1f}",
        "CPU s": f"{busy:.1f}",
        "peak GiB": f"{peak:.2f}",
        "covered by 95 % intervals": f"{covered:.3f}",
        "s.e. of bit counts / of reports": f"{ratio:.2f}",
    }


def main() -> None:
    benchmark = Benchmark(__doc__)
    benchmark.add("--reports", type=int, default=1_000_000)
    options = benchmark.start()
    benchmark.table().add_all(row(case, options.reports) for case in CASES)


if __name__ == "__main__":
    main()
