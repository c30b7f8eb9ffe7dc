"""A virtual environment of a benchmark's own, for packages that must not become dependencies of this one."""

from __future__ import annotations

import functools
import json
import math
import os
import resource
import signal
import subprocess
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "hubbub-benchmarks"
_INSTALL_SECONDS = 300
_WALL_FACTOR = 10
"""Seconds of waiting for each second of a processor that a process may use; other processes share the machine."""


class EnvironmentUnavailableError(Exception):
    """The environment cannot be made, or a script in it failed; the message is the reason."""


def make_environment(folder: Path, requirements: Sequence[str]) -> Path:
    """Path of the Python of an environment with these requirements, which is made if it is missing or has others.

    A file with the requirements is written last, so an interrupted installation starts again.

    Raises EnvironmentUnavailableError with the reason if the environment cannot be made, for example without a package index.
    """
    python, stamp = folder / "bin" / "python", folder / "requirements.json"
    if stamp.exists() and json.loads(stamp.read_text()) == list(requirements):
        return python
    stamp.unlink(missing_ok=True)
    try:
        venv.create(folder, clear=True, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as problem:
        raise EnvironmentUnavailableError(f"no virtual environment in {folder}: {problem}") from None
    _run(
        [str(python), "-m", "pip", "install", "--quiet", "--timeout", "15", "--retries", "2", *requirements],
        "",
        _INSTALL_SECONDS,
    )
    stamp.write_text(json.dumps(list(requirements)))
    return python


def run_script(python: Path, script: Path, task: object, seconds: float) -> Any:
    """Answer of a script to a task: JSON in, JSON out.

    Raises EnvironmentUnavailableError if it takes more than so many seconds of a processor or fails.
    """
    return json.loads(_run([str(python), str(script)], json.dumps(task), seconds))


def _run(command: Sequence[str], text: str, seconds: float) -> str:
    limits = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    bound = (math.ceil(seconds), math.ceil(seconds) + 1)
    try:
        done = subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | limits,
            timeout=_WALL_FACTOR * seconds,
            preexec_fn=functools.partial(resource.setrlimit, resource.RLIMIT_CPU, bound),
        )
    except subprocess.TimeoutExpired:
        raise EnvironmentUnavailableError(f"no answer for {_WALL_FACTOR * seconds:.0f} s") from None
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        raise EnvironmentUnavailableError(f"over {seconds:.0f} s of a processor")
    if done.returncode:
        last = [line for line in done.stderr.splitlines() if line.strip()][-1:]
        raise EnvironmentUnavailableError(f"{Path(command[0]).name} failed: {''.join(last)[:200]}")
    return done.stdout
