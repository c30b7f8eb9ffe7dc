"""Has L-OSUE, as decoded, the variance of its exact law?

    python -m benchmarks.asymmetric_noise [--runs 12] [--seed 1]

N Var over OUE(eps_inf) + (OUE(eps_1) - OUE(eps_inf)) / T + x, for a categorical metric and for a string metric of 8 cohorts of 128 bits with
candidates that share no bit. Measured from the errors of simulated reports of a million clients, and as declared by the decoder.
"""

from __future__ import annotations

import argparse

import numpy as np

from tests.support.asymmetric_noise import EPSILONS, NUMBERS_OF_REPORTS, category_variances, string_variances

_CATEGORY_RUNS = 100
"""Fits of categories for each decoding of strings: a hundredth of the time."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--runs", type=int, default=12)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    rng = np.random.default_rng(given.seed)
    print("| eps_1, eps_inf | T | x | N Var | categories: measured | declared | strings: measured | declared |")
    print("|---|---|---|---|---|---|---|---|")
    for epsilons in EPSILONS:
        for reports in NUMBERS_OF_REPORTS:
            categories = category_variances(epsilons, reports, _CATEGORY_RUNS * given.runs, rng)
            strings = string_variances(epsilons, reports, given.runs, rng)
            for category, string in zip(categories, strings, strict=True):
                cells = [
                    f"{epsilons[0]:g}, {epsilons[1]:g}",
                    f"{reports}",
                    f"{category.share:g}",
                    f"{category.law:.4f}",
                ]
                for each in (category, string):
                    cells += [f"{each.measured:.3f} +- {each.std_error:.3f}", f"{each.declared:.3f}"]
                print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
