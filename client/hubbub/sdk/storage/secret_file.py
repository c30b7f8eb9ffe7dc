"""Secret file: create it once and atomically, readable by its owner only; read it; destroy it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hubbub.encoding.secret import SECRET_BYTES, Secret
from hubbub.errors import HubbubError
from hubbub.randomness import RandomBytes, system_random_bytes
from hubbub.sdk.storage.filesystem import Disk, SystemDisk

if TYPE_CHECKING:  # `import hubbub` loads this file, and a client alone needs the journal
    from hubbub.sdk.storage.journal import Journal


def load_secret(path: str | Path, random_bytes: RandomBytes = system_random_bytes) -> Secret:
    """Return the secret of the file `path`; the first call creates it, with mode 0600.

    The file is written under another name, synced, and linked to `path`. Other processes see the whole file or none,
    and of two processes that create it at once both use the same secret.

    Do not back it up, synchronize it between machines or include it in an image: see docs/explanation/privacy.md.

    Parameters
    ----------
    path
        File of the secret.
    random_bytes
        Source of a new secret.

    Returns
    -------
    Secret
        Secret that the file holds.

    Raises
    ------
    HubbubError
        The file does not have 32 bytes, or this is Windows.
    OSError
        The file cannot be read or created.
    """
    return secret_on(SystemDisk(), Path(path), random_bytes)


def secret_on(disk: Disk, path: Path, random_bytes: RandomBytes) -> Secret:
    """Return the secret of a file on a disk, which the first call creates."""
    if disk.identity(path) is None:
        _create(path, random_bytes(SECRET_BYTES), disk)
    file = disk.open(path)
    try:
        key = file.read(0, file.identity()[1])
    finally:
        file.close()
    if len(key) != SECRET_BYTES:
        raise HubbubError(
            f"{path} must hold {SECRET_BYTES} bytes, it has {len(key)}: it is damaged and cannot be used. Delete it: the client enrolls "
            "again, and reports under the new secret spend epsilon again"
        )
    return Secret(key)


class SecretFile:
    """The secret of a state directory. An error of the disk is reported to the journal."""

    def __init__(self, journal: Journal, disk: Disk, random_bytes: RandomBytes) -> None:
        self.path = journal.directory / "secret"
        self._journal = journal
        self._disk = disk
        self._random_bytes = random_bytes

    def load(self) -> Secret | None:
        """Return the secret; a missing or damaged one is replaced by a new one. None if the disk fails."""
        try:
            try:
                secret = secret_on(self._disk, self.path, self._random_bytes)
            except HubbubError:
                destroy_secret(self.path, self._disk)
                secret = secret_on(self._disk, self.path, self._random_bytes)
        except OSError as problem:
            self._journal.degrade(problem, self.path)
            return None
        self._journal.clear_problem(self.path)
        return secret

    def destroy(self) -> bool:
        """Destroy the secret; return whether the disk did."""
        try:
            destroy_secret(self.path, self._disk)
        except OSError as problem:
            self._journal.degrade(problem, self.path)
            return False
        self._journal.clear_problem(self.path)
        return True


def destroy_secret(path: Path, disk: Disk) -> None:
    """Remove the secret file and drafts of it that a kill left; durable on return.

    A file that cannot be removed is emptied. Raises OSError if that fails too.
    """
    left = [name for name in disk.list_directory(path.parent) if name == path or name.name.startswith(f"{path.name}.")]
    for name in left:
        try:
            disk.remove(name)
        except OSError:
            emptied = disk.open_new(name)
            try:
                emptied.sync()
            finally:
                emptied.close()
    if left:
        disk.sync_directory(path.parent)


def _create(path: Path, key: bytes, disk: Disk) -> None:
    disk.make_directory(path.parent)
    draft = path.with_name(f"{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
    file = disk.open_new(draft)
    try:
        file.append(key)
        file.sync()
        with suppress(FileExistsError):  # another process created it first: its secret is used
            disk.link(draft, path)
    finally:
        file.close()
        disk.remove(draft)
    disk.sync_directory(path.parent)
