"""Time of one `Encoder.encode`, and rate of the population simulation.

python benchmarks/encode.py          (or: make bench-encode)
"""

from __future__ import annotations

import platform
import statistics
import time
import timeit

import numpy as np

from hubbub import Encoder, Metric, Params, Secret
from hubbub_decoder.data.populations import distribution_shares
from hubbub_decoder.simulation import simulate_reports

ROUNDS, REPEATS = 5_000, 7
CASES = [(k, pqf) for k in (8, 32, 128, 1024) for pqf in ((0.25, 0.75, 0.5), (0.39, 0.61, 0.45))]


def microseconds(num_bits: int, pqf: tuple[float, float, float]) -> float:
    """Mean time of one `encode` in microseconds, median over the repeats."""
    p, q, f = pqf
    params = Params(num_bits=num_bits, num_hashes=2, num_cohorts=64, prob_p=p, prob_q=q, prob_f=f)
    encoder = Encoder(Metric.string("homepage", params), Secret.generate())
    seconds = timeit.repeat(lambda: encoder.encode("https://example.org/"), number=ROUNDS, repeat=REPEATS)
    return statistics.median(seconds) / ROUNDS * 1e6


def million_reports_per_second(num_bits: int) -> float:
    """Rate of `simulate_reports` in million reports per second, median over the repeats: 2 million reports, 100 values."""
    params = Params(num_bits=num_bits, num_hashes=2, num_cohorts=64, prob_p=0.25, prob_q=0.75, prob_f=0.5)
    metric, num_reports = Metric.string("homepage", params), 2_000_000
    population = {value: int(share * num_reports) for value, share in distribution_shares("zipf1", 100).items()}
    rates = []
    for _ in range(REPEATS):
        started = time.process_time()
        drawn = sum(len(cohorts) for cohorts, _ in simulate_reports(metric, population, np.random.default_rng()))
        rates.append(drawn / (time.process_time() - started) / 1e6)
    return statistics.median(rates)


def main() -> None:
    print(f"Python {platform.python_version()}, {platform.machine()}; median of {REPEATS} x {ROUNDS}\n")
    print("| k | p, q, f | us per report |")
    print("|---|---|---|")
    for num_bits, pqf in CASES:
        print(f"| {num_bits} | {', '.join(map(str, pqf))} | {microseconds(num_bits, pqf):.1f} |")
    print("\n| k | simulated, million reports per second on one core |")
    print("|---|---|")
    for num_bits in (8, 32, 128):
        print(f"| {num_bits} | {million_reports_per_second(num_bits):.1f} |")


if __name__ == "__main__":
    main()
