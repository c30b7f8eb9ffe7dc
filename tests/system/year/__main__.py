"""Live through one deployment, and print what was checked."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.system.year.deployment import lived


def main() -> None:
    """Run the deployment of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--days", type=int, default=60)
    parser.add_argument("--people", type=int, default=200)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="hubbub-year-") as directory,
        lived(Path(directory), options.seed, options.days, options.people) as deployment,
    ):
        requests = deployment.service.requests
        print(f"{len(requests)} requests, {deployment.service.restarts} restarts, {deployment.seconds}")
        print(f"{sum(None in request.units for request in requests)} reports that nobody can have")
        for key, number in deployment.messages.numbers.items():
            print(number, key[0], deployment.messages.examples[key])
        for refusal in deployment.service.refusals[:5]:
            print(refusal)


main()
