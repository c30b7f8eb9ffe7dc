"""Conditions of the machine: the client logs one warning and goes on without a state. Only wrong arguments raise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.http_server import METRICS

PROGRAM = """
import logging, os, sys
logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
from hubbub import Client
metrics = os.path.abspath(sys.argv[1])
{before}
client = Client(metrics, {state!r}, "http://127.0.0.1:1", environment={{}}, **{options})
client.set_consent("on")
for n in range(3):
    client.record("homepage", "x")
client.flush(0.1)
print(client.accounting().ignored["no-state"], client.accounting().recorded, bool(client.consent), len(client.inspect_html()) > 100)
client.set_consent("off")
client.close()
"""
NO_HOME = "import pwd; os.environ.pop('HOME', None); pwd.getpwuid = {}.__getitem__"  # as for a user without an entry
DELETED = "os.mkdir(sys.argv[2]); os.chdir(sys.argv[2]); os.rmdir(sys.argv[2])"
MACHINES: dict[str, tuple[str, str, dict[str, object]]] = {
    "no home": (NO_HOME, "~/state", {}),
    "deleted working directory": (DELETED, "state", {}),
    "unwritable: a place that cannot exist": ("", "/proc/no-such-place", {}),
    "no home, detached": (NO_HOME, "~/state", {"detached": True}),
    "no home, in memory": (NO_HOME, "~/state", {"durability": "memory"}),
}


@pytest.mark.parametrize("machine", list(MACHINES))
def test_machine_without_a_usable_directory_is_logged_once(machine: str, tmp_path: Path) -> None:
    """With `-W error` and a client that raises its internal errors nothing is raised; the warning says what is true."""
    before, state, options = MACHINES[machine]
    raising = "import hubbub.testing; hubbub.testing.raise_internal_errors().__enter__()\n"
    program = raising + PROGRAM.format(before=before, state=state, options=options)
    command = [sys.executable, "-W", "error", "-c", program, str(METRICS), str(tmp_path / "deleted")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    in_memory = "durability" in options
    assert done.stdout.split() == ["0" if in_memory else "3", "3", "True", "True"]
    warnings = [line for line in done.stderr.splitlines() if "Until the directory is usable" in line]
    assert len(warnings) == (0 if in_memory else 1), done.stderr
    for warning in warnings:
        assert 'ignores recordings (`no-state`) and sends nothing. durability="memory" needs no directory' in warning
        assert "absolute path" in warning or "give Client a directory" in warning or "check the disk" in warning
