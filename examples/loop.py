"""A long-running program, such as a desktop app, with one client.

python loop.py STATE ROUNDS
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from hubbub import Client

METRICS = Path(__file__).with_name("app_metrics.toml")


def main(state: str, rounds: int) -> None:
    with Client(METRICS, state, "http://127.0.0.1:8000") as client:
        client.set_consent("on")
        for number in range(rounds):
            client.record("command", "save" if number % 3 else "open")
            client.record("dark_mode", True)
            time.sleep(0.01)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
