"""SIGKILL at every named moment and at random ones: see crash_matrix.py, which this runs once."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path


def test_no_report_is_lost_and_none_counted_twice_wherever_the_service_is_killed(unseen_seed: int) -> None:
    """25 crashes: every named moment, which must have been met, and random ones for the rest."""
    matrix = Path(__file__).with_name("crash_matrix.py")
    done = subprocess.run(
        [sys.executable, str(matrix), "25", str(unseen_seed)], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    met = {name: int(times) for times, name in re.findall(r"^ *(\d+)  (.*)$", done.stdout, re.MULTILINE)}
    assert met.pop("a random moment") > 0
    assert len(met) >= 12
    assert all(met.values()), met
