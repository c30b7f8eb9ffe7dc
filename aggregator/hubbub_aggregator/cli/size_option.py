"""Sizes as operators write them."""

from __future__ import annotations

import re

import click

_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


class Size(click.ParamType):  # type: ignore[type-arg]
    """A number of bytes, or of KiB, MiB or GiB."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the bytes."""
        told = re.fullmatch(r"([0-9]{1,18}) ?([KMG]iB)?", str(value))
        if told is None:
            self.fail(f"{value!r} is no size: write a number of bytes, or 512KiB, 2MiB, 1GiB", param, ctx)
        return int(told[1]) * _UNITS[told[2] or ""]


def written(size: int) -> str:
    """Return a size in the largest unit that it is a whole number of.

    >>> [written(size) for size in (1000, 65536, 3 << 30)]
    ['1000', '64 KiB', '3 GiB']
    """
    unit = max((unit for unit in _UNITS if size % _UNITS[unit] == 0), key=_UNITS.__getitem__)
    return f"{size // _UNITS[unit]} {unit}".strip()


def about(size: float) -> str:
    """Write a size for people.

    >>> about(0), about(1536), about(3 << 30)
    ('0 B', '1.5 KiB', '3 GiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.4g} TiB"
