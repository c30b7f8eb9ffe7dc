"""Upload from a short-lived background process, for programs that end at once: `Client(..., detached=True)`.

The process has its own session, no open files of its parent, and only the environment variables that an upload needs. A lock on the
directory allows one such process at a time. It reads the consent again before each batch, and ends within `RUN_SECONDS`.
A frozen program (PyInstaller) has no interpreter to start, so it sends due batches itself, from its start.

python -m hubbub.sdk.upload.detached STATE URL [CERTIFICATES]
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from hubbub.consent import consent_limit
from hubbub.metrics.periods import utc_now
from hubbub.randomness import system_random_bytes
from hubbub.sdk.storage.events import DetachedStart
from hubbub.sdk.storage.filesystem import SystemDisk
from hubbub.sdk.storage.journal import Journal
from hubbub.sdk.storage.state import State
from hubbub.sdk.upload.retry_policy import backoff_until, next_batch

INTERVAL_SECONDS = 86_400.0
RUN_SECONDS = 30.0
_INHERITED_VARIABLES = frozenset(
    (
        *("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ssl_cert_file", "ssl_cert_dir"),
        *("do_not_track", "hubbub_consent"),
        *("home", "ld_library_path", "dyld_library_path", "pythonhome"),
    )
)


def claim_daily_run(journal: Journal, state: State, now: float) -> bool:
    """Return whether to start a detached process now: if a batch is due, once a day for all processes of the directory."""
    first = next_batch(state, now)
    if (
        first is None
        or max(first[1], backoff_until(state, now)) > now
        or abs(now - state.detached_started_at) < INTERVAL_SECONDS
    ):
        return False
    journal.write(DetachedStart(now))
    return not journal.is_degraded


def is_python(executable: str | None, *, frozen: bool) -> bool:
    """Return whether `sys.executable` is an interpreter that can run this module.

    In a frozen program (PyInstaller sets `sys.frozen`) and in an embedded interpreter it is the host program, or empty.

    >>> is_python("/usr/bin/python3.11", frozen=False), is_python("/opt/my-app", frozen=True)
    (True, False)
    """
    name = re.split(r"[/\\]", executable or "")[-1].lower()
    return not frozen and name.startswith(("python", "pypy", "graalpy"))


def can_detach() -> bool:
    """Return whether this program can start a detached process."""
    return is_python(sys.executable, frozen=hasattr(sys, "frozen"))


def detach(directory: Path, url: str, ca_certs: str | None) -> None:
    """Start the detached process. The parent may end before it; otherwise a thread reaps it."""
    command = [sys.executable, "-P", "-m", "hubbub.sdk.upload.detached", str(directory.absolute()), url]
    command += [str(Path(ca_certs).absolute())] if ca_certs else []
    nowhere = subprocess.DEVNULL
    started = subprocess.Popen(  # noqa: S603  (this interpreter and this package)
        command,
        stdin=nowhere,
        stdout=nowhere,
        stderr=nowhere,
        close_fds=True,
        cwd=directory,
        env=child_environment(os.environ, sys.path),
        start_new_session=True,
    )
    threading.Thread(target=started.wait, name="hubbub-detached", daemon=True).start()


def child_environment(parent: Mapping[str, str], path: list[str]) -> dict[str, str]:
    """Return the variables that the process inherits: proxies, certificates, consent, and those the interpreter needs.

    >>> child_environment({"HTTPS_PROXY": "http://proxy:3128", "API_TOKEN": "secret"}, ["/app"])
    {'HTTPS_PROXY': 'http://proxy:3128', 'PYTHONPATH': '/app'}
    """
    kept = {name: value for name, value in parent.items() if name.lower() in _INHERITED_VARIABLES}
    return kept | {"PYTHONPATH": os.pathsep.join(str(Path(entry).absolute()) for entry in path if entry)}


def deliver_due_batches(directory: Path, url: str, ca_certs: str | None) -> bool:
    """Send until no batch is due, a backoff begins or the time is over; return False if another detached process runs."""
    from hubbub.sdk.recording.consent_changes import ConsentLimit
    from hubbub.sdk.upload.transport import HttpTransport
    from hubbub.sdk.upload.uploader import LEASE_RETRY_SECONDS, Sender

    deadline, disk = time.monotonic() + RUN_SECONDS, SystemDisk()
    lock = disk.lock(directory / "detached")
    try:
        if not lock.acquire(wait=False):
            return False
        sender = Sender(
            Journal(directory, disk),
            HttpTransport(url, ca_certs),
            disk=disk,
            clock=utc_now,
            random_bytes=system_random_bytes,
            limit=ConsentLimit(consent_limit(os.environ)),
        )
        while (pause := sender.attempt()) in (0.0, LEASE_RETRY_SECONDS) and time.monotonic() < deadline:
            time.sleep(min(pause, 0.5))
        return True
    finally:
        lock.close()


def main(directory: str, url: str, ca_certs: str | None = None) -> None:
    end = threading.Timer(RUN_SECONDS + 15, os._exit, (1,))  # in case a DNS lookup or a disk blocks
    end.daemon = True
    end.start()
    deliver_due_batches(Path(directory), url, ca_certs)


if __name__ == "__main__":
    main(*sys.argv[1:])
