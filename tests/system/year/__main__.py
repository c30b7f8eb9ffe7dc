"""Live through one deployment, and print what was checked."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.typescript import node_adapter
from tests.system.year.checks import CHECKS
from tests.system.year.coverage_check import discoveries, false_detections, false_discoveries, intervals, most_misses
from tests.system.year.deployment import lived


def say(*lines: object) -> None:
    """Print lines at once, so that a run that is ended has shown what it found."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def main() -> int:
    """Run the deployment of the command line; return 1 if a check finds a fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--days", type=int, default=60)
    parser.add_argument("--people", type=int, default=200, help="with an installation")
    parser.add_argument("--served", type=int, default=2, help="for whom servers report")
    options = parser.parse_args()
    adapter: Sequence[str] | None = None
    try:
        adapter = node_adapter()
    except pytest.skip.Exception as reason:
        say(f"without the TypeScript client: {reason}")
    with (
        tempfile.TemporaryDirectory(prefix="hubbub-year-") as directory,
        lived(Path(directory), options.seed, options.days, options.people, adapter, options.served) as deployment,
    ):
        requests = deployment.service.requests
        seconds = ", ".join(f"{name} {number:.1f} s" for name, number in deployment.seconds.items())
        storage = type(deployment.service.storage).__name__
        say(f"{storage}: {len(requests)} requests, {deployment.service.restarts} restarts; {seconds}")
        is_right = True
        for name, check in CHECKS.items():
            faults = list(check(deployment))
            is_right &= not faults
            say(f"{name}: {len(faults)} faults", *faults[:5])
        for every in (False, True):
            found = intervals(deployment, all_of_them=every)
            missed = [interval for interval in found if not interval.covers]
            is_right &= every or len(missed) <= most_misses(len(found))
            say(
                f"{len(missed)} of {len(found)} {'intervals' if every else 'independent intervals'} miss",
                *missed[:5],
            )
        strings = [string["candidate"] for string in discoveries(deployment)[0] if string["detected"]]
        say(f"false detections: {false_detections(deployment)}")
        say(f"discovered: {', '.join(strings) or 'nothing'}, of which {false_discoveries(deployment):.0%} are false")
        for key, times in deployment.messages.numbers.items():
            say(f"{times} x {key[0]}: {deployment.messages.examples[key]}")
    return int(not is_right)


if __name__ == "__main__":
    sys.exit(main())
