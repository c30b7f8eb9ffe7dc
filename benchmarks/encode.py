"""Time of one `Encoder.encode`, and rate of the population simulation.

python -m benchmarks.encode [--runs 7]
"""

from __future__ import annotations

import statistics
import time
import timeit

import numpy as np

from benchmarks.runner import Benchmark
from hubbub import Encoder, Metric, Params, Secret
from hubbub_decoder.data.populations import distribution_shares
from hubbub_decoder.simulation import simulate_reports

ROUNDS = 5_000
CASES = [(k, pqf) for k in (8, 32, 128, 1024) for pqf in ((0.25, 0.75, 0.5), (0.39, 0.61, 0.45))]


def microseconds(num_bits: int, pqf: tuple[float, float, float], runs: int) -> float:
    """Mean time of one `encode` in microseconds, median over the repeats."""
    p, q, f = pqf
    params = Params(num_bits=num_bits, num_hashes=2, num_cohorts=64, prob_p=p, prob_q=q, prob_f=f)
    encoder = Encoder(Metric.string("homepage", params), Secret.generate())
    seconds = timeit.repeat(lambda: encoder.encode("https://example.org/"), number=ROUNDS, repeat=runs)
    return statistics.median(seconds) / ROUNDS * 1e6


def million_reports_per_second(num_bits: int, runs: int) -> float:
    """Rate of `simulate_reports` in million reports per second, median over the repeats: 2 million reports, 100 values."""
    params = Params(num_bits=num_bits, num_hashes=2, num_cohorts=64, prob_p=0.25, prob_q=0.75, prob_f=0.5)
    metric, num_reports = Metric.string("homepage", params), 2_000_000
    population = {value: int(share * num_reports) for value, share in distribution_shares("zipf1", 100).items()}
    rates = []
    for _ in range(runs):
        started = time.process_time()
        drawn = sum(len(cohorts) for cohorts, _ in simulate_reports(metric, population, np.random.default_rng()))
        rates.append(drawn / (time.process_time() - started) / 1e6)
    return statistics.median(rates)


def main() -> None:
    benchmark = Benchmark(__doc__, runs=7)
    runs = benchmark.start().runs
    table = benchmark.table()
    for num_bits, pqf in CASES:
        row = {"k": f"{num_bits}", "p, q, f": ", ".join(map(str, pqf))}
        table.add({**row, "us per report": f"{microseconds(num_bits, pqf, runs):.1f}"})
    print()
    table = benchmark.table()
    for num_bits in (8, 32, 128):
        rate = million_reports_per_second(num_bits, runs)
        table.add({"k": f"{num_bits}", "simulated, million reports per second on one core": f"{rate:.1f}"})


if __name__ == "__main__":
    main()
