"""The secret's file: made once, whole, readable by its owner alone."""

from __future__ import annotations

import os
from pathlib import Path

from hubbub.coins import Coins, system_coins
from hubbub.errors import HubbubError
from hubbub.secret import SECRET_BYTES, Secret


def secret_at(path: str | Path, coins: Coins = system_coins) -> Secret:
    """Return the secret kept at `path`; the first call draws it.

    The file is written beside its place, synchronized, and linked into it: other processes see all of it or
    nothing, and of two that come first at once one wins and both use its secret. Mode 0600.

    Do not back it up, synchronize it between machines or bake it into an image: see docs/privacy.md.
    """
    path = Path(path)
    try:
        return _read(path)
    except FileNotFoundError:
        _create(path, coins(SECRET_BYTES))
        return _read(path)


def _read(path: Path) -> Secret:
    key = path.read_bytes()
    if len(key) != SECRET_BYTES:
        raise HubbubError(
            f"{path} must hold {SECRET_BYTES} bytes, it has {len(key)}: it was damaged; "
            "delete it to enrol anew, which spends privacy anew"
        )
    return Secret(key)


def _create(path: Path, key: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123  (a descriptor, not a path)
            file.write(key)
            file.flush()
            os.fsync(file.fileno())
        try:
            path.hardlink_to(draft)
        except FileExistsError:
            return  # another process came first: its secret is the one
    finally:
        draft.unlink()
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
