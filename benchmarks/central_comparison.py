"""Error of a count without a trusted curator, and with one, at equal epsilon: randomized response, Laplace, Gaussian.

    python -m benchmarks.central_comparison [--eps 1 2 4] [--runs 100] [--environment DIR] [--out docs/explanation/comparison.md]
    (or: make bench-central)

Randomized response is a boolean metric with one report of each client, decoded by `hubbub_decoder`. The mechanisms of the curator are
OpenDP's, in a virtual environment in DIR, which is made from the package index; without it their columns are empty, with the reason.
Each mechanism hides the answer of one client, which changes the count by at most 1; the number of clients is public.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from benchmarks.environment import CACHE, EnvironmentUnavailableError, make_environment, run_script
from benchmarks.pages import put_section
from hubbub import Metric
from hubbub_decoder import decode
from hubbub_decoder.simulation import simulate

HEADING = "## Randomized response and a trusted curator"
REQUIREMENTS = ("opendp==0.16.0",)
CLIENTS = tuple(10**power for power in range(2, 8))
SHARE, DELTA = 0.1, 1e-9
PLOT = "central-comparison.svg"
MECHANISMS = {
    "randomized response": ("#2563a8", "o"),
    "Gaussian": ("#d9480f", "s"),
    "Laplace": ("#2b8a3e", "^"),
}
CURATOR_DRAWS = 4_000
_PRICED_CLIENTS = 1_000_000
_RUNNER = Path(__file__).parent / "opendp_runner.py"
_RUNNER_SECONDS = 120


class Row(NamedTuple):
    """Root mean squared error of the count at an epsilon and a number of clients, by mechanism; NaN if it was skipped."""

    epsilon: float
    clients: int
    errors: dict[str, float]


def boolean_metric(epsilon: float) -> Metric:
    """Randomized response with probability e^eps / (e^eps + 1) of the true answer; no permanent noise, for one report."""
    truthful = 1 / (1 + math.exp(-epsilon))
    return Metric.boolean("answer", prob_p=1 - truthful, prob_q=truthful, prob_f=0)


def randomized_response_error(epsilon: float, clients: int) -> float:
    """Standard error of a count by randomized response: sqrt(N e^eps) / (e^eps - 1), the same at every share.

    >>> round(randomized_response_error(1, 10_000), 1)
    96.0
    """
    return math.sqrt(clients * math.exp(epsilon)) / math.expm1(epsilon)


def decoded_counts(epsilon: float, clients: int, runs: int) -> NDArray[np.float64]:
    """Counts of "true" that the decoder estimates from the reports of SHARE of the clients, in each run."""
    metric, rng = boolean_metric(epsilon), np.random.default_rng([int(1000 * epsilon), clients])
    true = round(SHARE * clients)
    summaries = [simulate(metric, {"true": true, "false": clients - true}, rng) for _ in range(runs)]
    return np.array([clients * decode(summary).estimates[0].share for summary in summaries])


def measure(epsilon: float, clients: int, runs: int, python: Path | None) -> Row:
    """Root mean squared errors of the count."""
    true = round(SHARE * clients)
    counts: dict[str, Any] = {"randomized response": decoded_counts(epsilon, clients, runs)}
    if python is not None:
        task = {"count": true, "epsilon": epsilon, "delta": DELTA, "draws": CURATOR_DRAWS}
        answer = run_script(python, _RUNNER, task, _RUNNER_SECONDS)
        counts |= {"Gaussian": np.array(answer["gaussian"]), "Laplace": np.array(answer["laplace"])}
    errors = {
        name: math.sqrt(np.mean((counts[name] - true) ** 2)) if name in counts else math.nan for name in MECHANISMS
    }
    return Row(epsilon, clients, errors)


def table(rows: list[Row]) -> list[str]:
    """Lines of the table: errors of the count and of the share."""
    counts, shares = (" | ".join(f"{name}: {of}" for name in MECHANISMS) for of in ("count", "share"))
    lines = [
        f"| eps | clients | {counts} | {shares} | randomized response / Laplace |",
        "|---" * (3 + 2 * len(MECHANISMS)) + "|",
    ]
    for row in rows:
        errors = list(row.errors.values())
        figures = [
            *(f"{error:,.1f}" for error in errors),
            *(f"{error / row.clients:.1e}" for error in errors),
            f"{errors[0] / errors[-1]:,.0f}",
        ]
        cells = ["-" if figure == "nan" else figure for figure in figures]
        lines.append(f"| {row.epsilon:g} | {row.clients:,} | {' | '.join(cells)} |")
    return lines


def plot(rows: list[Row]) -> Figure:
    """Figure of the error of the share over the number of clients, one panel for each epsilon; the lines are the laws."""
    epsilons = sorted({row.epsilon for row in rows})
    figure = Figure(figsize=(3.2 * len(epsilons) + 0.6, 3.6), layout="constrained")
    panels = figure.subplots(1, len(epsilons), sharey=True, squeeze=False)[0]
    for axes, epsilon in zip(panels, epsilons, strict=True):
        group = [row for row in rows if row.epsilon == epsilon]
        clients = np.array([row.clients for row in group])
        law = [randomized_response_error(epsilon, int(n)) / n for n in clients]
        axes.plot(clients, law, color=MECHANISMS["randomized response"][0], linewidth=1)
        for name, (colour, marker) in MECHANISMS.items():
            errors = np.array([row.errors[name] for row in group]) / clients
            line = "none" if name == "randomized response" else "-"
            axes.plot(
                clients, errors, marker, color=colour, linestyle=line, linewidth=1, markersize=4.5,
                label=name if axes is panels[0] else None,
            )  # fmt: skip
        axes.set(xscale="log", yscale="log", xlabel="clients N", title=f"epsilon = {epsilon:g}")
        axes.grid(visible=True, color="#e3e6ea", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("standard error of the share")
    figure.legend(loc="outside upper center", ncols=len(MECHANISMS), frameon=False)
    return figure


def section(rows: list[Row], runs: int, skipped: str) -> str:
    """Section of the page: setting, plot and table."""
    legend = f"""{HEADING}

`make bench-central`: the same count at equal epsilon, without and with a trusted curator.
{SHARE:.0%} of the clients answer yes, and each answers once.
Randomized response is a boolean metric, decoded by hubbub.
The curator's mechanisms are OpenDP's: Laplace has (eps, 0), and Gaussian has (eps, delta) with delta = {DELTA:g}.
An error is the root mean squared error of {runs} runs of randomized response, or of {CURATOR_DRAWS:,} noisy counts of the curator.

![Standard error of the share over the number of clients](images/{PLOT})

The points are measured; the line of randomized response is its law, e^(eps/2) / (e^eps - 1) / sqrt(N)."""
    reason = ["", f"OpenDP was skipped: {skipped}."] if skipped else price(rows)
    return "\n".join([legend, *reason, "", *table(rows)])


def price(rows: list[Row]) -> list[str]:
    """Sentences on the price of no trusted curator, from the row with a million clients and the smallest epsilon."""
    row = next(row for row in rows if row.clients == _PRICED_CLIENTS)
    ours, theirs = row.errors["randomized response"], row.errors["Laplace"]
    return [
        "The curator's error of a count does not depend on the number of clients; that of randomized response grows with its square root.",
        f"At epsilon {row.epsilon:g} and {row.clients:,} clients, randomized response errs by {ours:,.0f} of them ({ours / row.clients:.2%}).",
        f"A curator with Laplace noise has that error of the share with {theirs / ours * row.clients:,.0f} clients, but sees every answer.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--eps", type=float, nargs="+", default=[1, 2, 4])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--environment", type=Path, default=CACHE / "opendp", help="folder of OpenDP's environment")
    parser.add_argument("--out", type=Path, help="write the section to this page, and the plot to images/ beside it")
    options = parser.parse_args()
    python, skipped = None, ""
    try:
        python = make_environment(options.environment, REQUIREMENTS)
    except EnvironmentUnavailableError as problem:
        skipped = str(problem)
        print(f"OpenDP is skipped: {skipped}")
    rows = [measure(epsilon, clients, options.runs, python) for epsilon in options.eps for clients in CLIENTS]
    print("\n".join(table(rows)))
    if options.out:
        put_section(options.out, section(rows, options.runs, skipped))
        with mpl.rc_context({"svg.hashsalt": PLOT, "svg.fonttype": "none"}):
            plot(rows).savefig(options.out.parent / "images" / PLOT, metadata={"Date": None})


if __name__ == "__main__":
    main()
