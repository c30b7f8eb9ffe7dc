"""A few kills of each server; `make matrix` has 200 each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stress.host_matrix import run
from tests.support.hosts import HOSTS


@pytest.mark.slow
@pytest.mark.parametrize("name", list(HOSTS))
def test_kills_of_a_server_lose_no_recording_or_charge(name: str, unseen_seed: int, tmp_path: Path) -> None:
    result = run(HOSTS[name], 8, unseen_seed, tmp_path)
    assert result["answered"] >= 8
    assert result["acknowledged"] >= 1
