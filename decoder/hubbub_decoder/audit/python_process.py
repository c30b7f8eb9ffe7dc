"""Program that runs a Python function as a command of `external_clients.CommandClient`, with the clock stopped.

python -m hubbub_decoder.audit.python_process module:function VALUE SEED CLIENTS REPORTS
"""

from __future__ import annotations

import json
import sys

from hubbub_decoder.audit.external_clients import FunctionClient
from hubbub_decoder.audit.frozen_clock import frozen_clock


def main(arguments: list[str]) -> None:
    """Print the reports of one call."""
    spec, value, *numbers = arguments
    with frozen_clock():
        client = FunctionClient.load(spec)
        made = client(json.loads(value), *map(int, numbers))
    for cohort, reports in zip(made.cohorts.tolist(), made.bits.tolist(), strict=True):
        for bits in reports:
            sys.stdout.write(f"{cohort} {''.join(map(str, bits))}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
