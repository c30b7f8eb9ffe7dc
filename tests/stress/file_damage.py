"""Random damage to one file, in place unless its name says otherwise; `damage_matrix` and `served_damage_matrix` use it."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

Damage = Callable[[Path, random.Random], None]


def truncate(file: Path, chance: random.Random) -> None:
    os.truncate(file, chance.randrange(file.stat().st_size))


def empty(file: Path, _chance: random.Random) -> None:
    os.truncate(file, 0)


def flip(file: Path, chance: random.Random) -> None:
    """Change 1, 8 or 64 bytes, anywhere."""
    data = bytearray(file.read_bytes())
    for _ in range(chance.choice((1, 8, 64))):
        data[chance.randrange(len(data))] ^= chance.randrange(1, 256)
    with file.open("r+b", buffering=0) as opened:
        opened.write(data)


def overwrite(file: Path, chance: random.Random) -> None:
    """Write up to 64 KiB of zeros or random bytes anywhere into the file, which keeps its size."""
    size = file.stat().st_size
    start = chance.randrange(size)
    length = min(size - start, chance.choice((16, 512, 4096, 65536)))
    with file.open("r+b", buffering=0) as opened:
        opened.seek(start)
        opened.write(chance.choice((bytes(length), chance.randbytes(length))))


def overwrite_all(file: Path, chance: random.Random) -> None:
    with file.open("r+b", buffering=0) as opened:
        opened.write(chance.randbytes(file.stat().st_size))


def remove(file: Path, _chance: random.Random) -> None:
    file.unlink()
