"""SIGKILL at every failpoint and at random moments: campaigns of crash_matrix.py, one of segment_matrix.py."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.programs import installed


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "processes"), [("sqlite", 1), ("postgres", 3)])
def test_killed_service_loses_no_report_and_counts_none_twice(engine: str, processes: int, unseen_seed: int) -> None:
    """25 crashes each: one at every failpoint, each of which must be reached, the others at random moments."""
    root = Path(__file__).parents[2]
    matrix = [sys.executable, "-m", "tests.stress.crash_matrix", engine, str(processes), "25", str(unseen_seed)]
    done = subprocess.run(matrix, cwd=root, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    met = {name: int(times) for times, name in re.findall(r"^ *(\d+)  (.*)$", done.stdout, re.MULTILINE)}
    named = {name: times for name, times in met.items() if not name.endswith("at a random moment")}
    assert sum(met.values()) == 25
    assert len(named) >= 12
    assert all(named.values()), met


@pytest.mark.slow
def test_replicas_behind_nginx_lose_no_report_and_count_none_twice_through_failovers(unseen_seed: int) -> None:
    """10 crashes: two of each kind, two of them failovers of PostgreSQL to a synchronous standby. A slow service is crashed more often."""
    installed("nginx", "nginx-light")
    installed("openssl")
    root = Path(__file__).parents[2]
    matrix = [sys.executable, "-m", "tests.stress.crash_matrix", "postgres", "3", "10", str(unseen_seed)]
    matrix += ["--proxy", "nginx", "--standby"]
    done = subprocess.run(matrix, cwd=root, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    met = re.findall(r"^ *(\d+)  (.* at a random moment)$", done.stdout, re.MULTILINE)
    assert len(met) == 5
    assert min(int(times) for times, _ in met) >= 2, met


@pytest.mark.slow
@pytest.mark.parametrize(("crashes", "place"), [(13, ["--s3"])], ids=["s3"])
def test_killed_segment_services_and_folds_lose_no_report_and_count_none_twice(
    crashes: int, place: list[str], unseen_seed: int
) -> None:
    """One crash at every failpoint, each of which must be reached, the others at random moments."""
    root = Path(__file__).parents[2]
    matrix = [sys.executable, "-m", "tests.stress.segment_matrix", str(crashes), str(unseen_seed), *place]
    done = subprocess.run(matrix, cwd=root, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    met = {name: int(times) for times, name in re.findall(r"^ *(\d+)  (.*)$", done.stdout, re.MULTILINE)}
    assert sum(met.values()) == crashes
    assert len(met) == 13
    assert all(met.values()), met
