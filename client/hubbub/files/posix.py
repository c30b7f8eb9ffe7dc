"""What the client needs of a POSIX system. Only this module asks for it, so that all others can be imported on other systems."""

from __future__ import annotations

import os
import sys

from hubbub.errors import HubbubError

if sys.platform != "win32":
    import fcntl


class UnsupportedPlatformError(HubbubError):
    """The operating system has no file locks and owners as POSIX has them."""

    def __init__(self) -> None:
        super().__init__(
            f"hubbub does not keep files on {sys.platform} yet, because it needs the file locks and owners of POSIX: use Linux or macOS"
        )


def unsupported_platform() -> str:
    """Return the name of this operating system if the client cannot keep a state on it, else ""."""
    return sys.platform if sys.platform == "win32" else ""


def require_posix() -> None:
    """Raise UnsupportedPlatformError unless this is a POSIX system. Call it before the first change of a file."""
    if sys.platform == "win32":
        raise UnsupportedPlatformError


def current_user() -> int:
    """Return the number of the user that owns files of this process."""
    if sys.platform != "win32":
        return os.geteuid()
    raise UnsupportedPlatformError


def restrict_mode(descriptor: int, mode: int) -> None:
    """Set the mode of an open file."""
    if sys.platform != "win32":
        os.fchmod(descriptor, mode)
    else:
        raise UnsupportedPlatformError


def lock_file(descriptor: int, *, wait: bool) -> None:
    """Lock an open file by `flock`. Raises BlockingIOError if another process holds it and `wait` is false."""
    if sys.platform != "win32":
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    else:
        raise UnsupportedPlatformError


def unlock_file(descriptor: int) -> None:
    """Release the lock of an open file."""
    if sys.platform != "win32":
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    else:
        raise UnsupportedPlatformError
