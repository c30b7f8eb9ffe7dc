"""The examples and the test code of docs/how-to/client.md run without losing recordings."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import urllib3

from hubbub.sdk.storage.state_reader import read_state
from tests.support.near_expiry import with_near_expiry
from tests.support.paths import REPOSITORY

EXAMPLES = REPOSITORY / "examples"


@pytest.mark.parametrize(
    ("arguments", "runs", "recorded"),
    [
        (("cli.py", "STATE", "greet", "ada"), 5, 5),
        (("loop.py", "STATE", "20"), 1, 40),
        (("forking_worker.py", "STATE", "4"), 1, 40),
    ],
)
def test_programs_that_exit_lose_no_recordings(
    arguments: tuple[str, ...], runs: int, recorded: int, tmp_path: Path
) -> None:
    name, *rest = [str(tmp_path) if argument == "STATE" else argument for argument in arguments]
    for _ in range(runs):
        # from 3.12 on, Python warns of every fork of a process with threads
        command = [sys.executable, "-W", "ignore:This process:DeprecationWarning", str(EXAMPLES / name), *rest]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
    assert read_state(tmp_path).accounting().recorded == recorded


def test_server_reports_for_itself_and_for_each_user(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, str(EXAMPLES / "server.py"), str(tmp_path), str(port)]
    with subprocess.Popen(command) as serving:
        http = urllib3.PoolManager(retries=False)
        for user in ("ada", "bob", "ada"):
            for _ in range(200):
                try:
                    response = http.request("POST", f"http://127.0.0.1:{port}/users/{user}/open")
                except urllib3.exceptions.HTTPError:
                    assert serving.poll() is None
                    time.sleep(0.05)
                else:
                    break
            assert response.status == 200
        serving.terminate()
        serving.wait(30)
    users, installation = read_state(tmp_path / "users"), read_state(tmp_path / "installation")
    assert (users.accounting().recorded, len(users.subjects), "" in users.subjects) == (3, 2, False)
    assert installation.accounting().recorded == 1


def test_test_code_of_the_client_docs_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (REPOSITORY / "docs" / "how-to" / "client.md").read_text()
    (shown,) = [block for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL) if "testing" in block]
    (tmp_path / "metrics.toml").write_text(with_near_expiry((EXAMPLES / "metrics.toml").read_text()))
    monkeypatch.chdir(tmp_path)
    environment = {key: value for key, value in os.environ.items() if key != "DO_NOT_TRACK"}
    subprocess.run([sys.executable, "-c", shown], check=True, env=environment, timeout=60)
