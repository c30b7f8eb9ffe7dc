"""Replace a file by a complete one, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from hubbub.files.private_file import open_private


@contextmanager
def replace_when_complete(path: str | Path, *, private: bool = False) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces `path` after the block succeeds; an existing file is kept if the block fails.

    A pipe and a device are written directly.

    private : only the owner may read the file

    Raises OSError if the file cannot be written.
    """
    target = Path(path).resolve()
    temporary = Path(f"{target}.part") if target.is_file() or not target.exists() else target
    try:
        with open_private(temporary) if private else temporary.open("wb") as file:
            yield file
        if temporary != target:
            temporary.replace(target)
    finally:
        if temporary != target:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
