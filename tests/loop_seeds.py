"""Run the statistical tests with many seeds, and print the number of failures of each.

python -m tests.loop_seeds 20 [--prefix NAME] [pytest arguments]          (or: make seeds)

A statistical test is one that takes the fixture `unseen_seed`. Repeat one failure with HUBBUB_TEST_SEED=<seed> pytest <test>.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import defaultdict

import pytest


class Outcomes:
    """A pytest plugin: selects the tests that draw from a seed, and collects failures and seconds of each."""

    def __init__(self) -> None:
        self.failures: dict[str, list[str]] = defaultdict(list)
        self.seconds: dict[str, list[float]] = defaultdict(list)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if "unseen_seed" in getattr(item, "fixturenames", ())]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self.seconds[report.nodeid].append(report.duration)
        if report.failed:
            self.failures[report.nodeid].append(os.environ["HUBBUB_TEST_SEED"])


def main() -> int:
    """Run all seeds; return 1 if a test failed with any of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seeds", type=int, help="number of seeds")
    parser.add_argument(
        "--prefix", default=f"{time.time():.0f}", help="seeds are NAME-1, NAME-2, ...; default: the time"
    )
    options, arguments = parser.parse_known_args()
    outcomes = Outcomes()
    for number in range(1, options.seeds + 1):
        os.environ["HUBBUB_TEST_SEED"] = f"{options.prefix}-{number}"
        code = pytest.main(["-q", "--tb=short", "-p", "no:cacheprovider", *(arguments or ["tests"])], [outcomes])
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            return int(code)
    sys.stdout.write("\n| test | runs | failures | seconds a run | seeds that failed |\n|---|---|---|---|---|\n")
    for test, seconds in sorted(outcomes.seconds.items(), key=lambda entry: -len(outcomes.failures[entry[0]])):
        seeds = outcomes.failures[test]
        mean = sum(seconds) / len(seconds)
        sys.stdout.write(f"| {test} | {len(seconds)} | {len(seeds)} | {mean:.1f} | {' '.join(seeds)} |\n")
    return int(any(outcomes.failures.values()))


if __name__ == "__main__":
    sys.exit(main())
