"""The TypeScript client keeps recording on a disk that is smaller than a long journal."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from hubbub.conformance.scenarios import DARK, PAGE
from tests.typescript.conftest import Built

PROGRAM = Path(__file__).with_name("recording.mjs")
MOUNTED = 'mount -t tmpfs -o "size=$1" none "$2" && shift 2 && exec "$@"'


@pytest.mark.parametrize("size", ["48k", "96k", "300k"])
def test_a_small_disk(size: str, node_adapter: Sequence[str], built: Built, tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("a file system of its own needs unshare --mount, as root")
    definitions = json.dumps([PAGE.to_dict(), DARK.to_dict()])
    client = [node_adapter[0], str(PROGRAM), str(built("node.js")), str(tmp_path), definitions, "http://127.0.0.1:9"]
    command = [unshare, "--mount", "sh", "-c", MOUNTED, "sh", size, str(tmp_path), *client, "400"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert found.stdout.split() == ["recorded"] * 400
