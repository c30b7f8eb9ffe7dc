"""Sizes as operators write them."""

from __future__ import annotations

import re

import click

from hubbub.text import _UNITS


class Size(click.ParamType):  # type: ignore[type-arg]
    """A number of bytes, or of KiB, MiB or GiB."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the bytes."""
        told = re.fullmatch(r"([0-9]{1,18}) ?([KMG]iB)?", str(value))
        if told is None:
            self.fail(f"{value!r} is no size: write a number of bytes, or 512KiB, 2MiB, 1GiB", param, ctx)
        return int(told[1]) * _UNITS[told[2] or ""]
