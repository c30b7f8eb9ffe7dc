"""Answers of the decoding process, and the strings that readers entered, in files of a private directory."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from hubbub.files.private_file import make_private_directory, open_private
from hubbub_decoder.batch_decoding.tasks import CANDIDATE_SUFFIXES

MAX_BYTES = 500_000_000
_STRINGS = CANDIDATE_SUFFIXES[0]


class Cache:
    """Files of at most `most_bytes` together, mode 0600; those that were not used for the longest time go first.

    Raises OSError if a file cannot be written.
    """

    def __init__(self, directory: Path, most_bytes: int = MAX_BYTES) -> None:
        self._directory, self._most_bytes = directory, most_bytes
        make_private_directory(directory)

    def answer(self, key: str) -> bytes | None:
        """Answer to a job."""
        content = self._read(self._directory / key)
        return None if content is None else content.partition(b"\n")[2]

    def add_answer(self, key: str, inputs: Sequence[str], answer: bytes) -> None:
        """Keep an answer; inputs : digests of the files that it was computed from."""
        self._write(key, json.dumps(list(inputs)).encode() + b"\n" + answer)

    def strings(self, digest: str) -> Path | None:
        """File with strings that were entered; None: it is not kept any more."""
        path = self._directory / f"{digest}{_STRINGS}"
        if not digest.isalnum() or self._read(path) is None:
            return None
        return path

    def add_strings(self, text: str) -> str:
        """Keep a text of one string per line, and return its digest."""
        digest = hashlib.sha256(text.encode()).hexdigest()
        self._write(f"{digest}{_STRINGS}", text.encode())
        return digest

    def keep(self, inputs: Collection[str]) -> None:
        """Delete the answers that were computed from other files than these, and from strings that are kept: their reports were deleted or replaced."""
        entered = {path.stem for path in self._directory.glob(f"*{_STRINGS}")}
        for path in self._directory.iterdir():
            if path.suffix == "":
                with path.open("rb") as file:
                    used = json.loads(file.readline() or b"[]")
                if not entered.union(inputs).issuperset(used):
                    path.unlink(missing_ok=True)

    def _read(self, path: Path) -> bytes | None:
        try:
            content = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        return content

    def _write(self, name: str, content: bytes) -> None:
        files = sorted(
            (each.stat().st_mtime_ns, each.stat().st_size, each.path) for each in os.scandir(self._directory)
        )
        room = self._most_bytes - len(content) - sum(size for _, size, _ in files)
        for _, size, path in files:
            if room >= 0:
                break
            with suppress(OSError):
                Path(path).unlink()
                room += size
        unfinished = self._directory / f"{name}.part"
        with open_private(unfinished) as file:
            file.write(content)
        unfinished.replace(self._directory / name)
