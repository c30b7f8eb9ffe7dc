"""Run one oracle of pure-LDP or multi-freq-ldpy on populations; runs in an environment that has these packages.

    echo '{"oracle": "pure-LDP OUE", "epsilon": 1, "populations": [[600, 400]], "seed": 1}' | python runner.py

Input:  JSON with oracle, epsilon, populations (each: number of reports of each value), seed.
Output: JSON with estimates (shares of each population), seconds (of a processor: encoding of all reports and estimation), megabytes (peak
memory of the process).
"""

from __future__ import annotations

import contextlib
import importlib
import json
import random
import resource
import sys
import time
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

SKETCH_ROWS, SKETCH_COLUMNS = 64, 1024
FAST_HASHES = 1_000
RAPPOR_BITS, RAPPOR_HASHES, RAPPOR_COHORTS = 128, 2, 8


def pure_ldp(oracle: str, epsilon: float, values: Sequence[int], size: int) -> list[float]:
    """Shares of values 0 .. size - 1 by an oracle of pure-LDP, report by report as its clients and servers work."""
    oracles: Any = importlib.import_module("pure_ldp.frequency_oracles")
    client, server = make_pair(oracles, oracle, epsilon, size)
    for value in values:
        server.aggregate(client.privatise(value + 1))
    return [float(server.estimate(value + 1, suppress_warnings=True)) / len(values) for value in range(size)]


def make_pair(oracles: Any, oracle: str, epsilon: float, size: int) -> tuple[Any, Any]:
    """Client and server of an oracle."""
    match oracle:
        case "OUE":
            return oracles.UEClient(epsilon, size, use_oue=True), oracles.UEServer(epsilon, size, use_oue=True)
        case "OLH":
            return oracles.LHClient(epsilon, size, use_olh=True), oracles.LHServer(epsilon, size, use_olh=True)
        case "fast OLH":
            return (
                oracles.FastLHClient(epsilon, size, FAST_HASHES, use_olh=True),
                oracles.FastLHServer(epsilon, size, FAST_HASHES, use_olh=True),
            )
        case "Hadamard response":
            server = oracles.HadamardResponseServer(epsilon, size)
            return oracles.HadamardResponseClient(epsilon, size, server.get_hash_funcs()), server
        case "CMS" | "HCMS":
            hadamard = oracle == "HCMS"
            server = oracles.CMSServer(epsilon, SKETCH_ROWS, SKETCH_COLUMNS, is_hadamard=hadamard)
            return (
                oracles.CMSClient(epsilon, server.get_hash_funcs(), SKETCH_COLUMNS, is_hadamard=hadamard),
                server,
            )
        case "RAPPOR":
            server = oracles.RAPPORServer(0.5, RAPPOR_BITS, RAPPOR_HASHES, size, RAPPOR_COHORTS)
            server.update_params(f=server.convert_eps_to_f(epsilon / RAPPOR_HASHES))
            return (
                oracles.RAPPORClient(server.f, RAPPOR_BITS, server.get_hash_funcs(), RAPPOR_COHORTS),
                server,
            )
    raise ValueError(oracle)


def multi_freq_ldpy(oracle: str, epsilon: float, values: Sequence[int], size: int) -> list[float]:
    """Shares of values 0 .. size - 1 by an oracle of multi-freq-ldpy, which clips and renormalizes."""
    if oracle == "L-GRR":  # epsilon of all reports first, then that of one
        long: Any = importlib.import_module("multi_freq_ldpy.long_freq_est.L_GRR")
        rows = [long.L_GRR_Client(value, size, 2 * epsilon, epsilon) for value in values]
        return [float(estimate) for estimate in long.L_GRR_Aggregator_MI(rows, size, 2 * epsilon, epsilon)]
    module: Any = importlib.import_module(f"multi_freq_ldpy.pure_frequency_oracles.{MULTI_FREQ[oracle]}")
    client, aggregate = (getattr(module, f"{MULTI_FREQ[oracle]}_{part}") for part in ("Client", "Aggregator_MI"))
    reports = [client(value, size, epsilon) for value in values]
    estimates = aggregate(reports, epsilon) if MULTI_FREQ[oracle] == "UE" else aggregate(reports, size, epsilon)
    return [float(estimate) for estimate in estimates]


MULTI_FREQ = {"OUE": "UE", "OLH": "LH", "subset selection": "SS", "GRR": "GRR"}
PACKAGES = {"pure-LDP": pure_ldp, "multi-freq-ldpy": multi_freq_ldpy}


def expand(counts: Iterable[int]) -> list[int]:
    """Value of each report."""
    return [value for value, count in enumerate(counts) for _ in range(count)]


def main() -> None:
    task = json.load(sys.stdin)
    package, _, oracle = task["oracle"].partition(" ")
    run, size = PACKAGES[package], len(task["populations"][0])
    with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run(oracle, task["epsilon"], [0, 1], 4)  # imports and compiles
        seed(task["seed"])
        estimates, seconds = [], 0.0
        for counts in task["populations"]:
            values = expand(counts)
            started = time.process_time()
            estimates.append(run(oracle, task["epsilon"], values, size))
            seconds += time.process_time() - started
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    json.dump({"estimates": estimates, "seconds": seconds, "megabytes": kilobytes / 1024}, sys.stdout)


def seed(number: int) -> None:
    """Seed the generators of both packages; compiled code has its own, which only compiled code can seed."""
    numpy: Any = importlib.import_module("numpy")
    numba: Any = importlib.import_module("numba")
    random.seed(number)
    numpy.random.seed(number)
    numba.njit(lambda n: numpy.random.seed(n))(number)


if __name__ == "__main__":
    main()
