"""The tests of clients/typescript/test, in Node."""

from __future__ import annotations

import subprocess

from tests.support.programs import installed
from tests.support.typescript import CLIENT
from tests.typescript.conftest import Built


def test_histories_that_go_wrong(built: Built) -> None:
    built("node.js")
    command = [installed("node", "nodejs"), "--test", "--test-timeout=60000", "test"]
    found = subprocess.run(command, cwd=CLIENT, capture_output=True, text=True, timeout=250, check=False)
    assert found.returncode == 0, found.stdout
