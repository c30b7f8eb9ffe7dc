"""Strings without a list: found and false strings, time and memory of `discover`, in simulated runs.

    python -m benchmarks.studies.discovery [--population domains] [--epsilon 8] [--reports 1000000] [--tasks 5] [--first 0]

One report of each client, with one permanent response and no instantaneous noise: epsilon of a report and of a value are equal.
--population chooses the strings:

domains : 1,000 domain-like strings of 5 to 24 characters, new in each task, with shares of Zipf's law (exponent 1)
uniform : such strings without any pattern
words   : words of the documentation, as often as it has them
names   : names in the code of client, aggregator and decoder, as often as it has them
urls    : addresses of the repository's files, with shares of Zipf's law in random order

Reports are drawn by `simulate`, whose distribution is that of the client's encoder (tests/decoder/discovery).
"""

from __future__ import annotations

import ast
import math
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

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
_ROOT = Path(__file__).parents[2]
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


def zipf_shares(strings: list[str]) -> dict[str, float]:
    return dict(zip(strings, distribution_shares("zipf1", len(strings)).values(), strict=True))


def word_shares(longest: int) -> dict[str, float]:
    """Shares of the documentation's words of 3 letters or more, without those that are too long."""
    return _frequencies(
        word for text in _texts("docs/*.md") for word in re.findall("[a-z]+", text.lower()) if 3 <= len(word) <= longest
    )


def name_shares(longest: int) -> dict[str, float]:
    """Shares of the names in the code, without those that are too long or have capitals."""
    nodes = (
        node
        for folder in ("client", "aggregator", "decoder")
        for text in _texts(f"{folder}/*.py")
        for node in ast.walk(ast.parse(text))
    )
    names = (str(getattr(node, field, None)) for node in nodes for field in ("id", "attr", "arg"))
    return _frequencies(name for name in names if re.fullmatch(f"[a-z_][a-z0-9_]{{2,{longest - 1}}}", name))


def urls(longest: int, rng: np.random.Generator) -> list[str]:
    """Addresses of the repository's files in random order, without those that are too long."""
    addresses = sorted({f"example.org/{file.lower()}" for file in _files()})
    return list(rng.permutation([address for address in addresses if len(address) <= longest]))


def _frequencies(words: Iterator[str]) -> dict[str, float]:
    counts = Counter(words)
    return {word: count / counts.total() for word, count in sorted(counts.items())}


def _files(*patterns: str) -> list[str]:
    command = ["git", "ls-files", *patterns]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=_ROOT).stdout.split()


def _texts(pattern: str) -> Iterator[str]:
    return ((_ROOT / file).read_text() for file in _files(pattern))


@dataclass(frozen=True)
class Population:
    """Strings to find: their alphabet and largest length, and their shares, of which each task may draw new ones."""

    alphabet: str
    longest: int
    shares: Callable[[int, np.random.Generator], Mapping[str, float]]


POPULATIONS = {
    "domains": Population(ALPHABET, 24, lambda _, rng: zipf_shares(domains(1000, rng))),
    "uniform": Population(ALPHABET, 24, lambda _, rng: zipf_shares(uniform_strings(1000, rng))),
    "words": Population(ALPHABET[:26], 16, lambda longest, _: word_shares(longest)),
    "names": Population(ALPHABET[:36] + "_", 20, lambda longest, _: name_shares(longest)),
    "urls": Population(ALPHABET + "_/", 40, lambda longest, rng: zipf_shares(urls(longest, rng))),
}


def discovery_metric(epsilon: float, population: Population, first: int) -> Metric:
    """Metric of which a report and a value cost at most epsilon, k = 1,024, h = 1."""
    a = 0.65 if epsilon > 6 else 0.5
    b = a / (a + (1 - a) * math.exp(epsilon))
    b = math.ceil(b * 2**24) / 2**24
    params = Params(num_bits=1024, num_hashes=1, num_cohorts=256, prob_p=0, prob_q=1, permanent_p=b, permanent_q=a)
    discover = Discovery(population.longest, alphabet=population.alphabet, held_out=0.06, step=2, first=first)
    return Metric.string("word", params, discover=discover)


def main() -> None:
    benchmark = Benchmark(__doc__, tasks=5)
    benchmark.add("--epsilon", type=float, default=8.0)
    benchmark.add("--reports", type=int, default=1_000_000)
    benchmark.add("--beam", type=int, default=DEFAULT_BEAM)
    benchmark.add("--max-candidates", type=int, default=MAX_CANDIDATES)
    benchmark.add("--population", choices=list(POPULATIONS), default="domains")
    benchmark.add("--shortest", type=int, default=3, help="length of the shortest prefix")
    options = benchmark.start()
    population = POPULATIONS[options.population]
    metric = discovery_metric(options.epsilon, population, options.shortest)
    print(f"{metric.params}, {discovery_of(metric)}\n")
    table = benchmark.table()
    for number in benchmark.indices:
        rng = generator(number)
        truth = population.shares(population.longest, rng)
        clients = dict(zip(truth, map(int, rng.multinomial(options.reports, list(truth.values()))), strict=True))
        shares = {string: count / options.reports for string, count in clients.items()}
        counts = simulate(metric, clients, rng)
        start, cpu = time.perf_counter(), time.process_time()
        found = discover(counts, target="population", beam=options.beam, max_candidates=options.max_candidates)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        detected = {estimate.candidate: estimate for estimate in found.detected}
        real = detected.keys() & shares.keys()
        of_level = {}
        for level in LEVELS:
            frequent = {string for string, share in shares.items() if share >= level}
            of_level[f">= {level:.1%}"] = f"{len(frequent & real)}/{len(frequent)}"
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
