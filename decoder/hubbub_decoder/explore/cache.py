"""Answers of the decoding process, and the strings that readers entered, in files of a private directory."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from hubbub.files.private_file import make_private_directory, open_private
from hubbub.files.regular_files import read_regular
from hubbub_decoder.batch_decoding.tasks import CANDIDATE_SUFFIXES

MAX_BYTES = 500_000_000
_STRINGS = CANDIDATE_SUFFIXES[0]


class Cache:
    """Files of at most `most_bytes` together, mode 0600; those that were not used for the longest time go first.

    A damaged file counts as none.
    """

    def __init__(self, directory: Path, most_bytes: int = MAX_BYTES) -> None:
        """Raise OSError if the directory cannot be created."""
        self._directory, self._most_bytes = directory, most_bytes
        make_private_directory(directory)

    def answer(self, key: str) -> bytes | None:
        """Answer to a job."""
        entry = _entry(self._read(self._directory / key))
        return None if entry is None else entry[1]

    def add_answer(self, key: str, inputs: Sequence[str], answer: bytes) -> None:
        """Keep an answer; inputs : digests of the files that it was computed from. Raises OSError if it cannot be written."""
        head = {"inputs": list(inputs), "sha256": hashlib.sha256(answer).hexdigest()}
        self._write(key, json.dumps(head).encode() + b"\n" + answer)

    def strings(self, digest: str) -> Path | None:
        """File with strings that were entered; None: it is not kept any more."""
        path = self._directory / f"{digest}{_STRINGS}"
        if not digest.isalnum() or hashlib.sha256(self._read(path) or b"").hexdigest() != digest:
            return None
        return path

    def add_strings(self, text: str) -> str:
        """Keep a text of one string per line, and return its digest. Raises OSError if it cannot be written."""
        digest = hashlib.sha256(text.encode()).hexdigest()
        self._write(f"{digest}{_STRINGS}", text.encode())
        return digest

    def keep(self, inputs: Collection[str]) -> None:
        """Delete the answers that were computed from other files than these, and from strings that are kept: their reports were deleted or replaced."""
        known = {path.stem for path in self._directory.glob(f"*{_STRINGS}")}.union(inputs)
        for path in self._directory.iterdir():
            with suppress(OSError):  # deleted meanwhile
                if path.suffix == "" and not known.issuperset(_inputs(path)):
                    path.unlink()

    def _read(self, path: Path) -> bytes | None:
        try:
            content = read_regular(path)
            os.utime(path)
        except OSError:
            return None
        return content

    def _write(self, name: str, content: bytes) -> None:
        files = []
        for path in self._directory.iterdir():
            with suppress(OSError):
                files.append((path.stat().st_mtime_ns, path.stat().st_size, path))
        room = self._most_bytes - len(content) - sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if room >= 0:
                break
            with suppress(OSError):
                path.unlink()
                room += size
        unfinished = self._directory / f"{name}.{secrets.token_hex(4)}.part"
        try:
            with open_private(unfinished) as file:
                file.write(content)
            unfinished.replace(self._directory / name)
        finally:
            unfinished.unlink(missing_ok=True)


def _entry(content: bytes | None) -> tuple[list[str], bytes] | None:
    """Inputs and answer of a file; None if there is none, or it is damaged."""
    head, _, answer = (content or b"").partition(b"\n")
    try:
        about = json.loads(head)
        inputs, digest = list(map(str, about["inputs"])), about["sha256"]
    except (ValueError, KeyError, TypeError):
        return None
    return (inputs, answer) if hashlib.sha256(answer).hexdigest() == digest else None


def _inputs(path: Path) -> list[str]:
    """Inputs of a file, or its name, which is none, if it is damaged."""
    entry = _entry(read_regular(path))
    return [path.name] if entry is None else entry[0]
