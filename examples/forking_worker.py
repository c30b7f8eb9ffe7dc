"""A server that creates its client once and then forks workers, as gunicorn --preload does.

python forking_worker.py STATE WORKERS
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hubbub import Client

METRICS = Path(__file__).with_name("app_metrics.toml")


def main(state: str, workers: int) -> None:
    client = Client(METRICS, state, "http://127.0.0.1:8000")
    client.set_consent("on")
    for _ in range(workers):
        if os.fork() == 0:
            for _ in range(10):
                client.record("command", "open")
            os._exit(0)  # no exit hook runs; no recording is lost
    for _ in range(workers):
        os.wait()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
