"""Does the planner predict the variance that the decoder delivers? Random definitions, a line each.

    python -m benchmarks.planning [--cases 60] [--first 0] [--data bits] [--estimates 2000]

Seeds derive from the commit's hash (HUBBUB_SEED repeats a run). All figures are means over the candidates, times the number of clients.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.runs import commit_seed
from tests.support.planned_accuracy import DATA, draw_case, mean_ratio, measure


def main() -> None:
    """Measure the cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=60)
    parser.add_argument("--first", type=int, default=0, help="index of the first case")
    parser.add_argument("--data", choices=DATA, help="only cases of this kind")
    parser.add_argument("--estimates", type=int, default=2000, help="estimates of each case")
    options = parser.parse_args()
    text, seed = commit_seed()
    print(f"planning, HUBBUB_SEED={text}\n", flush=True)
    print(
        "| | data | k, h, m | p, q | permanent p, q | periods, hold | candidates | predicted | declared | delivered | delivered / predicted | s |"
    )
    print("|---" * 12 + "|")
    found = []
    with threadpool_limits(1):
        for index in range(options.first, options.first + options.cases):
            if options.data not in (None, DATA[index % len(DATA)]):
                continue
            case, started = draw_case(index, seed), time.perf_counter()
            outcome = measure(case, options.estimates, np.random.default_rng((seed, index, 1)))
            found.append((case, outcome))
            params = case.metric.params
            ratio, error = outcome.delivered / outcome.predicted, outcome.error / outcome.predicted
            print(
                f"| {index} | {case.data} | {params.num_bits}, {params.num_hashes}, {params.num_cohorts} "
                f"| {params.prob_p:.3f}, {params.prob_q:.3f} | {params.permanent_p:.3f}, {params.permanent_q:.3f} "
                f"| {case.periods}, {case.metric.hold or '-'} | {case.candidates} | {outcome.predicted:.4g} | {outcome.declared:.4g} "
                f"| {outcome.delivered:.4g} | {ratio:.3f} ({error:.3f}) | {time.perf_counter() - started:.0f} |",
                flush=True,
            )
    for data in DATA:
        of_data = [outcome for case, outcome in found if case.data == data]
        if len(of_data) > 1:
            print(
                f"\n{data}: delivered / predicted {'{:.3f} ({:.3f})'.format(*mean_ratio(of_data))} over {len(of_data)} definitions"
            )


if __name__ == "__main__":
    main()
