"""25 points of the kill matrix; `make matrix` has 200, `make soak` 1,000."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def test_kill_matrix_counts_every_report_once(unseen_seed: int) -> None:
    script = str(Path(__file__).with_name("kill_matrix.py"))
    command = [sys.executable, script, "25", str(unseen_seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["counted"] == told["acknowledged"] == told["formed"] >= 25 * 3
    assert len(told["killed"]) >= 5
