"""25 points of the kill matrix; `make matrix` has 200, `make soak` 1,000."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.paths import REPOSITORY


@pytest.mark.slow
def test_kill_matrix_counts_every_report_once(unseen_seed: int) -> None:
    command = [sys.executable, "-m", "tests.stress.kill_matrix", "25", str(unseen_seed)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["counted"] == result["acknowledged"] == result["formed"] >= 25 * 3
    assert len(result["killed"]) >= 5
