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


def remove(file: Path, _chance: random.Random) -> None:
    file.unlink()
