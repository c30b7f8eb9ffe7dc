"""Does the planner predict the variance that the decoder delivers? Random definitions, a line each.

    python -m benchmarks.planning --results planning.jsonl [--cases 60] [--data bits] [--cohorts 8] [--plans] [--estimates 2000]

All figures are means over the candidates, times the number of clients.
A run with the file of an interrupted one continues it. Predictions are made when the table is printed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.runner import Benchmark, seed, seed_text
from benchmarks.tables import Row
from hubbub_decoder.array_types import Floats
from tests.support.planned_accuracy import (
    DATA,
    Case,
    Outcome,
    draw_case,
    draw_planned_case,
    measure,
    predicted_variance,
)

TARGET = 0.05  # largest relative difference from the predicted variance
_STANDARD_ERRORS = 2


def main() -> None:
    """Measure the cases and print the table."""
    benchmark = Benchmark(__doc__)
    benchmark.add("--cases", type=int, default=60, help="number of definitions, a third of them of each kind")
    benchmark.add("--data", choices=DATA, help="only cases of this kind")
    benchmark.add("--cohorts", type=int, help="number of cohorts of all definitions; default: drawn")
    benchmark.add("--plans", action="store_true", help="definitions that are planned for random wishes, of bits")
    benchmark.add("--estimates", type=int, default=2000, help="least estimates of each case")
    benchmark.add("--results", type=Path, help="file of measured cases, continued")
    options = benchmark.start()
    found = _read(options.results, seed_text())

    def draw(index: int) -> Case:
        return draw_planned_case(index, seed()) if options.plans else draw_case(index, seed(), options.cohorts)

    with threadpool_limits(1):
        for index in range(options.cases):
            if index in found or (not options.plans and options.data not in (None, DATA[index % len(DATA)])):
                continue
            case, started = draw(index), time.perf_counter()
            outcome = measure(case, options.estimates, np.random.default_rng((seed(), index, 1)))
            found[index] = _row(index, case, outcome, time.perf_counter() - started)
            if options.results:
                with options.results.open("a") as file:
                    print(json.dumps({"seed": seed_text()} | found[index]), file=file)
    rows = [found[index] for index in sorted(found)]
    rows = [row | {"predicted": predicted_variance(draw(row["index"]))} for row in rows]
    benchmark.table().add_all(map(_line, rows))
    benchmark.table().add_all(_summary(rows))


def _row(index: int, case: Case, outcome: Outcome, seconds: float) -> dict[str, Any]:
    params = case.metric.params
    return {
        "index": index,
        "data": case.data,
        "k, h, m": f"{params.num_bits}, {params.num_hashes}, {params.num_cohorts}",
        "p, q": f"{params.mechanism.prob_p:.3f}, {params.mechanism.prob_q:.3f}",
        "permanent p, q": f"{params.mechanism.permanent_p:.3f}, {params.mechanism.permanent_q:.3f}",
        "periods, hold": f"{case.periods}, {case.metric.hold or '-'}",
        "candidates": f"{case.candidates}",
        **asdict(outcome),
        "seconds": seconds,
    }


def _read(path: Path | None, seed: str) -> dict[int, dict[str, Any]]:
    """Measured cases of this seed, by index."""
    if path is None or not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {row["index"]: row for row in rows if row["seed"] == seed}


def _over_predicted(rows: Sequence[Mapping[str, Any]]) -> list[Floats]:
    """Delivered variances, their standard errors and declared variances, over the predicted ones."""
    return [np.array([row[name] / row["predicted"] for row in rows]) for name in ("delivered", "error", "declared")]


def _line(row: Mapping[str, Any]) -> Row:
    (delivered,), (error,), (declared,) = _over_predicted([row])
    return {
        "": f"{row['index']}",
        **{name: row[name] for name in ("data", "k, h, m", "p, q", "permanent p, q", "periods, hold", "candidates")},
        "predicted": f"{row['predicted']:.4g}",
        "delivered / predicted": f"{delivered:.3f} ({error:.3f})",
        "declared / predicted": f"{declared:.3f}",
        "s": f"{row['seconds']:.0f}",
    }


def _summary(rows: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    for data in DATA:
        of_data = [row for row in rows if row["data"] == data]
        if len(of_data) < 2:
            continue
        delivered, error, declared = _over_predicted(of_data)
        away, mean_error = np.abs(delivered - 1), np.sqrt(np.sum(error**2)) / len(error)
        with_error = f"within {TARGET:.0%} and {_STANDARD_ERRORS} standard errors"
        yield {
            "data": data,
            "definitions": f"{len(of_data)}",
            "delivered / predicted, mean": f"{delivered.mean():.3f} ({mean_error:.3f})",
            f"within {TARGET:.0%}": f"{np.sum(away <= TARGET)}",
            with_error: f"{np.sum(away <= TARGET + _STANDARD_ERRORS * error)}",
            "declared / predicted, mean, range": f"{declared.mean():.3f}, {declared.min():.2f} to {declared.max():.2f}",
            f"declared within {TARGET:.0%}": f"{np.sum(np.abs(declared - 1) <= TARGET)}",
        }


if __name__ == "__main__":
    main()
