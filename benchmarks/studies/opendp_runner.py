"""Noisy counts of a trusted curator by OpenDP; runs in an environment that has it.

    echo '{"count": 100, "epsilon": 1, "delta": 1e-9, "draws": 5}' | python opendp_runner.py

Output: JSON with lists of noisy counts, "laplace" (epsilon) and "gaussian" (epsilon, delta), at sensitivity 1.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any


def main() -> None:
    dp: Any = importlib.import_module("opendp.prelude")
    dp.enable_features("contrib")
    task = json.load(sys.stdin)
    count, epsilon, delta, draws = (task[name] for name in ("count", "epsilon", "delta", "draws"))
    domain = dp.atom_domain(T=int)

    def laplace(scale: float) -> Any:
        return dp.m.make_laplace(domain, dp.absolute_distance(T=int), scale)

    def gaussian(scale: float) -> Any:
        concentrated = dp.m.make_gaussian(domain, dp.absolute_distance(T=float), scale)
        return dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(concentrated), delta)

    answer = {}
    for name, make, distance, budget in (
        ("laplace", laplace, 1, epsilon),
        ("gaussian", gaussian, 1.0, (epsilon, delta)),
    ):
        mechanism = make(dp.binary_search_param(make, d_in=distance, d_out=budget))
        answer[name] = [int(mechanism(count)) for _ in range(draws)]
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
