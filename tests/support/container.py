"""Images of deploy/Containerfile, built without a registry, and containers of it, started without a container engine.

They are built by podman on a base that mmdebstrap makes: Debian with its CPython, from the mirror of this machine's apt.
A container is a process in namespaces of its own, because an engine cannot start one inside most sandboxes of CI.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.paths import DEPLOY, REPOSITORY
from tests.support.programs import installed

_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
_START = r"""
set -e
mount --bind "$ROOT" "$ROOT"
for name in null urandom; do mount --bind /dev/$name "$ROOT/dev/$name"; done
mount --bind "$DEFINITIONS" "$ROOT/etc/hubbub"
mount --bind "$DATA" "$ROOT/var/lib/hubbub"
mount -o remount,bind,ro "$ROOT"
mount -o remount,bind,ro "$ROOT/etc/hubbub"
mount -t proc proc "$ROOT/proc"
mount -t tmpfs -o size=64m tmpfs "$ROOT/tmp"
mount -t tmpfs -o size=64m tmpfs "$ROOT/dev/shm"
"$PYTHON" -c 'import fcntl, socket, struct; fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sH14x", b"lo", 0x41))'
exec chroot "$ROOT" "$@"
"""
"""Mount the container's files, set its loopback interface up, and become its process 1."""


@dataclass(frozen=True, slots=True)
class Image:
    """A built image. root : directory with its files, of a container that was never started; log : output of the build"""

    root: Path
    environment: Sequence[str]
    user: str
    command: Sequence[str]
    log: str


@contextmanager
def built_images(place: Path, extras: Sequence[str]) -> Iterator[dict[str, Image]]:
    """Build an image for each value of EXTRAS with the documented command, in a store of containers in an empty directory.

    place : its name has at most 45 characters, because podman accepts 50 for its own directories
    """
    storage = {"--root": "storage", "--runroot": "run", "--tmpdir": "tmp"}
    podman = [installed("podman"), "--events-backend", "none"]
    podman += [text for option, name in storage.items() for text in (option, str(place / name))]
    mmdebstrap = installed("mmdebstrap")
    if os.geteuid() != 0:
        pytest.skip("building an image with chroot isolation needs root: run this test as root")
    bases = set(re.findall(r"^FROM (\S+)", (DEPLOY / "Containerfile").read_text(), re.MULTILINE))
    base = place / "base.tar"
    packages = "--include=ca-certificates,python-is-python3,python3-venv"
    certificates = f"--customize-hook=copy-in {_CERTIFICATES} /etc/ssl/certs"
    _run(mmdebstrap, "--quiet", "--variant=apt", packages, certificates, _suite(), base, *_sources())
    for name in bases:
        _run(*podman, "import", "--quiet", base, name)
    base.unlink()
    local = ("--isolation", "chroot", "--network", "host", "--pull=never")
    images: dict[str, Image] = {}
    try:
        for extra in extras:
            tag = f"hubbub-{extra}"
            options = ("--file", "deploy/Containerfile", "--build-arg", f"EXTRAS={extra}", "--tag", tag)
            log = _run(*podman, "build", *local, *options, ".", temporary=place)
            config = json.loads(_run(*podman, "image", "inspect", "--format", "{{json .Config}}", tag))
            root = Path(_run(*podman, "mount", _run(*podman, "create", tag).split()[-1]).strip())
            for name in ("etc/hubbub", "var/lib/hubbub", "dev/shm"):
                (root / name).mkdir(parents=True, exist_ok=True)
            for name in ("null", "urandom"):
                (root / "dev" / name).touch()
            images[extra] = Image(root, config["Env"], config["User"], [*config["Entrypoint"], *config["Cmd"]], log)
        yield images
    finally:
        _run(*podman, "umount", "--all")
        shutil.rmtree(place / "storage")


class Container:
    """A running container, with no capabilities, a read-only root file system and no network."""

    def __init__(self, image: Image, process: subprocess.Popen[str], environment: Sequence[str]) -> None:
        self._image, self._process, self._environment = image, process, environment
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while not (found := children.read_text().split()):
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        self.pid = int(found[0])

    def wait_until(self, text: str) -> None:
        """Read the log until a line has this text."""
        assert self._process.stderr
        lines = []
        while text not in (line := self._process.stderr.readline()):
            lines.append(line)
            assert line, "".join(lines)

    def execute(self, *command: str) -> subprocess.CompletedProcess[bytes]:
        """Run a command in the container, as `podman exec` does."""
        enter = ["nsenter", "--target", str(self.pid), "--mount", "--net", "--pid", "--root", "--wd"]
        confined = _confined(self._image.user, self._environment, command)
        return subprocess.run([*enter, *confined], capture_output=True, check=False, timeout=60)

    def end(self) -> tuple[int, str]:
        """Return the exit code and the log when the process has ended."""
        assert self._process.stderr
        log = self._process.stderr.read()
        return self._process.wait(), log

    def stop(self, signal_number: int, seconds: float) -> int:
        """Send a signal, and return the exit code."""
        os.kill(self.pid, signal_number)
        return self._process.wait(seconds)


@contextmanager
def running(image: Image, definitions: Path, data: Path, *variables: str) -> Iterator[Container]:
    """Start the image's own command with a directory of definitions and one for data; kill it at the end of the block."""
    places = {"ROOT": image.root, "DEFINITIONS": definitions, "DATA": data, "PYTHON": sys.executable}
    environment = (*image.environment, *variables)
    namespaces = ["unshare", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child"]
    process = subprocess.Popen(
        [*namespaces, "sh", "-c", _START, "sh", *_confined(image.user, environment, image.command)],
        env=os.environ | {name: str(place) for name, place in places.items()},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Container(image, process, environment)
    finally:
        process.kill()
        process.communicate()


def _confined(user: str, environment: Sequence[str], command: Sequence[str]) -> list[str]:
    """Return a command line, for the image's root directory, that drops every privilege before it runs a command."""
    uid, gid = user.split(":")
    drop = [f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--no-new-privs"]
    drop += ["--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all"]
    return ["/usr/bin/env", "-i", *environment, "/usr/bin/setpriv", *drop, *command]


def _suite() -> str:
    return platform.freedesktop_os_release()["VERSION_CODENAME"]


def _sources() -> list[Path]:
    """Return the files of apt's configuration with the sources of this machine's own release."""
    words = {file: set(file.read_text().split()) for file in sorted(Path("/etc/apt").glob("**/*")) if _is_list(file)}
    return [file for file, found in words.items() if {_suite(), "main"} <= found]


def _is_list(file: Path) -> bool:
    return file.suffix in (".list", ".sources") and file.is_file()


def _run(*command: str | Path, temporary: Path | None = None) -> str:
    """Run a program, which must succeed; return its output and its messages."""
    environment = os.environ if temporary is None else os.environ | {"TMPDIR": str(temporary)}
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
