"""The file of the secret: concurrent processes agree on one secret, and only its owner can read it."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from hubbub import HubbubError
from hubbub.sdk.storage.secret_file import load_secret

RACE = """
import sys
from hubbub.sdk.storage.secret_file import load_secret
print(load_secret(sys.argv[1]).stream("test").digest(8).hex())
"""


def test_first_call_creates_secret_and_next_call_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "state" / "secret"
    first, again = load_secret(path), load_secret(path)
    assert first.stream("test").digest(8) == again.stream("test").digest(8)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_concurrent_first_calls_agree_on_secret(tmp_path: Path) -> None:
    racing = [
        subprocess.Popen([sys.executable, "-c", RACE, tmp_path / "secret"], stdout=subprocess.PIPE) for _ in range(6)
    ]
    assert len({process.communicate()[0] for process in racing}) == 1
    assert all(process.returncode == 0 for process in racing)


@pytest.mark.parametrize("content", [b"", b"x" * 31, b"x" * 33])
def test_damaged_secret_error_hides_content(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(content)
    with pytest.raises(HubbubError, match=f"must hold 32 bytes, it has {len(content)}") as caught:
        load_secret(tmp_path / "secret")
    assert "xxx" not in str(caught.value)
