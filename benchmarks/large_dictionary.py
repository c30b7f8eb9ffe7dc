"""Time, memory and coverage of decoding 110,000 candidates from 1e8 reports of 8 bits, and of hashing 100,000 for 128 bits.

python benchmarks/large_dictionary.py [--candidates 110000] [--clients 100000000] [--seeds 1 2 3]          (or: make bench-large)
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
from threadpoolctl import threadpool_limits

from hubbub import Metric, Params
from hubbub.summary import PatternCounts
from hubbub_decoder import decode
from hubbub_decoder.data.populations import distribution_shares
from hubbub_decoder.model.design_matrix import design_matrix
from hubbub_decoder.model.pattern_likelihood import FilterTable
from hubbub_decoder.model.vectorized_hashing import bit_positions

PARAMS = Params(
    num_bits=8, num_hashes=2, num_cohorts=128, prob_p=0.225, prob_q=0.775, prob_f=0.0, hash_scheme="google-md5"
)
VALUES = 10_000


def reports(clients: int, rng: np.random.Generator) -> tuple[PatternCounts, dict[str, float]]:
    """Draw pattern counts of zipf(1) over v1 .. v10000 from their exact distribution, filter by filter."""
    shares = distribution_shares("zipf1", VALUES)
    people = np.array(rng.multinomial(clients, list(shares.values())), np.int64).reshape(-1)
    table = FilterTable.from_params(PARAMS)
    bits = 1 << bit_positions(list(shares), PARAMS).astype(np.int64)
    bits[bits == 1 << PARAMS.num_bits] = 0
    filters = np.asarray(np.searchsorted(table.filters, np.asarray(np.bitwise_or.reduce(bits, axis=2))))
    counts = np.zeros((128, 256), np.int64)
    of_patterns = [table.mixture(filter_) for filter_ in np.eye(len(table.filters))]
    here = np.array([rng.multinomial(number, np.full(128, 1 / 128)) for number in people.tolist()])
    for cohort in range(128):
        of_filter = np.bincount(filters[:, cohort], here[:, cohort], len(table.filters)).astype(np.int64)
        counts[cohort] = rng.multinomial(of_filter, of_patterns).sum(axis=0)
    truth = {name: count / clients for name, count in zip(shares, people.tolist(), strict=True)}
    return PatternCounts(Metric.string("large", PARAMS), counts), truth


def hash_all(candidates: int, params: Params) -> None:
    """Print the time and peak memory of building a design matrix."""
    names = [f"v{i}" for i in range(1, candidates + 1)]
    started = time.perf_counter()
    entries = design_matrix(names, params).matrix.nnz
    seconds, peak = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"design matrix of {candidates:,} candidates, {entries:,} bits: {seconds:.1f} s, peak memory {peak / 1e6:.2f} GB",
        flush=True,
    )


def run(candidates: int, clients: int, seed: int) -> tuple[float, int, int]:
    """Decode one population and print the results; return CPU seconds, and the numbers of true and false discoveries."""
    summary, truth = reports(clients, np.random.default_rng(seed))
    names = [f"v{i}" for i in range(1, candidates + 1)]
    with threadpool_limits(1):
        started = time.perf_counter(), time.process_time()
        decoding = decode(summary, names)
        seconds, processor = time.perf_counter() - started[0], time.process_time() - started[1]
    shares = np.array([truth.get(e.candidate, 0.0) for e in decoding.estimates])
    covered = np.array([e.low <= share <= e.high for e, share in zip(decoding.estimates, shares, strict=True)])
    selected = [
        e.selection_adjusted_low <= truth.get(e.candidate, 0.0) <= e.selection_adjusted_high for e in decoding.detected
    ]
    false = sum(e.candidate not in truth for e in decoding.detected)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"seed {seed}: {seconds:.1f} s ({processor:.1f} s of CPU), peak memory {peak / 1e6:.2f} GB; coverage "
        f"{covered[shares > 0].mean():.4f} where truth > 0, {covered[shares == 0].mean():.4f} where it is 0, {np.mean(selected):.3f} of the "
        f"selected; found {len(decoding.detected) - false} and {false} absent ones",
        flush=True,
    )
    return processor, len(decoding.detected) - false, false


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=110_000)
    parser.add_argument("--clients", type=int, default=100_000_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options = parser.parse_args()
    hash_all(100_000, Params(num_bits=128, num_hashes=2, num_cohorts=128, prob_p=0.5, prob_q=0.75, prob_f=0.5))
    print(
        f"{options.candidates:,} candidates, {options.clients:,} reports, k = 8, h = 2, m = 128, .225/.775/0; one core"
    )
    runs = [run(options.candidates, options.clients, seed) for seed in options.seeds]
    shares = [false / max(1, found + false) for _, found, false in runs]
    error = np.std(shares, ddof=1) / np.sqrt(len(shares)) if len(shares) > 1 else np.nan
    print(f"false discoveries among the detected: {100 * np.mean(shares):.1f} % (s.e. {100 * error:.1f})")


if __name__ == "__main__":
    main()
