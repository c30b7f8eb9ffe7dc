"""Fixtures of the whole suite: seeds that nobody looked at while building."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest


def _commit() -> str:
    """Return what seeds derive from: HUBBUB_SEED to repeat a run, else the commit's hash."""
    asked = os.environ.get("HUBBUB_SEED")
    if asked:
        return asked
    here = Path(__file__).parent
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=False)
    return head.stdout.strip() or "no commit"


def pytest_report_header() -> str:
    return f"statistical seeds derive from HUBBUB_SEED={_commit()}"


@pytest.fixture
def unseen_seed(request: pytest.FixtureRequest) -> int:
    """A seed made of the commit's hash and the test's name: new with every commit, the same in every run of it.

    So whatever is asserted of what is drawn must be rare to fail by chance: about 1e-6, by theory or by how far from the bound it was in
    many draws, which the test tells. 270 of them then fail a right program in fewer than one of 300 commits.
    """
    text = f"{_commit()} {request.node.nodeid}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
