"""A window of the app in another process: it records one answer, and ends or is killed.

It imports the client alone, because each process starts anew.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from unittest.mock import patch

from hubbub import Client
from hubbub.sdk.assembly import AllSeams
from hubbub.sdk.upload.uploader import UploadLoop
from hubbub.testing import SeededBytes, raise_internal_errors
from tests.support.paths import REPOSITORY


@dataclass(frozen=True)
class Window:
    """What a process needs to open the state.

    options : of the client
    seed    : of its random bytes
    """

    options: Mapping[str, Any]
    time: datetime
    machine: str
    seed: str

    def record(self, name: str, answer: Any, *, is_killed: bool) -> None:
        """Record one answer in another process, and wait for its end."""
        done = subprocess.run(
            [sys.executable, "-m", __name__],
            input=pickle.dumps((self, name, answer, is_killed)),
            cwd=REPOSITORY,
            capture_output=True,
            check=False,
        )
        assert done.returncode == (-signal.SIGKILL if is_killed else 0), done.stderr.decode()
        assert not done.stderr, done.stderr.decode()

    def record_here(self, name: str, answer: Any, *, is_killed: bool) -> None:
        """Record one answer in this process, which then closes the client or kills itself."""
        seams = AllSeams(clock=lambda: self.time, random_bytes=SeededBytes(self.seed), machine_id=self.machine.encode)
        with patch.object(UploadLoop, "start", lambda _: None), raise_internal_errors():
            client = Client(**self.options, seams=seams)
            client.record(name, answer)
            if is_killed:
                os.kill(os.getpid(), signal.SIGKILL)
            client.close()


if __name__ == "__main__":
    window, name, answer, is_killed = pickle.load(sys.stdin.buffer)  # noqa: S301  (from the process above)
    window.record_here(name, answer, is_killed=is_killed)
