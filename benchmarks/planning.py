"""Does the planner predict the variance that the decoder delivers? Random definitions, a line each.

    python -m benchmarks.planning --results planning.jsonl [--cases 60] [--data bits] [--cohorts 8] [--plans] [--index 29] [--estimates 2000] [--seconds 150]

Seeds derive from the commit's hash (HUBBUB_TEST_SEED repeats a run). All figures are means over the candidates, times the number of clients.
A run stops after --seconds, and the next one with the same file continues it. Predictions are made when the table is printed.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.runs import commit_seed
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=60, help="number of definitions, a third of them of each kind")
    parser.add_argument("--data", choices=DATA, help="only cases of this kind")
    parser.add_argument("--index", type=int, action="append", help="only this case; may be repeated")
    parser.add_argument("--cohorts", type=int, help="number of cohorts of all definitions; default: drawn")
    parser.add_argument("--plans", action="store_true", help="definitions that are planned for random wishes, of bits")
    parser.add_argument("--estimates", type=int, default=2000, help="least estimates of each case")
    parser.add_argument("--seconds", type=float, default=np.inf, help="begin no case later than this")
    parser.add_argument("--results", type=Path, help="file of measured cases, continued")
    options = parser.parse_args()
    text, seed = commit_seed()
    found = _read(options.results, text)
    begin = time.perf_counter()

    def draw(index: int) -> Case:
        return draw_planned_case(index, seed) if options.plans else draw_case(index, seed, options.cohorts)

    with threadpool_limits(1):
        for index in range(options.cases):
            if index in found or (not options.plans and options.data not in (None, DATA[index % len(DATA)])):
                continue
            if options.index and index not in options.index:
                continue
            if time.perf_counter() - begin > options.seconds:
                break
            case, started = draw(index), time.perf_counter()
            outcome = measure(case, options.estimates, np.random.default_rng((seed, index, 1)))
            found[index] = _row(index, case, outcome, time.perf_counter() - started)
            if options.results:
                with options.results.open("a") as file:
                    print(json.dumps({"seed": text} | found[index]), file=file)
    print(f"planning, HUBBUB_TEST_SEED={text}\n")
    rows = [found[index] for index in sorted(found)]
    _print_table([row | {"predicted": predicted_variance(draw(row["index"]))} for row in rows])


def _row(index: int, case: Case, outcome: Outcome, seconds: float) -> dict[str, Any]:
    params = case.metric.params
    return {
        "index": index,
        "data": case.data,
        "definition": (
            f"{params.num_bits}, {params.num_hashes}, {params.num_cohorts} | {params.mechanism.prob_p:.3f}, {params.mechanism.prob_q:.3f} "
            f"| {params.mechanism.permanent_p:.3f}, {params.mechanism.permanent_q:.3f} | {case.periods}, {case.metric.hold or '-'} | {case.candidates}"
        ),
        **asdict(outcome),
        "seconds": seconds,
    }


def _read(path: Path | None, seed: str) -> dict[int, dict[str, Any]]:
    """Measured cases of this seed, by index."""
    if path is None or not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {row["index"]: row for row in rows if row["seed"] == seed}


def _print_table(rows: list[dict[str, Any]]) -> None:
    print(
        "| | data | k, h, m | p, q | permanent p, q | periods, hold | candidates | predicted | delivered / predicted "
        "| declared / predicted | s |"
    )
    print("|---" * 11 + "|")
    for row in rows:
        delivered, error, declared = (row[name] / row["predicted"] for name in ("delivered", "error", "declared"))
        print(
            f"| {row['index']} | {row['data']} | {row['definition']} | {row['predicted']:.4g} | {delivered:.3f} ({error:.3f}) "
            f"| {declared:.3f} | {row['seconds']:.0f} |"
        )
    print(
        f"\n| data | definitions | delivered / predicted, mean | within {TARGET:.0%} | within {TARGET:.0%} and {_STANDARD_ERRORS} standard errors "
        f"| declared / predicted, mean, range | within {TARGET:.0%} |"
    )
    print("|---" * 7 + "|")
    for data in DATA:
        of_data = [row for row in rows if row["data"] == data]
        if len(of_data) > 1:
            delivered, error, declared = (
                np.array([row[name] / row["predicted"] for row in of_data])
                for name in ("delivered", "error", "declared")
            )
            away, mean_error = np.abs(delivered - 1), np.sqrt(np.sum(error**2)) / len(error)
            print(
                f"| {data} | {len(of_data)} | {delivered.mean():.3f} ({mean_error:.3f}) | {np.sum(away <= TARGET)} "
                f"| {np.sum(away <= TARGET + _STANDARD_ERRORS * error)} | {declared.mean():.3f}, {declared.min():.2f} to {declared.max():.2f} "
                f"| {np.sum(np.abs(declared - 1) <= TARGET)} |"
            )


if __name__ == "__main__":
    main()
