"""How long does the client take to encode one value?

python benchmarks/encode.py          (or: make bench-encode)
"""

from __future__ import annotations

import platform
import statistics
import timeit

from hubbub import Encoder, Metric, Params, Secret

ROUNDS, REPEATS = 5_000, 7
CASES = [(k, pqf) for k in (8, 32, 128, 1024) for pqf in ((0.25, 0.75, 0.5), (0.39, 0.61, 0.45))]


def microseconds(num_bits: int, pqf: tuple[float, float, float]) -> float:
    """Return the median over repeats of the mean time of one `encode`."""
    p, q, f = pqf
    params = Params(num_bits=num_bits, num_hashes=2, num_cohorts=64, prob_p=p, prob_q=q, prob_f=f)
    encoder = Encoder(Metric.string("homepage", params), Secret.generate())
    taken = timeit.repeat(lambda: encoder.encode("https://example.org/"), number=ROUNDS, repeat=REPEATS)
    return statistics.median(taken) / ROUNDS * 1e6


def main() -> None:
    print(f"Python {platform.python_version()}, {platform.machine()}; median of {REPEATS} x {ROUNDS}\n")
    print("| k | p, q, f | us a report |")
    print("|---|---|---|")
    for num_bits, pqf in CASES:
        print(f"| {num_bits} | {', '.join(map(str, pqf))} | {microseconds(num_bits, pqf):.1f} |")


if __name__ == "__main__":
    main()
