"""Error of a count without a trusted curator, and with one, at equal epsilon: randomized response, Laplace, Gaussian.

    python -m benchmarks.studies.central_comparison [--eps 1 2 4] [--runs 100] [--environment DIR] [--out docs/explanation/data]

Randomized response is a boolean metric with one report of each client, decoded by `hubbub_decoder`. The mechanisms of the curator are
OpenDP's, in a virtual environment in DIR, which is made from the package index; without it their columns are empty.
Each mechanism hides the answer of one client, which changes the count by at most 1; the number of clients is public.
An error is the root mean squared error of the runs, or of 4,000 noisy counts of the curator. Gaussian noise has (eps, 1e-9).
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.environment import CACHE, EnvironmentUnavailableError, make_environment, run_script
from benchmarks.runner import Benchmark, generator
from benchmarks.tables import Row
from hubbub import Metric, UnaryResponse
from hubbub_decoder import decode
from hubbub_decoder.simulation import simulate

REQUIREMENTS = ("opendp==0.16.0",)
CLIENTS = tuple(10**power for power in range(2, 8))
SHARE, DELTA = 0.1, 1e-9
MECHANISMS = ("randomized response", "Gaussian", "Laplace")
CURATOR_DRAWS = 4_000
_RUNNER = Path(__file__).parent / "opendp_runner.py"
_RUNNER_SECONDS = 120


def boolean_metric(epsilon: float) -> Metric:
    """Randomized response with probability e^eps / (e^eps + 1) of the true answer; no permanent noise, for one report."""
    truthful = 1 / (1 + math.exp(-epsilon))
    return Metric.boolean("answer", UnaryResponse(prob_p=1 - truthful, prob_q=truthful, prob_f=0))


def decoded_counts(epsilon: float, clients: int, runs: int) -> NDArray[np.float64]:
    """Counts of "true" that the decoder estimates from the reports of SHARE of the clients, in each run."""
    metric, rng = boolean_metric(epsilon), generator(epsilon, clients)
    true = round(SHARE * clients)
    summaries = [simulate(metric, {"true": true, "false": clients - true}, rng) for _ in range(runs)]
    return np.array([clients * decode(summary).estimates[0].share for summary in summaries])


def measure(epsilon: float, clients: int, runs: int, python: Path | None) -> Row:
    """Row of the table: root mean squared error of the count by each mechanism; empty if it was skipped."""
    true = round(SHARE * clients)
    counts: dict[str, Any] = {"randomized response": decoded_counts(epsilon, clients, runs)}
    if python is not None:
        task = {"count": true, "epsilon": epsilon, "delta": DELTA, "draws": CURATOR_DRAWS}
        answer = run_script(python, _RUNNER, task, _RUNNER_SECONDS)
        counts |= {"Gaussian": np.array(answer["gaussian"]), "Laplace": np.array(answer["laplace"])}
    errors = {name: math.sqrt(np.mean((counts[name] - true) ** 2)) for name in counts}
    row = {"eps": f"{epsilon:g}", "clients": f"{clients}"}
    for name in MECHANISMS:
        row[name.lower().replace(" ", "_")] = f"{errors[name]:.1f}" if name in errors else ""
    ratio = f"{errors['randomized response'] / errors['Laplace']:.0f}" if "Laplace" in errors else ""
    return {**row, "randomized_response_over_laplace": ratio}


def main() -> None:
    benchmark = Benchmark(__doc__, runs=100)
    benchmark.add("--eps", type=float, nargs="+", default=[1, 2, 4])
    benchmark.add("--environment", type=Path, default=CACHE / "opendp", help="folder of OpenDP's environment")
    options = benchmark.start()
    python = None
    try:
        python = make_environment(options.environment, REQUIREMENTS)
    except EnvironmentUnavailableError as problem:
        print(f"OpenDP is skipped: {problem}")
    table = benchmark.table("curator")
    for epsilon in options.eps:
        for clients in CLIENTS:
            table.add(measure(epsilon, clients, options.runs, python))


if __name__ == "__main__":
    main()
