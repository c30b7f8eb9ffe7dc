"""Strings without a list: found and false strings, time and memory of `discover`, in simulated runs.

    python -m benchmarks.studies.discovery [--epsilon 8] [--reports 1000000] [--tasks 5] [--first 0]

1,000 domain-like strings of 5 to 24 characters, new in each task, with shares of Zipf's law (exponent 1). --uniform: strings without any
pattern. One report of each client, with one permanent response and no instantaneous noise: epsilon of a report and of a value are equal.

Reports are drawn by `simulate`, whose distribution is that of the client's encoder (tests/decoder/discovery).
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Literal

import numpy as np

from benchmarks.runner import Benchmark, generator, peak_megabytes
from hubbub import Metric, Params
from hubbub.metrics.discovery import Discovery
from hubbub_decoder import simulate
from hubbub_decoder.data.populations import distribution_shares
from hubbub_decoder.discovery.discover import DEFAULT_BEAM, MAX_CANDIDATES, discover, discovery_of

ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789-."
SUFFIXES = {".com": 0.5, ".org": 0.1, ".net": 0.1, ".de": 0.08, ".co.uk": 0.07, ".io": 0.05, ".ru": 0.05, ".info": 0.05}
LETTERS = (
    *(8.2, 1.5, 2.8, 4.3, 12.7, 2.2, 2.0, 6.1, 7.0, 0.15, 0.77, 4.0, 2.4),
    *(6.7, 7.5, 1.9, 0.1, 6.0, 6.3, 9.1, 2.8, 1.0, 2.4, 0.15, 2.0, 0.07),
)
LEVELS = (0.015, 0.01, 0.005, 0.002, 0.001)


def domains(number: int, rng: np.random.Generator) -> list[str]:
    """Distinct strings of 5 to 24 characters: letters by English frequency, some digits, and a suffix."""
    weights = np.array([*LETTERS, *[0.3] * 10])
    symbols = list(ALPHABET[:36])
    strings: dict[str, None] = {}
    while len(strings) < number:
        suffix = str(rng.choice(list(SUFFIXES), p=list(SUFFIXES.values())))
        size = int(rng.integers(max(5, len(suffix) + 1), 25)) - len(suffix)
        strings["".join(rng.choice(symbols, size, p=weights / weights.sum())) + suffix] = None
    return list(strings)


def uniform_strings(number: int, rng: np.random.Generator) -> list[str]:
    """Distinct strings of 5 to 24 characters, all of equal probability: nothing can be learned about their symbols."""
    return ["".join(rng.choice(list(ALPHABET), int(rng.integers(5, 25)))) for _ in range(number)]


def domain_metric(epsilon: float, method: Literal["prefixes", "ngrams"]) -> Metric:
    """Metric of which a report and a value cost at most epsilon, k = 1,024, h = 1."""
    a = 0.65 if epsilon > 6 else 0.5
    b = a / (a + (1 - a) * math.exp(epsilon))
    b = math.ceil(b * 2**24) / 2**24
    params = Params(num_bits=1024, num_hashes=1, num_cohorts=256, prob_p=0, prob_q=1, permanent_p=b, permanent_q=a)
    discover = Discovery(alphabet=ALPHABET, held_out=0.06, longest=24, step=2, first=3, method=method)
    return Metric.string("domain", params, discover=discover)


def zipf_population(strings: Sequence[str], reports: int, rng: np.random.Generator) -> dict[str, int]:
    shares = list(distribution_shares("zipf1", len(strings)).values())
    return dict(zip(strings, map(int, rng.multinomial(reports, shares)), strict=True))


def main() -> None:
    benchmark = Benchmark(__doc__, tasks=5)
    benchmark.add("--epsilon", type=float, default=8.0)
    benchmark.add("--reports", type=int, default=1_000_000)
    benchmark.add("--beam", type=int, default=DEFAULT_BEAM)
    benchmark.add("--max-candidates", type=int, default=MAX_CANDIDATES)
    benchmark.add("--uniform", action="store_true", help="strings of independent symbols with equal probabilities")
    benchmark.add("--method", choices=["prefixes", "ngrams"], default="prefixes")
    options = benchmark.start()
    metric = domain_metric(options.epsilon, options.method)
    print(f"{metric.params}, {discovery_of(metric)}\n")
    table = benchmark.table()
    for number in benchmark.indices:
        rng = generator(number)
        strings = uniform_strings(1000, rng) if options.uniform else domains(1000, rng)
        population = zipf_population(strings, options.reports, rng)
        shares = {string: count / options.reports for string, count in population.items()}
        counts = simulate(metric, population, rng)
        start, cpu = time.perf_counter(), time.process_time()
        found = discover(counts, target="population", beam=options.beam, max_candidates=options.max_candidates)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        detected = {estimate.candidate: estimate for estimate in found.detected}
        real = detected.keys() & shares.keys()
        of_level = {}
        for level in LEVELS:
            frequent = {string for string, share in shares.items() if share >= level}
            of_level[f">= {level:.1%}"] = f"{len(frequent & real)}/{len(frequent)}"
        truth = dict(zip(strings, distribution_shares("zipf1", len(strings)).values(), strict=True))
        estimates = [e for e in found.decoding or () if e.candidate in truth]
        covered = sum(e.low <= truth[e.candidate] <= e.high for e in estimates)
        table.add(
            {
                "task": f"{number}",
                "candidates": f"{len(found.decoding or ())}",
                "found": f"{len(real)}",
                "false": f"{len(detected) - len(real)}",
                **of_level,
                "covered": f"{covered}/{len(estimates)}",
                "s": f"{seconds:.0f}",
                "CPU s": f"{cpu:.0f}",
                "GB": f"{peak_megabytes() / 1024:.2f}",
            }
        )


if __name__ == "__main__":
    main()
